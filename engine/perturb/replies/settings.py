"""Settings of the rules on candidate replies. Torch-free and NLTK-free, so that help starts fast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

from parley.envs.core.config import Configuration, PositiveInt, PositiveShare

Sense = Literal["shared", "first", "any"]
Form = Literal["inflected", "base"]


@dataclass(frozen=True, kw_only=True)
class SynonymChoice:
    """The choice of synonyms in RSW."""

    sense: Sense
    """Synonyms whose main sense is the word's too ("shared"), of its first sense, or of any."""
    synonym: Literal["first", "random"]
    """Of several synonyms, the first, or one at random."""
    form: Form
    """A synonym in the form of the word that it replaces ("inflected"), or as WordNet has it."""
    same_class: bool
    """Nouns, verbs, adjectives and adverbs alone, by their own kind, no verb like "go" or "please"; or any word."""
    tagged_alone: bool
    """Only synonyms that the tagger takes for the word's part of speech when it reads them alone."""
    usual: bool
    """Only synonyms that occur a few times in the corpus, if there is one."""
    known_names: bool
    """Names that WordNet knows, programs and commands stay too, not tagged names alone."""
    articles: bool
    """Only synonyms that fit the "a" or "an" before them."""


CAREFUL = SynonymChoice(
    sense="shared",
    synonym="first",
    form="inflected",
    same_class=True,
    tagged_alone=True,
    usual=True,
    known_names=True,
    articles=True,
)
"""Synonyms that keep a reply right."""
PLAIN = SynonymChoice(
    sense="any",
    synonym="random",
    form="base",
    same_class=False,
    tagged_alone=False,
    usual=False,
    known_names=False,
    articles=False,
)
"""The paper's words, read as they stand."""


@dataclass(frozen=True, kw_only=True)
class ReplySettings(Configuration):
    """Settings of attacks on replies where Li et al. 2019 are silent."""

    topic: ClassVar[str] = "evaluate ranking"
    added: ClassVar[Mapping[str, Any]] = {"context_share": 1 / 9}
    constants: ClassVar[Mapping[str, Any]] = {
        "frequency": "all",
        "important": "content",
        "same_tag": "tag",
        "unmatched": "next",
        "occurrence": "first",
        "synonym_rate": 1.0,
        "modals": True,
        "copied": "random",
        **dict.fromkeys(field.name for field in fields(SynonymChoice)),
    }

    num_important: PositiveInt = 3
    """IIW: context words that enter a wrong reply (paper)."""
    context_share: PositiveShare = 1 / 9
    """IIW in training: words that are replaced, as a share of the words of the context (paper). A reply has fewer places of the
    same tag: 4.0 of the 10.3 words that the paper's share asks for on #ubuntu."""
    fitted_on: Literal["training", "evaluated"] = "training"
    """IIW: contexts whose words are counted; the paper does not say which."""
    rule: Literal["paper", "careful"] = "paper"
    """RSW: any lemma of WordNet for each word but stop words and names (paper), or only what keeps the reply right."""
    shuffled: Literal["all", "words"] = "all"
    """SOW: marks move too, or keep their places."""
    rounding: Literal["down", "up"] = "down"
    """RLW: half of an odd number."""
    repeated: Literal["behind", "anywhere"] = "behind"
    """RLW: a repeated word stands behind itself, or anywhere in the reply."""
    generic: str = ""
    """NGR: replies that are drawn from, separated by |; "several" for those of the project; the paper's one when empty."""

    @property
    def synonym_choice(self) -> SynonymChoice:
        """Return the choice of the rule."""
        return PLAIN if self.rule == "paper" else CAREFUL
