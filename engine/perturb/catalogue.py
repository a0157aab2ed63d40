"""The strategies by name, the resources that they share, and perturbation as a library call.

Each is a function `build(settings, resources) -> Strategy` beside its strategy: `settings` are the user's, `resources` the
`Resources` that strategies share: the words that may enter, data folders, and a lexicon that opens on first use.

The library call perturbs texts, for example to augment a data set:

    >>> from parley.engine.perturb import perturb_text
    >>> perturb_text("I installed Ubuntu 10.04 from http://ubuntu.com, but it doesn't BOOT!", "random-swap", seed=2)
    "I installed 10.04 Ubuntu from http://ubuntu.com, it but doesn't BOOT!"

The text around the changed words stays as it is: capitals, blanks, addresses, punctuation
(`engine/perturb/strategies/rewriting.py`). `<eou>` and `<eot>` in a text separate utterances and turns
(`envs/corpora/pairs/turns.py`), and stay too. The result depends only on the text and the seed, not on the position in a list;
other seeds give other versions.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parley.engine.perturb.strategies.draws import seeds_of
from parley.engine.perturb.strategies.texts import Edits, Texts
from parley.engine.perturb.strategy import RANDOM_WORDS, ByEdits, Expectation, PerturbSettings, RandomWordsControl, Strategy
from parley.envs.core.conformance import Kind, expect, same_alone
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.core.registry import Registry, made_part, nearest
from parley.envs.corpora.pairs.compiled import load_pairs
from parley.envs.corpora.pairs.contexts import said
from parley.envs.corpora.pairs.turns import Turns, parse_turns

if TYPE_CHECKING:
    from parley.engine.perturb.lexicon.opposites import Lexicon
    from parley.engine.perturb.lexicon.tagger import NGrams


ENOUGH = 500_000
"""Fewest words of a corpus whose trigrams judge edits: a smaller corpus finds unseen words odd."""
HELP_CHANNELS = frozenset({"ubuntu_irc", "ubuntu_dialogues", "helpdesk", "helpdesk_paraphrases"})
"""Corpora of people who ask for help with computers."""
USUAL = 3
"""Fewest occurrences in the corpus of a usual word."""


@dataclass(frozen=True)
class Resources:
    """The resources that strategies share.

    Args:
        settings: the user's.
        words: words that the model knows; only these may enter a context. None lets every word enter. A container that is no
            collection answers for any word whether the model can spell it.
        common: words that random inputs are drawn from; most frequent first.
        data_root: where corpora lie.
        device: torch device of the paraphraser.
        corpus: its training split decides what is usual and fluent, unless the settings name one; empty: no corpus.
    """

    settings: PerturbSettings
    words: Container[str] | None = None
    common: Sequence[str] = ()
    data_root: Path | None = None
    device: str = "cpu"
    corpus: str = ""

    def may_enter(self, words: Sequence[str]) -> bool:
        """Return whether a model knows all of these words."""
        return self.words is None or all(word in self.words for word in words)

    @property
    def listed(self) -> Container[str]:
        """Return the words that the model knows as such; none where it spells words, or no model is named."""
        return self.words if isinstance(self.words, Collection) else ()

    def is_usual(self, word: str) -> bool:
        """Return whether a word may enter and, with a corpus, occurs a few times in it."""
        return self.may_enter((word,)) and (self.language is None or self.language.counts[word] >= USUAL)

    @property
    def is_help_channel(self) -> bool:
        """Return whether the corpus is one that this project's lists of such channels were written from."""
        return (self.settings.corpus or self.corpus) in HELP_CHANNELS

    @property
    def language(self) -> NGrams | None:
        """Return the trigrams of a corpus that is large enough to judge edits; None without such a corpus.

        Raises:
            DataError: the corpus cannot be read.
        """
        trigrams = self.trigrams
        return trigrams if trigrams is not None and trigrams.num_words >= ENOUGH else None

    @cached_property
    def trigrams(self) -> NGrams | None:
        """Return the trigrams of the corpus, of any size; None without a corpus.

        Raises:
            DataError: the corpus cannot be read.
        """
        from parley.engine.perturb.lexicon.tagger import NGrams

        corpus = self.settings.corpus or self.corpus
        if not corpus:
            return None
        return NGrams(said(load_pairs(corpus, self.data_root, every_word=True), "train"))

    @cached_property
    def lexicon(self) -> Lexicon:
        """Open the lexicon that the settings name.

        Raises:
            DataError: NLTK's data are not there.
        """
        from parley.engine.perturb.lexicon.built_in import open_lexicon

        return open_lexicon(self.settings.lexicon)


