"""The Gymnasium ids of this package, by lazy entry point, so that registering them imports no environment.

An id is `parley/Name-vN`; N grows whenever observation, reward or split changes.
"""

from __future__ import annotations

import gymnasium

_ENTRY_POINTS = {
    "parley/Negotiation-v1": "parley.envs.negotiation.env:NegotiationEnv",
    "parley/NegotiationText-v1": "parley.envs.negotiation.text_env:NegotiationTextEnv",
    "parley/ResponseRanking-v1": "parley.envs.ranking.ranking_env:ResponseRankingEnv",
    "parley/MutualFriends-v1": "parley.envs.mutual_friends.env:MutualFriendsEnv",
    "parley/Reply-v1": "parley.envs.generation.reply_env:ReplyEnv",
}
IDS = tuple(_ENTRY_POINTS)
"""Every registered id."""


def register_environments() -> None:
    """Makes every id known to `gymnasium.make`."""
    for name, entry_point in _ENTRY_POINTS.items():
        gymnasium.register(id=name, entry_point=entry_point)
