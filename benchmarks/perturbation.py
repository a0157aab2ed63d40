"""Perturbed utterances per second of each strategy on one core, against plain loops and augmentation libraries.

Contexts of two turns are perturbed with a seed each; no utterance occurs twice. The plain loops (plain_perturbation.py) take
the utterances one by one with a `random.Random` for each context. Some contexts are first perturbed by both from the same
draws.

    python -m benchmarks.perturbation [--quick] [--corpus ubuntu_irc] [--lexicon built-in]

    ratio         seconds of the plain loops over ours for an utterance under every strategy, one after the other with one
                  lexicon, as a run has them: it tags an utterance once
    strategies    for each alone, with a lexicon that remembers nothing yet: utterances per second of ours and of the loop, and
                  the ratio of a strategy that would do nothing but read all words and build the same contexts again ("bound");
                  where a loop is so simple that this is below ten, no strategy on tuples of words can be ten times as fast
    identical     the same draws gave the same words under every strategy
    texts         not with --quick: texts per second of `perturb_text` and `perturb_texts`, a string in and one out, as written
                  (`envs/corpora/pairs/turns.py`): one a call, and a list of 1,000 a call; under the default settings, each
                  strategy on texts that none before it has read
    nothing       the same of reading the texts' words and joining their pieces again, which changes nothing
    libraries     the same of the nearest augmenters of TextAttack and nlpaug (augmenters.py), where those are installed: the
                  same strings, as many a call, the ratios of ours, and those of `nothing`, which no strategy can reach

With the built-in lexicon, which is all there is without NLTK's data, both sides ask the same lexicon: only loops are compared.
"""

from __future__ import annotations

import gc
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

from benchmarks.augmenters import LIBRARIES, installed
from benchmarks.measure import BenchmarkOptions, Clock, Result, run
from benchmarks.plain_perturbation import Draw, PlainBuiltIn, PlainLoops, PlainNltk
from parley.engine.perturb.catalogue import Resources, build, perturb_text, perturb_texts
from parley.engine.perturb.strategies.draws import uniforms
from parley.engine.perturb.strategies.entities import read_entities
from parley.engine.perturb.strategies.stopwords import KEPT, MEANT, VERBS
from parley.engine.perturb.strategies.texts import FlatContexts, Texts
from parley.engine.perturb.strategy import PerturbSettings, Strategy
from parley.envs.core.errors import DataError
from parley.envs.corpora.pairs.compiled import load_pairs
from parley.envs.corpora.pairs.turns import Turns, Utterance, detokenise
from parley.envs.corpora.pairs.vocabulary import SPECIALS

STRATEGIES = (
    "random-swap",
    "stopword-dropout",
    "data-paraphrase",
    "add-negation",
    "antonym",
    "random-inputs",
    "random-inputs-kept-entities",
    "confusing-entity",
)
"""Those that are loops over tables."""
ON_TEXTS = (*STRATEGIES, "grammar-errors", "character-noise")
"""All but the one that is a network."""
TURNS = 2
SHARD = 1000
"""Contexts perturbed at once."""
LIST = 1000
"""Texts of a list."""
MOST_DRAWS = 400
"""Of one context; no strategy asks for more."""
NOTHING = "nothing"
Seconds = tuple[float, float]
"""Of the processor for a text: one a call, many a call."""


