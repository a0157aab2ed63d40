"""Corpora, game rules, rewards and Gymnasium environments; needs only numpy, gymnasium and pyarrow.

`import parley` registers the ids with Gymnasium by lazy entry points; it imports no environment. An id is `parley/Name-vN`. N
grows when observation, reward or split changes. Read `negotiation/game.py` first.
"""

_ENTRY_POINTS = {
    "parley/Negotiation-v1": "parley.envs.negotiation.env:NegotiationEnv",
    "parley/NegotiationText-v1": "parley.envs.negotiation.env:NegotiationTextEnv",
    "parley/NegotiationActs-v1": "parley.envs.negotiation.acts:NegotiationActsEnv",
    "parley/ResponseRanking-v1": "parley.envs.ranking.ranking_env:ResponseRankingEnv",
    "parley/MutualFriends-v1": "parley.envs.mutual_friends.env:MutualFriendsEnv",
    "parley/Secret-v1": "parley.envs.secret.env:SecretEnv",
    "parley/Reply-v1": "parley.envs.generation.reply_env:ReplyEnv",
    "parley/Conversation-v1": "parley.envs.conversation.env:ConversationEnv",
}
IDS = tuple(_ENTRY_POINTS)
"""Every registered id."""
__all__ = ["IDS"]


def register_environments() -> None:
    """Register every id with Gymnasium, for `gymnasium.make`."""
    import gymnasium

    for name, entry_point in _ENTRY_POINTS.items():
        gymnasium.register(id=name, entry_point=entry_point)