_CONTEXTS: list[Turns] = [
    parse_turns(line)
    for line in (
        "i tried to install the old packages twice , but it does not work <eot> what can you do ?",
        "open the file again <eou> it was closed on monday <eot> is that right ?",
        "zz9 \N{GRINNING FACE} 中文",
    )
]
_EMPTY: list[Turns] = [(((),),), (((), ()), ((),))]
_SEEDS = [3, 5, 8]


def make(named: Any) -> Strategy:
    """Make a strategy of a class without arguments, a function of settings and resources, or an object."""
    settings = PerturbSettings(lexicon="built-in")
    if not callable(named):
        strategy: Strategy = named
    elif isinstance(named, type):
        strategy = named()
    else:
        strategy = named(settings, Resources(settings))
    return strategy


def _has_name_and_expectation(strategy: Strategy) -> None:
    """State a name, and whether a model's answer should change."""
    expect(isinstance(strategy.name, str) and bool(strategy.name), "name is a text", repr(strategy.name))
    expect(strategy.expectation in list(Expectation), "expectation is an Expectation", repr(strategy.expectation))


def _keeps_boundaries(strategy: Strategy) -> None:
    """Return each context with as many turns of as many utterances, all tuples of words."""
    perturbed = strategy.perturb(_CONTEXTS, _SEEDS)
    expect(len(perturbed) == len(_CONTEXTS), f"{len(_CONTEXTS)} contexts", len(perturbed))
    for before, after in zip(_CONTEXTS, perturbed, strict=True):
        shapes = [[len(turn) for turn in turns] for turns in (before, after)]
        expect(shapes[0] == shapes[1], f"turns of {shapes[0]} utterances", shapes[1])
        for utterance in (utterance for turn in after for utterance in turn):
            right = isinstance(utterance, tuple) and all(isinstance(word, str) for word in utterance)
            expect(right, "an utterance is a tuple of words", repr(utterance))


def _keeps_empty_contexts(strategy: Strategy) -> None:
    """Leave empty utterances empty, and return no contexts for none."""
    expect(strategy.perturb([], []) == [], "an empty list", strategy.perturb([], []))
    expect(strategy.perturb(_EMPTY, [1, 2]) == _EMPTY, "empty utterances", strategy.perturb(_EMPTY, [1, 2]))


def _is_deterministic(strategy: Strategy) -> None:
    """Change a context alike for equal seeds."""
    first, second = strategy.perturb(_CONTEXTS, _SEEDS), strategy.perturb(_CONTEXTS, _SEEDS)
    expect(first == second, "the same contexts twice", "different contexts the second time")


def _is_independent(strategy: Strategy) -> None:
    """Change a context independently of the contexts beside it."""
    alone = [strategy.perturb([context], [seed])[0] for context, seed in zip(_CONTEXTS, _SEEDS, strict=True)]
    same_alone(strategy.perturb(_CONTEXTS, _SEEDS), alone, "a perturbed context")


def _does_something(strategy: Strategy) -> None:
    """Change at least one of three plain contexts, for some seed."""
    changed = any(strategy.perturb(_CONTEXTS, [seed] * len(_CONTEXTS)) != _CONTEXTS for seed in range(20))
    expect(changed, "another text", "every context as it was, for twenty seeds")


STRATEGY = Kind(
    "perturbation strategy",
    "parley.engine.perturb.strategy.Strategy",
    ("perturb", "expectation"),
    make,
    (_has_name_and_expectation, _keeps_boundaries, _keeps_empty_contexts, _is_deterministic, _is_independent, _does_something),
)