class TextSample(NamedTuple):
    """Texts that are perturbed one a call, and lists of them."""

    alone: Sequence[str]
    lists: Sequence[Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class Options(BenchmarkOptions):
    """Strategies against plain loops."""

    corpus: str = "helpdesk"
    """Pairs whose utterances are perturbed."""
    data_root: Path | None = None
    """Where corpora lie; the usual places when not given."""
    lexicon: Literal["any", "nltk", "built-in"] = "any"
    """NLTK's data where they are, the built-in lexicon elsewhere; or one of them."""

    @property
    def contexts(self) -> int:
        """How many are perturbed by us."""
        return 500 if self.quick else 10_000

    @property
    def plain_contexts(self) -> int:
        """How many are perturbed by the loops, which need not see as many."""
        return 150 if self.quick else 1000

    @property
    def lists(self) -> int:
        """How many lists of texts are perturbed by us; by the libraries one."""
        return 1 if self.quick else 10

    @property
    def calls(self) -> int:
        """How many texts are perturbed one a call."""
        return 100 if self.quick else 2000


@dataclass(frozen=True)
class Subject:
    """What is perturbed, and with what.

    Args:
        utterances: that occur once, more than the contexts hold.
        contexts: of the first of them.
        make: strategies that remember nothing, by name, with a lexicon of their own.
        on_texts: the same under the default settings.
        plain: the loops.
        lexicon: its name.
    """

    utterances: Sequence[Utterance]
    contexts: Sequence[Turns]
    make: Callable[..., list[Strategy]]
    on_texts: Callable[..., list[Strategy]]
    plain: PlainLoops
    lexicon: str


def prepare(options: Options, folder: Path) -> Subject:
    """Open the lexicon and the corpus."""
    corpus = load_pairs(options.corpus, options.data_root)
    words = [word for word in corpus.vocabulary.words if word not in SPECIALS]
    vocabulary = frozenset(words)
    every = corpus.splits["train"].utterances
    distinct = dict.fromkeys(tuple(corpus.vocabulary.decode(every[i])) for i in range(len(every)))
    utterances = list(distinct)
    chosen = utterances[: TURNS * options.contexts]
    contexts = [tuple((utterance,) for utterance in chosen[i : i + TURNS]) for i in range(0, len(chosen) - TURNS + 1, TURNS)]
    entities = folder / "entities.tsv"
    entities.write_text("".join(f"{name}\tcategory {i % 5}\n" for i, name in enumerate(_names(chosen, words))))
    lexicon = opened_lexicon(options.lexicon)
    # The paper's rule of data-level paraphrase is no loop over a table.
    default = PerturbSettings(lexicon=lexicon, entities=entities)
    by_tables = {"data-paraphrase": replace(default, rule="released")}

    def make(*names: str, settings: Mapping[str, PerturbSettings] = by_tables) -> list[Strategy]:
        shared = Resources(default, vocabulary, words, options.data_root)
        made = [build([name], settings.get(name, default), shared)[0] for name in names]
        for strategy in made:
            # Files are opened by the first question.
            strategy.perturb([((("an", "old", "disk", "works"),),)], [0])
        return made

    opened = Resources(default).lexicon
    plain = PlainLoops(
        PlainNltk() if lexicon == "nltk" else PlainBuiltIn(opened),
        vocabulary,
        words,
        opened.stopwords - KEPT - VERBS - MEANT,
        opened.paraphrases,
        read_entities(entities).categories,
    )
    return Subject(utterances, contexts, make, partial(make, settings={}), plain, lexicon)


def measure(options: Options) -> Result:
    """Check and clock every strategy."""
    with tempfile.TemporaryDirectory() as folder:
        subject = prepare(options, Path(folder))
        different = {name: _different(subject, name, options.plain_contexts // 3) for name in STRATEGIES}
        together = _ours(subject, *STRATEGIES)
        copied = _copied(subject)
        seconds = {name: (_ours(subject, name), _plain(subject, name, options.plain_contexts)) for name in STRATEGIES}
        on_texts = () if options.quick else ON_TEXTS
        read = {name: _texts(subject, number, options) for number, name in enumerate((NOTHING, *on_texts))}
        texts = {name: _on_texts(subject, name, read[name]) for name in read}
        libraries = {name: _library(name, read, subject, texts, Path(folder)) for name in LIBRARIES if on_texts}
    return Result(
        ratio=sum(plain for _, plain in seconds.values()) / together,
        identical=not any(different.values()),
        figures={
            "lexicon": subject.lexicon,
            "utterances": TURNS * len(subject.contexts),
            "strategies": {
                name: {"per_s": 1 / ours, "plain_per_s": 1 / plain, "ratio": plain / ours, "bound": plain / copied}
                for name, (ours, plain) in seconds.items()
            },
            "different": {name: differences[:3] for name, differences in different.items() if differences},
            NOTHING: _per_second(texts.pop(NOTHING)),
            "texts": {name: _per_second(seconds) for name, seconds in texts.items()},
            "libraries": libraries,
        },
    )


def _ours(subject: Subject, *names: str) -> float:
    """Seconds of the processor for an utterance under all of the strategies, a shard of contexts at a time."""
    made, clock = subject.make(*names), Clock()
    gc.collect()
    with clock.running():
        for start in range(0, len(subject.contexts), SHARD):
            shard = subject.contexts[start : start + SHARD]
            for strategy in made:
                strategy.perturb(shard, range(start, start + len(shard)))
    return clock.cpu_s / (TURNS * len(subject.contexts))


def _copied(subject: Subject) -> float:
    """Seconds of the processor for an utterance that is read and built again as it was."""
    clock = Clock()
    gc.collect()
    with clock.running():
        for start in range(0, len(subject.contexts), SHARD):
            flat = FlatContexts(subject.contexts[start : start + SHARD])
            flat.cut(flat.words)
    return clock.cpu_s / (TURNS * len(subject.contexts))


def _plain(subject: Subject, name: str, num: int) -> float:
    loop, clock = subject.plain.named(name), Clock()
    loop(["an", "old", "disk", "works"], random.Random(0).random)
    contexts = [[list(utterance) for (utterance,) in turns] for turns in subject.contexts[:num]]
    gc.collect()
    with clock.running():
        for seed, turns in enumerate(contexts):
            draw = random.Random(seed).random
            for words in turns:
                loop(words, draw)
    return clock.cpu_s / (TURNS * len(contexts))


def _different(subject: Subject, name: str, num: int) -> list[str]:
    """Contexts that the loop makes something else of, from the same draws."""
    loop, differences = subject.plain.named(name), []
    contexts = subject.contexts[:num]
    (strategy,) = subject.make(name)
    for seed, (turns, ours) in enumerate(zip(contexts, strategy.perturb(contexts, range(len(contexts))), strict=True)):
        draw = _fed(seed, name)
        theirs: list[Utterance] = []
        for number, (utterance,) in enumerate(turns):
            theirs.append(tuple(loop(list(utterance), _fed(seed, f"{name} {number}") if name == "stopword-dropout" else draw)))
        if tuple((utterance,) for utterance in theirs) != ours:
            differences.append(f"{turns}: {ours} against {theirs}")
    return differences


def _fed(seed: int, name: str) -> Draw:
    return iter(uniforms([seed], name, [MOST_DRAWS]).tolist()).__next__


def _names(utterances: Sequence[Utterance], words: Sequence[str]) -> list[str]:
    """Made-up entities: some common words, and some words that stand side by side."""
    alone = [word for word in words[50:400:10] if word.isalpha()]
    two = dict.fromkeys((a, b) for line in utterances[::20] for a, b in pairwise(line) if a.isalpha() and b.isalpha())
    return [*alone, *(" ".join(pair) for pair in two)][:100]


def opened_lexicon(name: Literal["any", "nltk", "built-in"]) -> Literal["nltk", "built-in"]:
    """Return the lexicon of a setting; for any, NLTK's where its data are."""
    if name != "any":
        return name
    try:
        _ = Resources(PerturbSettings()).lexicon.paraphrases
    except DataError:
        return "built-in"
    return "nltk"


def _texts(subject: Subject, number: int, options: Options) -> TextSample:
    """Texts that no other number gets, as far as the corpus has so many."""
    size = options.calls + options.lists * LIST
    sentences = [detokenise(subject.utterances[i % len(subject.utterances)]) for i in range(number * size, (number + 1) * size)]
    alone, listed = sentences[: options.calls], sentences[options.calls :]
    return TextSample(alone, [listed[i : i + LIST] for i in range(0, len(listed), LIST)])


def _on_texts(subject: Subject, name: str, sample: TextSample) -> Seconds:
    """Ours, one version of each text."""
    if name == NOTHING:
        return _clocked(lambda text: _read_and_joined([text]), _read_and_joined, sample)
    (strategy,) = subject.on_texts(name)
    return _clocked(lambda text: perturb_text(text, strategy), lambda texts: perturb_texts(texts, strategy), sample)


def _read_and_joined(texts: Sequence[str]) -> list[str]:
    Texts(texts)
    return [" ".join(text.split(" ")) for text in texts]


def _library(
    name: str, read: Mapping[str, TextSample], subject: Subject, ours: Mapping[str, Seconds], folder: Path
) -> dict[str, Any] | str:
    """Their augmenters, one version of each text."""
    version = installed(name)
    if version is None:
        return "not installed"
    if subject.lexicon != "nltk":
        return "looks words up in NLTK's WordNet, which is not here"
    figures = {}
    for strategy, (augment_one, augment_list) in LIBRARIES[name](subject.plain, folder).items():
        sample = read[strategy]
        seconds = _clocked(augment_one, augment_list, TextSample(sample.alone, sample.lists[:1]))
        ratios, bounds = (_ratios(seconds, ours[timed]) for timed in (strategy, NOTHING))
        figures[strategy] = {
            **_per_second(seconds),
            "call_ratio": ratios[0],
            "list_ratio": ratios[1],
            "call_bound": bounds[0],
            "list_bound": bounds[1],
        }
    return {"version": version, **figures}


def _per_second(seconds: Seconds) -> dict[str, float]:
    return {"call_per_s": 1 / seconds[0], "list_per_s": 1 / seconds[1]}


def _ratios(theirs: Seconds, ours: Seconds) -> Seconds:
    return theirs[0] / ours[0], theirs[1] / ours[1]


def _clocked(perturb_one: Callable[[str], Any], perturb_list: Callable[[list[str]], Any], sample: TextSample) -> Seconds:
    """Seconds of the processor for a text, one a call and many a call."""
    perturb_one("an old disk works")
    call, listed = Clock(), Clock()
    gc.collect()
    with call.running():
        for text in sample.alone:
            perturb_one(text)
    gc.collect()
    with listed.running():
        for texts in sample.lists:
            perturb_list(list(texts))
    return call.cpu_s / len(sample.alone), listed.cpu_s / sum(map(len, sample.lists))


if __name__ == "__main__":
    run("perturbation", Options, measure)
