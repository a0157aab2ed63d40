"""Settings of the rules on candidate replies. Torch-free and NLTK-free, so that help starts fast."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

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

    num_important: PositiveInt = 3
    """IIW: context words that enter a wrong reply (paper)."""
    frequency: Literal["all", "context"] = "all"
    """IIW: term frequency counted over all contexts (paper, as printed), or in the context itself."""
    fitted_on: Literal["training", "evaluated"] = "training"
    """IIW: contexts whose words are counted; the paper does not say which."""
    important: Literal["content", "all"] = "content"
    """IIW: which words enter and leave: those that are neither marks nor stop words, or all."""
    same_tag: Literal["tag", "class"] = "tag"
    """IIW: words change places that share the tag (singular noun), or its class (noun)."""
    unmatched: Literal["next", "skip"] = "next"
    """IIW: a context word that finds no word of its tag makes room for the next by weight, or for none."""
    occurrence: Literal["first", "random"] = "first"
    """IIW: of several words of one tag, which is replaced."""
    context_share: PositiveShare = 1 / 9
    """IIW in training: words replaced, as a share of the words of the context (paper)."""
    rule: Literal["paper", "careful"] = "paper"
    """RSW: any lemma of WordNet for each word but stop words and names (paper), or only what keeps the reply right."""
    synonym_rate: PositiveShare = 1.0
    """RSW: share of the words with a synonym that are replaced."""
    shuffled: Literal["all", "words"] = "all"
    """SOW: marks move too, or keep their places."""
    rounding: Literal["down", "up"] = "down"
    """RLW: half of an odd number."""
    repeated: Literal["behind", "anywhere"] = "behind"
    """RLW: a repeated word stands behind itself, or anywhere in the reply."""
    modals: bool = True
    """RNPV: modals ("can", "will") are verbs."""
    generic: str = ""
    """NGR: replies that are drawn from, separated by |; "several" for those of the project; the paper's one when empty."""
    copied: Literal["random", "last"] = "random"
    """COPY_k: the turns that become replies are drawn, or are the last ones."""

    @property
    def synonym_choice(self) -> SynonymChoice:
        """Return the choice of the rule."""
        return PLAIN if self.rule == "paper" else CAREFUL


SYNONYM_CONSTANTS = {f"replies.{field.name}": None for field in fields(SynonymChoice)}
"""Settings of earlier versions, which changed single parts of the rule of RSW. Neither recipe nor result ever did: the rule is
the paper's, or the one that keeps a reply right."""
