"""Generative paraphrase: an utterance by the paraphrase of a network.

Source: Niu & Bansal 2018 (arXiv 1809.02079), section 3.1: a pointer-generator network (See et al. 2017), trained on pairs of
paraphrases. Their settings of decoding are not stated; ours are `BeamConfig`'s.

Utterances of all contexts are decoded together, each once. One stays as it was where the network's likeliest paraphrase is
the utterance itself or has a word that may not enter, or where there is none.

Departures:
  * # Paper: trained on ParaNMT. Ours: on what `parley train paraphraser` was given.
  * # Released: whatever the network says. Ours: under rule "paper" the likeliest of its beam that is another sentence and keeps
    what the utterance says, if one does: words stay in their order, openers may go, words and phrases may become others that
    say the same (`engine/perturb/lexicon/phrasings.py`), and where a corpus is at hand its trigrams judge the sentence. A
    network that has seen few pairs leaves out what matters in most sentences, or adds marks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.lexicon.phrasings import Synonyms, phrasings, synonyms
from parley.engine.perturb.lexicon.tagger import BEGIN, END
from parley.engine.perturb.strategy import Expectation, PerturbSettings
from parley.envs.core.errors import ConfigError
from parley.envs.core.storage.copies import fetched_model
from parley.envs.corpora.pairs.turns import Turns, Utterance

if TYPE_CHECKING:
    from parley.policies.paraphraser.model import PointerGenerator

_OPENERS = frozenset(["well", "ok", "okay", "so", "oh", "hmm", "hi", "hey", ","])
"""Words that an utterance may lose at its beginning."""
_FILLERS = frozenset(["really", "please", "!"])
"""Words that it may lose anywhere."""
_AROUND = 2
"""Words on each side that phrases may have in common."""


class GenerativeParaphrase:
    """Utterances by paraphrases of a network.

    Args:
        model: in evaluation mode.
        resources: which words may enter, and what judges paraphrases.
        settings: the rule, and how much less fluent a paraphrase may be.
    """

    name = "generative-paraphrase"
    expectation = Expectation.SHOULD_NOT_CHANGE

    def __init__(self, model: PointerGenerator, resources: Resources, settings: PerturbSettings) -> None:
        self._model, self._resources = model, resources
        self._paraphrases: dict[Utterance, Utterance] = {}
        self._meaning = None if settings.rule == "released" else _Meaning(resources, settings)

    def perturb(self, contexts: Sequence[Turns], seeds: Sequence[int]) -> list[Turns]:
        """Perturb contexts; nothing is drawn."""
        self._paraphrase(words for turns in contexts for turn in turns for words in turn)
        return [tuple(tuple(self._paraphrases[words] for words in turn) for turn in turns) for turns in contexts]

    def _paraphrase(self, utterances: Iterable[Utterance]) -> None:
        from parley.policies.paraphraser.model import paraphrases
        from parley.policies.paraphraser.settings import BeamConfig

        new = [words for words in dict.fromkeys(utterances) if words not in self._paraphrases]
        for words, beam in zip(new, paraphrases(self._model, new, BeamConfig()), strict=True):
            candidates = (
                beam[:1]
                if self._meaning is None
                else [paraphrase for paraphrase in beam if self._meaning.is_kept(words, paraphrase)]
            )
            self._paraphrases[words] = next(
                (paraphrase for paraphrase in candidates if self._resources.may_enter(_new_words(paraphrase, words))), words
            )


class _Meaning:
    """A check that a paraphrase keeps the meaning of an utterance."""

    def __init__(self, resources: Resources, settings: PerturbSettings) -> None:
        self._resources, self._most = resources, settings.perplexity_ratio
        judged = resources.language is not None
        listed = synonyms(help_channel=resources.is_help_channel)
        self._synonyms = Synonyms({}, resources.lexicon, resources.is_usual, listed, is_judged=judged)
        self._phrasings = phrasings(help_channel=resources.is_help_channel)

    def is_kept(self, words: Utterance, paraphrase: Utterance) -> bool:
        if words == paraphrase:
            return False
        tags = self._resources.lexicon.tag(words)
        matcher = SequenceMatcher(None, words, paraphrase, autojunk=False)
        for kind, start, end, other, other_end in matcher.get_opcodes():
            if kind != "equal" and not self._is_phrasing(words, start, end, paraphrase, other, other_end):
                leavable = _FILLERS if start else _FILLERS | _OPENERS
                kept = [position for position in range(start, end) if words[position] not in leavable]
                forms = [self._synonyms.of(words[position], tags[position]) for position in kept]
                new = paraphrase[other:other_end]
                if len(new) != len(kept) or not all((word,) in of_word for word, of_word in zip(new, forms, strict=True)):
                    return False
        language = self._resources.language
        windows = [[(BEGIN, BEGIN, *sentence, END)] for sentence in (paraphrase, words)]
        return language is None or float(language.ratios(*windows)[0]) <= self._most

    def _is_phrasing(self, words: Utterance, start: int, end: int, paraphrase: Utterance, other: int, other_end: int) -> bool:
        """Return whether the difference, with some words around it, is a listed pair of phrases."""
        wider = ((left, right) for left in range(min(_AROUND, start, other) + 1) for right in range(_AROUND + 1))
        return any(
            paraphrase[other - left : other_end + right] in self._phrasings.get(words[start - left : end + right], ())
            for left, right in wider
        )


def build(settings: PerturbSettings, resources: Resources) -> GenerativeParaphrase:
    """Build the strategy with the network that the settings name.

    Raises:
        ConfigError: they name none.
        CheckpointError: there is none, or it is damaged.
    """
    if settings.paraphraser is None:
        raise ConfigError(
            "generative-paraphrase needs a paraphraser",
            where="paraphraser",
            got=None,
            fix="parley train paraphraser, then --set perturb.paraphraser=runs/paraphraser",
        )
    from parley.policies.paraphraser.model import load_pointer_generator

    model = load_pointer_generator(fetched_model(settings.paraphraser)).to(resources.device)
    return GenerativeParaphrase(model, resources, settings)


def _new_words(paraphrase: Utterance, words: Utterance) -> list[str]:
    """Return the words of a paraphrase that the utterance lacks; its own words may always stay."""
    had = set(words)
    return [word for word in paraphrase if word not in had]
