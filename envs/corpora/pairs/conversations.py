"""Reader of the conversations in the Ubuntu IRC logs with reply links (`envs/corpora/pairs/ubuntu.py` has the format).

Source: Kummerfeld et al. 2019, "A Large-Scale Corpus for Conversation Disentanglement": a conversation is what reply links
connect. Here an utterance of the corpus is a turn, as `envs/corpora/pairs/turns.py` writes it: neighbouring messages of one
nick, with `<eou>` between them; pairs are neighbouring turns, so that a reply's context is found by following them back
(`envs/corpora/pairs/contexts.py`).

- Lines are connected by links in any direction, system lines and bots among them; these are then left out, and so is what has
  no word once a leading "nick:" or "nick," of a nick of the file is taken off.
- A conversation has at least three turns, and so two speakers. Of train, val and test:
      conversations                                3,628     151     251
      replies with one turn of context or more    32,898   1,311   2,490
      replies with two turns or more              29,270   1,160   2,239
  (One conversation and eleven replies of train more, if messages without a word stayed.)
- Lines that nobody annotated are in no conversation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path

from parley.envs.core.errors import DataError
from parley.envs.corpora.pairs.text import PairText
from parley.envs.corpora.pairs.tokens import tokenise
from parley.envs.corpora.pairs.turns import Turn, turn_words
from parley.envs.corpora.pairs.ubuntu import FOLDERS, LOG, read_links, read_messages, without_address

MIN_TURNS = 3
"""Of a conversation; its neighbouring turns are of different speakers."""


def read_conversations(folder: Path) -> PairText:
    """Reads every log below the folder.

    Args:
        folder: holds `train`, `dev` and `test`.
    """
    text = PairText()
    for split, name in FOLDERS.items():
        for path in sorted((folder / name).glob(f"*{LOG}")):
            for turns in _conversations(path, text.broken):
                rows = [text.splits[split].add(turn_words(turn)) for turn in turns]
                for source, reply in pairwise(rows):
                    text.splits[split].link(source, reply)
    return text


def components(links: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The lines that links connect.

    Args:
        links: pairs of lines; one with itself is a line of its own.

    Returns:
        The lines of each component in order, components in the order of their first lines.
    """
    parents: dict[int, int] = {}

    def root(line: int) -> int:
        while (parent := parents.setdefault(line, line)) != line:
            parents[line] = parents[parent]
            line = parent
        return line

    for first, second in links:
        one, other = sorted((root(first), root(second)))
        parents[other] = one
    found: dict[int, list[int]] = {}
    for line in sorted(parents):
        found.setdefault(root(line), []).append(line)
    return list(found.values())


def _conversations(log: Path, broken: list[DataError]) -> Iterator[list[Turn]]:
    messages = read_messages(log, broken)
    nicks = {message.nick for message in messages if message is not None}
    for lines in components(read_links(log, len(messages), broken)):
        spoken = [message for line in lines if (message := messages[line])]
        said = [(message.nick, tuple(tokenise(without_address(message.text, nicks)))) for message in spoken]
        turns = [tuple(words for _, words in group) for _, group in groupby(filter(itemgetter(1), said), key=itemgetter(0))]
        if len(turns) >= MIN_TURNS:
            yield turns
