"""Corpora of paraphrases: pairs of sentences that say the same, each pair in both directions.

    msr_paraphrases        the Microsoft Research Paraphrase Corpus (Dolan & Brockett 2005): sentences of news that people
                           judged to mean the same (quality 1); pairs judged otherwise are left out
    helpdesk_paraphrases   generated: two ways of putting one thing at the help desk, both about the same things

Quotation marks of the news are left out: a network fitted to them quotes whatever it is to paraphrase.

Paraphrases of your own are a `source<TAB>paraphrase` file or folder as any other pairs (`tabbed.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from parley.envs.core.errors import DataError
from parley.envs.core.seeds import stream
from parley.envs.corpora.lines import broken_rule, located, read_lines, require_utf8
from parley.envs.corpora.pairs import helpdesk, tokens
from parley.envs.corpora.pairs.helpdesk.dialogues import SPLITS_OF_TEN, TOPICS
from parley.envs.corpora.pairs.helpdesk.phrases import SLOTS, Phrases, Topic
from parley.envs.corpora.pairs.sources import FilePairs, GeneratedPairs
from parley.envs.corpora.pairs.text import PairText, SplitText
from parley.envs.corpora.pairs.tokens import tokenise
from parley.envs.corpora.sources import SPLITS

NUM_PAIRS = 2_000
"""Generated pairs, before the second direction."""

_FOLDER = "paraphrase"
_FILES = {split: f"msrp-{split}.tsv" for split in SPLITS}
_COLUMNS = 5
_SAME, _OTHER = "1", "0"
_QUOTES = frozenset('"\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}')
_CHOICE = re.compile(r"\[([^\]]+)\]")
_SLOT = re.compile(r"\{\w+\}")


def read_msr(folder: Path) -> PairText:
    """Reads the three files; a pair of quality 1 stands twice, once in each direction."""
    text = PairText()
    for split, name in _FILES.items():
        for number, line in enumerate(read_lines(folder / name)[1:], 2):
            try:
                pair = parse_msr(line)
            except DataError as error:
                text.broken.append(located(error, str(folder / name), number))
                continue
            if pair is not None:
                _link(text.splits[split], *pair)
    return text


def parse_msr(line: str) -> tuple[list[str], list[str]] | None:
    """Reads one line: quality, two numbers of sentences, two sentences, with tabs between them.

    Returns:
        The words of both sentences, without quotation marks; None when people judged that they do not mean the same.

    Raises:
        DataError: the line is not of that form.
    """
    require_utf8(line)
    columns = line.split("\t")
    if len(columns) != _COLUMNS or columns[0] not in (_SAME, _OTHER):
        raise broken_rule("a line is a quality (0 or 1), two numbers and two sentences, with tabs between them", line)
    first, second = ([word for word in tokenise(sentence) if word not in _QUOTES] for sentence in columns[-2:])
    if not first or not second:
        raise broken_rule("both sentences have words", line)
    return (first, second) if columns[0] == _SAME else None


def helpdesk_paraphrases(num_pairs: int = NUM_PAIRS, seed: int = 0) -> PairText:
    """Generates pairs of two ways of putting one thing.

    Args:
        num_pairs: of all splits together, before pairs of "val" and "test" that "train" holds are left out.
        seed: master seed, at least 0.

    Returns:
        Splits of about 8 : 1 : 1, each pair in both directions. Pair i depends on the seed and i alone.
    """
    text = PairText()
    choices = [(topic, pair) for topic in TOPICS for pair in _ways(topic)]
    made = [_filled(choices, i, seed) for i in range(num_pairs)]
    known = {frozenset(pair) for i, pair in enumerate(made) if SPLITS_OF_TEN[i % 10] == "train"}
    for i, pair in enumerate(made):
        split = SPLITS_OF_TEN[i % 10]
        if split == "train" or frozenset(pair) not in known:
            _link(text.splits[split], *(tokenise(each) for each in pair))
    return text


def _ways(topic: Topic) -> Iterator[tuple[str, str]]:
    """Pairs of phrases of a topic that differ, put the same thing and have the same slots."""
    for problem in topic.problems:
        # Two answers of a branch lead to one diagnosis without saying the same: each is a group of its own.
        found = [(phrase,) for branch in problem.branches for phrase in (*branch.answers, *branch.fixes)]
        for phrases in (problem.says, problem.asks, *found):
            forms = [form for phrase in phrases for form in _forms(phrase)]
            yield from (
                (first, second)
                for number, first in enumerate(forms)
                for second in forms[:number]
                if sorted(_SLOT.findall(first)) == sorted(_SLOT.findall(second))
            )


def _forms(phrase: str) -> Phrases:
    """The phrase with every choice made in every way."""
    pieces = _CHOICE.split(phrase)
    # Every other piece is what stood between brackets.
    ways = product(*(piece.split("|") if number % 2 else (piece,) for number, piece in enumerate(pieces)))
    return tuple("".join(way) for way in ways)


def _filled(choices: list[tuple[Topic, tuple[str, str]]], i: int, seed: int) -> tuple[str, str]:
    rng = stream(seed, "helpdesk-paraphrases", i)
    topic, (first, second) = choices[int(rng.integers(len(choices)))]
    slots = {slot: values[int(rng.integers(len(values)))] for slot, values in {**SLOTS, "thing": topic.things}.items()}
    return first.format(**slots), second.format(**slots)


def _link(split: SplitText, first: list[str], second: list[str]) -> None:
    one, other = split.add(first), split.add(second)
    split.link(one, other)
    split.link(other, one)


MSR_PARAPHRASES = FilePairs(
    name="msr_paraphrases",
    summary="sentences of news that mean the same (Microsoft Research Paraphrase Corpus, Dolan & Brockett 2005)",
    licence="Microsoft Research shared source, for non-commercial use",
    obtain="Microsoft Research, or github.com/brmson/dataset-sts, folder data/para/msr",
    vocabulary=30_000,
    wanted=tuple((name,) for name in _FILES.values()),
    reader=read_msr,
    shares=_FOLDER,
)

HELPDESK_PARAPHRASES = GeneratedPairs(
    name="helpdesk_paraphrases",
    summary="two ways of putting one thing at the help desk, generated on this machine",
    licence="Apache-2.0, as Parley itself",
    vocabulary=1_000,
    generator=helpdesk_paraphrases,
    sources=(Path(__file__), Path(tokens.__file__), *sorted(Path(helpdesk.__path__[0]).glob("*.py"))),
)
