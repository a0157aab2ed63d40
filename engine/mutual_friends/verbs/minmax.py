"""Hardening of bots that look for friends by rounds: `parley minmax friends`.

A round trains the bot further on chats that are heard as they are, or through one of the liars so far; then a fresh liar
against the bot as it is, which joins the liars of the next round. Rounds end when the harm of the fresh liar has stopped
falling. The bot that is harmed least by the best of all rounds' liars is the result (`checkpoint`).

Start and result are measured once more, by fresh liars and by the best of all known liars, in chats that chose neither it nor a
round. Two controls, the start trained as long without lies and on random ones, are measured by the same liars, and say how much
of the gain is owed to liars that learn.

Not here: which runs a campaign is made of (`campaign.py`), and how it is made (`engine/core/verbs/hardening.py`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from parley.engine.core.verbs.command import command_line
from parley.engine.core.verbs.hardening import HardeningJob
from parley.engine.core.verbs.job import Reporter
from parley.engine.mutual_friends.metrics.hardening import CAMPAIGN, FRIENDS
from parley.engine.mutual_friends.verbs.agents import MAKER, friends_agents
from parley.engine.mutual_friends.verbs.campaign import FriendsCampaign, HardenFriendsConfig, hardening_fit
from parley.engine.mutual_friends.verbs.config import CollaborationConfig
from parley.envs.core.errors import ConfigError
from parley.envs.core.storage.uris import display_path
from parley.policies.chat.addresses import is_chat_address
from parley.policies.core.choosing_settings import ChoiceLearning
from parley.policies.dynonet.settings import dynonet_demo, dynonet_small


def small() -> HardenFriendsConfig:
    """A small DynoNet on the built-in chats, three rounds at most, on a laptop."""
    return HardenFriendsConfig(sizes=dynonet_small())


def demo() -> HardenFriendsConfig:
    """To see how it goes, its figures mean little: a DynoNet of 200 built-in chats, one round, in a few minutes."""
    return HardenFriendsConfig(
        rounds=1,
        limit=200,
        scenarios=60,
        choosing=30,
        max_events=24,
        sizes=dynonet_small(),
        learning=ChoiceLearning(updates=6, examples_per_update=32, learning_rate=0.05),
        fit=dynonet_demo(),
        hardening=replace(hardening_fit(), max_epochs=1),
    )


class MinMaxFriends(HardeningJob[HardenFriendsConfig]):
    """`parley minmax friends`."""

    words = ("minmax", "friends")
    run_name = "minmax-friends"
    config = HardenFriendsConfig
    presets = {"small": small, "demo": demo}
    campaign, maker = FriendsCampaign, MAKER
    measures, legend = FRIENDS, CAMPAIGN
    unhelped = "no round was harmed less than the start, which is the result"

    def prepare(self, config: HardenFriendsConfig, path: Path, reporter: Reporter) -> HardenFriendsConfig:
        """As any hardening; a bot that cannot learn is told from one that is not there."""
        if config.model in friends_agents or ".py:" in config.model or is_chat_address(config.model):
            what = "a DynoNet alone can be hardened here; chat models and other bots may play the liars' side"
            fix = f"--model RUN of {MAKER}, and --body for this one"
            raise ConfigError(what, where="--model", got=config.model, fix=fix)
        return super().prepare(config, path, reporter)

    def heading(self, config: HardenFriendsConfig) -> str:
        return f"{config.model or 'a DynoNet'} hardened against liars"

    def description(self, config: HardenFriendsConfig, best: int) -> str:
        return (
            f"The bot of round {best} is the result. At most {config.game.lies} lies a chat of {config.max_events} events, "
            f"seed {config.seed}."
        )

    def next_commands(self, config: HardenFriendsConfig, path: Path) -> tuple[str, ...]:
        """The page, and the bot before and after under what Niu & Bansal did."""
        start = FriendsCampaign(config, path).model(0)
        asked = CollaborationConfig(model=start, trained=display_path(path), controls=False, data_root=config.data_root)
        heard = command_line(("evaluate", "collaboration"), {"": CollaborationConfig}, asked, run=None)
        return (*super().next_commands(config, path), heard)


MINMAX_FRIENDS = MinMaxFriends()