strategies = Registry("perturbation strategy", "parley.strategies")
for _name, _summary, _target in (
    ("random-swap", "neighbouring words change places", "parley.engine.perturb.strategies.swap:build"),
    ("stopword-dropout", "stop words are left out", "parley.engine.perturb.strategies.stopwords:build"),
    ("data-paraphrase", "phrases by paraphrases of a table", "parley.engine.perturb.strategies.paraphrase:build"),
    (
        "generative-paraphrase",
        "utterances by paraphrases of a pointer-generator network",
        "parley.engine.perturb.strategies.generative:build",
    ),
    ("grammar-errors", "errors that learners make", "parley.engine.perturb.strategies.grammar:build"),
    ("character-noise", "letters of words slip", "parley.engine.perturb.strategies.noise:build"),
    ("misspellings", "words as people misspell them", "parley.engine.perturb.strategies.noise:build_misspellings"),
    ("add-negation", "the first verb that can be is negated", "parley.engine.perturb.strategies.negation:build"),
    ("antonym", "one word by its opposite", "parley.engine.perturb.strategies.antonym:build"),
    ("random-inputs", "every word by a random one", "parley.engine.perturb.strategies.entities:build_random"),
    (
        "random-inputs-kept-entities",
        "every word but entities by a random one",
        "parley.engine.perturb.strategies.entities:build_kept",
    ),
    ("confusing-entity", "entities by others of their category", "parley.engine.perturb.strategies.entities:build_confusing"),
):
    strategies.register(_name, _summary, _target)

PARAPHRASED = "generative-paraphrase"
"""The strategy that needs a network."""
SHOULD_NOT_CHANGE = ("random-swap", "stopword-dropout", "data-paraphrase", PARAPHRASED, "grammar-errors")
SHOULD_CHANGE = ("add-negation", "antonym")
ADDED = ("character-noise", "misspellings")
"""Strategies of this project; they are in no group, because the groups are those of the paper's tables."""
ENTITY = ("random-inputs", "random-inputs-kept-entities", "confusing-entity")
"""For dialogues about entities of a knowledge base."""
GROUPS = {
    "all": (*SHOULD_NOT_CHANGE, *SHOULD_CHANGE),
    "should-not-change": SHOULD_NOT_CHANGE,
    "should-change": SHOULD_CHANGE,
    "entity": ENTITY,
}
"""Names that stand for several strategies."""


def names(chosen: str) -> tuple[str, ...]:
    """Return the names of the strategies in a list of names and groups.

    Args:
        chosen: names and groups separated by commas.
    """
    listed = (name for part in chosen.split(",") for name in GROUPS.get(part.strip(), (part.strip(),)))
    return tuple(dict.fromkeys(listed))


def require_names(chosen: str, *more: str) -> None:
    """Check that a list names strategies; a user's own file is opened when it is built.

    Args:
        chosen: names and groups separated by commas.
        more: further allowed names.

    Raises:
        ConfigError: no strategy is called so, with the nearest name.
    """
    allowed = (*strategies, *GROUPS, *more)
    for name in names(chosen):
        if name.removesuffix(RANDOM_WORDS) not in allowed and ".py:" not in name:
            what = f"no perturbation strategy is called {name!r}{nearest(name, allowed)}"
            fix = f"strategies: {', '.join(allowed)}, or path/file.py:Name; NAME{RANDOM_WORDS} is the control of one"
            raise ConfigError(what, fix=fix)


def left_out(chosen: str, settings: PerturbSettings) -> tuple[str, ...]:
    """Return the strategies of a group that lack a setting; one that is named itself raises when it is built."""
    absent = PARAPHRASED in names(chosen) and PARAPHRASED not in (part.strip() for part in chosen.split(","))
    return (PARAPHRASED,) if absent and settings.paraphraser is None else ()


