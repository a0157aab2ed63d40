"""Collaborating bots: chats a second in lock-step against one chat, one graph and one word at a time.

Two DynoNets mishear each other's entities on the same scenarios, with the same draws, so that they must say and select the
same. Weights are a checkpoint's, or drawn: those of a bot that was not fitted, whose chats last as long as they may, in
utterances of 20 tokens. Beside it stand scripted bots in lock-step and one chat at a time, for which lock-step saves nothing
but calls: what play itself and mishearing cost. Ratios are of one process on one thread.

Of the plain chats a few are played, for they take long; seconds are taken per event, because chats differ in length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.measure import BenchmarkOptions, Clock, Result, run
from benchmarks.plain_collaboration import PlainDynoNetAgent
from parley.engine.mutual_friends.channels import ChatKnowledge, ConfusedEntityChannel
from parley.envs.mutual_friends.compiled import EMBEDDED_FRIENDS, FriendsCorpus, load_friends
from parley.envs.mutual_friends.game import Channel, FriendsAgent, FriendsChat, play_friends
from parley.envs.mutual_friends.scenario import FriendsScenario
from parley.envs.mutual_friends.scripted.bots import FriendsBot, draw_scenarios
from parley.policies.dynonet.agent import DynoNetAgent
from parley.policies.dynonet.graphs import FriendsVocabulary
from parley.policies.dynonet.model import DynoNet, corpus_of, load_dynonet
from parley.policies.dynonet.settings import DynoNetSizes

SEED = 7
ROWS = 128
"""Chats in lock-step."""


@dataclass(frozen=True, kw_only=True)
class Options(BenchmarkOptions):
    """Chats of two DynoNets in lock-step against one chat at a time."""

    checkpoint: Path | None = None
    """A DynoNet; one of published size with drawn weights when not given."""
    data_root: Path | None = None
    """Folder that holds the corpora; the default is PARLEY_DATA, else the user cache."""


def drawn_network(corpus: FriendsCorpus) -> DynoNet:
    """Return a network of published size with drawn weights."""
    model = DynoNet(FriendsVocabulary.build(corpus.schema, [corpus.words], 1), DynoNetSizes())
    model.initialise(torch.Generator().manual_seed(SEED))
    return model.eval()


Asked = Sequence[tuple[FriendsScenario, int]]


def played(agent: FriendsAgent, channel: Channel, chats: Asked, num_rows: int) -> tuple[list[FriendsChat], float]:
    """Return the chats, and CPU seconds of an event."""
    clock = Clock()
    with clock.running():
        result = play_friends(chats, (agent, agent), num_rows=num_rows, channels=(channel, channel))
    return result, clock.cpu_s / sum(len(chat.events) for chat in result)


def measure(options: Options) -> Result:
    """Figures of DynoNets and of scripted bots."""
    name = corpus_of(options.checkpoint) if options.checkpoint else EMBEDDED_FRIENDS
    corpus = load_friends(name, options.data_root)
    model = load_dynonet(options.checkpoint) if options.checkpoint else drawn_network(corpus)
    channel = ConfusedEntityChannel(ChatKnowledge(corpus.schema, corpus.linker, corpus.words))
    num, num_plain = (ROWS, 3) if options.quick else (4 * ROWS, 24)
    chats = draw_scenarios(corpus.schema, range(num), SEED)
    ours, seconds = played(DynoNetAgent(model, corpus.linker, "ours"), channel, chats, ROWS)
    plain, plain_seconds = played(PlainDynoNetAgent(model, corpus.linker), channel, chats[:num_plain], 1)
    bot = FriendsBot(corpus.linker)
    scripted, scripted_seconds = played(bot, channel, chats, ROWS)
    alone, alone_seconds = played(bot, channel, chats[:ROWS], 1)
    events = sum(len(chat.events) for chat in ours) / num
    return Result(
        ratio=plain_seconds / seconds,
        identical=plain == ours[:num_plain] and alone == scripted[:ROWS],
        figures={
            "chats_per_cpu_s": 1 / (seconds * events),
            "reference_chats_per_cpu_s": 1 / (plain_seconds * events),
            "events_a_chat": events,
            "equal_chats": sum(chat == our_chat for chat, our_chat in zip(plain, ours, strict=False)),
            "reference_chats": num_plain,
            "scripted": {
                "ratio": alone_seconds / scripted_seconds,
                "chats_per_cpu_s": num / (scripted_seconds * sum(len(chat.events) for chat in scripted)),
            },
        },
    )


if __name__ == "__main__":
    run("collaboration", Options, measure)
