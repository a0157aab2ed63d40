"""Chats of two scripted players who look for their common friend, side by side against one at a time.

Tables are drawn from the built-in schema, which counts for both but in "played_per_s". The reference is a game of its own for
each chat, and a linker that tries every span of an utterance at every place, longest first. "ratio" is of CPU seconds a chat;
"linking_ratio" of all utterances, linked by both for their listeners. "identical": equal chats, and equal entities.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from benchmarks.measure import BenchmarkOptions, Clock, Result, run
from parley.envs.mutual_friends.game import Mention, Token, play_friends
from parley.envs.mutual_friends.linker import EntityLinker, Words
from parley.envs.mutual_friends.scenario import Entity
from parley.envs.mutual_friends.scripted.bots import FRIENDS_SCHEMA, FriendsBot, draw_scenarios, friends_forms, scripted_chats

CHATS, QUICK_CHATS = 10_000, 1_000
PLAIN_CHATS = 300


@dataclass(frozen=True)
class Options(BenchmarkOptions):
    """Chats of scripted players."""


class PlainLinker(EntityLinker):
    """Tries every span at every place."""

    def find(self, words: Sequence[str], *contexts: Collection[Entity]) -> list[tuple[int, Mention]]:
        """Where each mention begins, and the mention."""
        mentions: list[tuple[int, Mention]] = []
        at = 0
        while at < len(words):
            spans: list[Words] = [tuple(words[at:end]) for end in range(len(words), at, -1)]
            mention = next((meant for span in spans if (meant := self.meant(span, contexts)) is not None), None)
            mentions += [] if mention is None else [(at, mention)]
            at += 1 if mention is None else len(mention.words)
        return mentions


def linked(linker: EntityLinker, heard: Sequence[tuple[Words, Collection[Entity]]]) -> list[tuple[Token, ...]]:
    """Utterances as their listeners, whose entities are beside them, link them."""
    return [linker.link(words, context) for words, context in heard]


def measure(options: Options) -> Result:
    """Clocks both ways."""
    num_chats = QUICK_CHATS if options.quick else CHATS
    linker, plain = (kind(FRIENDS_SCHEMA, friends_forms()) for kind in (EntityLinker, PlainLinker))
    clocks = {name: Clock() for name in ("ours", "plain", "tables", "links", "plain_links")}
    with clocks["tables"].running():
        draw_scenarios(FRIENDS_SCHEMA, range(num_chats))
    with clocks["ours"].running():
        chats = scripted_chats(FRIENDS_SCHEMA, linker, range(num_chats), guesses=0, slips=0)
    with clocks["plain"].running():
        drawn = (draw_scenarios(FRIENDS_SCHEMA, [number]) for number in range(PLAIN_CHATS))
        alone = [chat for deal in drawn for chat in play_friends(deal, (FriendsBot(plain), FriendsBot(plain)))]
    heard = [
        (event.words, chat.scenario.mentionable[1 - event.side])
        for chat in chats
        for event in chat.events
        if event.selected is None
    ]
    with clocks["links"].running():
        ours = linked(linker, heard)
    with clocks["plain_links"].running():
        theirs = linked(plain, heard)
    seconds = {name: clock.cpu_s for name, clock in clocks.items()}
    num_events = sum(len(chat.events) for chat in chats)
    return Result(
        ratio=seconds["plain"] / PLAIN_CHATS / (seconds["ours"] / num_chats),
        identical=ours == theirs and [chat.events for chat in alone] == [chat.events for chat in chats[:PLAIN_CHATS]],
        figures={
            "linking_ratio": seconds["plain_links"] / seconds["links"],
            "chats_per_s": num_chats / seconds["ours"],
            "plain_chats_per_s": PLAIN_CHATS / seconds["plain"],
            "events_per_s": num_events / seconds["ours"],
            "tables_per_s": num_chats / seconds["tables"],
            "played_per_s": num_chats / (seconds["ours"] - seconds["tables"]),
            "utterances_linked_per_s": len(ours) / seconds["links"],
            "events": num_events / num_chats,
        },
    )


if __name__ == "__main__":
    run("scripted_chats", Options, measure)