def build(chosen: Sequence[str], settings: PerturbSettings, resources: Resources) -> list[Strategy]:
    """Build the strategies of those names.

    Args:
        chosen: registered names, or `path/file.py:NAME` of a `build` function, a class that needs no arguments or a strategy;
            with `RANDOM_WORDS` behind it, its control.
        settings: the user's.
        resources: what strategies share.

    Raises:
        ConfigError: no such strategy, with the nearest name; or the named object is no strategy.
        DataError: data that a strategy needs are missing, or there are no words for a control.
    """
    members, built = ("name", "expectation", "perturb"), list[Strategy]()
    for name in chosen:
        inner = name.removesuffix(RANDOM_WORDS)
        strategy: Strategy = made_part(strategies.kind, inner, strategies.get(inner), members, settings, resources)
        built.append(strategy if inner == name else RandomWordsControl(strategy, resources.common))
    return built


DEFAULT = PerturbSettings()


def perturb_text(text: str, strategy: str | Strategy, *, seed: int = 1, settings: PerturbSettings = DEFAULT) -> str:
    """Perturb one text; see `perturb_texts`."""
    return perturb_texts([text], strategy, seed=seed, settings=settings)[0]


def perturb_texts(
    texts: Sequence[str], strategy: str | Strategy, *, seed: int = 1, settings: PerturbSettings = DEFAULT
) -> list[str]:
    """Perturb texts; a list is much faster than one text after another.

    Args:
        texts: as people write them; those that hold nothing to perturb come back as they are.
        strategy: a registered name, or a strategy that was built with resources of one's own (`catalogue.build`).
        seed: at least 0.
        settings: of a strategy given by name, in which every word may enter.

    Raises:
        ConfigError: no such strategy, several of them, or it needs a setting that is not given.
        DataError: data that it needs are missing, or these are no texts.
    """
    lines = list(texts)
    if isinstance(texts, str) or not all(map(isinstance, lines, repeat(str))):
        fix = "perturb_texts takes a list of strings, perturb_text one string"
        raise DataError("these are no texts", where="perturb_texts", got=repr(texts)[:100], fix=fix)
    if isinstance(strategy, str) and len(names(strategy)) > 1:
        fix = "perturb_by_strategy takes several, and returns the texts of each"
        raise ConfigError("one strategy perturbs texts", where="perturb_texts", got=strategy, fix=fix)
    built = _opened(strategy, settings) if isinstance(strategy, str) else strategy
    read = Texts(lines)
    return read.rewritten(edits_of(read, built, seed))


def perturb_by_strategy(
    texts: Sequence[str], strategies: str | Sequence[str | Strategy], *, seed: int = 1, settings: PerturbSettings = DEFAULT
) -> dict[str, list[str]]:
    """Perturb texts by several strategies; see `perturb_texts`.

    Args:
        texts: lines.
        strategies: names and groups separated by commas, as the command line takes them, or a list of names and strategies.
        seed: at least 0.
        settings: of strategies given by name.

    Returns:
        The perturbed texts by the name of the strategy.
    """
    chosen: Sequence[str | Strategy] = names(strategies) if isinstance(strategies, str) else strategies
    called = {item if isinstance(item, str) else item.name: item for item in chosen}
    return {name: perturb_texts(texts, item, seed=seed, settings=settings) for name, item in called.items()}


def edits_of(texts: Texts, strategy: Strategy, seed: int) -> Edits:
    """Return the edits of a strategy in texts.

    Args:
        texts: as they were read.
        strategy: the perturbation; for a strategy that returns no edits, they are read from its output.
        seed: at least 0.
    """
    seeds = seeds_of(seed, texts.texts)
    if isinstance(strategy, ByEdits):
        return strategy.edits(texts.flat, seeds)
    return texts.edits_to(_perturbed(strategy, texts.flat.contexts, seeds), strategy.name)


def _perturbed(strategy: Strategy, contexts: Sequence[Turns], seeds: Sequence[int]) -> list[Turns]:
    perturbed = strategy.perturb(contexts, seeds)
    if len(perturbed) != len(contexts):
        fix = "return one for each, in their order"
        raise ConfigError(
            f"{strategy.name} made {len(perturbed)} contexts of {len(contexts)}", got=type(strategy).__name__, fix=fix
        )
    return perturbed


@lru_cache(maxsize=32)
def _opened(name: str, settings: PerturbSettings) -> Strategy:
    (strategy,) = build([name], settings, Resources(settings))
    return strategy
