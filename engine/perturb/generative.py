"""Generative paraphrase: an utterance by what a paraphrasing network says in its place.

Source: Niu & Bansal 2018 (arXiv 1809.02079), section 3.1: a pointer-generator network (See et al. 2017), trained on pairs of
paraphrases. Their settings of decoding are not stated; ours are `BeamConfig`'s.

Utterances of all contexts are decoded together, each once. One stays as it was where the network's likeliest paraphrase is
the utterance itself or has a word that may not enter, or where there is none.

Departures:
  * # Paper: trained on ParaNMT. Ours: on what `parley train paraphraser` was given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from engine.perturb.resources import Resources
from engine.perturb.settings import PerturbSettings
from engine.perturb.strategy import Expectation
from envs.core.errors import ConfigError
from envs.pairs.turns import Turns, Utterance
from envs.storage.copies import fetched_model

if TYPE_CHECKING:
    from policies.pointer_generator.model import PointerGenerator


class GenerativeParaphrase:
    """Utterances by paraphrases of a network.

    Args:
        model: in evaluation mode.
        resources: which words may enter.
    """

    name = "generative-paraphrase"
    expectation = Expectation.SHOULD_NOT_CHANGE

    def __init__(self, model: PointerGenerator, resources: Resources) -> None:
        self._model, self._resources = model, resources
        self._known: dict[Utterance, Utterance] = {}

    def perturb(self, contexts: Sequence[Turns], seeds: Sequence[int]) -> list[Turns]:
        """The perturbed contexts, see `Strategy`; nothing is drawn."""
        self._paraphrase(words for turns in contexts for turn in turns for words in turn)
        return [tuple(tuple(self._known[words] for words in turn) for turn in turns) for turns in contexts]

    def _paraphrase(self, utterances: Iterable[Utterance]) -> None:
        from policies.pointer_generator.decoding import paraphrases
        from policies.pointer_generator.settings import BeamConfig

        new = [words for words in dict.fromkeys(utterances) if words not in self._known]
        for words, said in zip(new, paraphrases(self._model, new, BeamConfig()), strict=True):
            self._known[words] = said[0] if said and self._resources.may_enter(_entering(said[0], words)) else words


def build(settings: PerturbSettings, resources: Resources) -> GenerativeParaphrase:
    """The strategy with the network that the settings name.

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
    from policies.pointer_generator.checkpoints import load_pointer_generator

    return GenerativeParaphrase(load_pointer_generator(fetched_model(settings.paraphraser)).to(resources.device), resources)


def _entering(said: Utterance, words: Utterance) -> list[str]:
    """Words of a paraphrase that the utterance did not have; those that it had may stay where no model knows them."""
    had = set(words)
    return [word for word in said if word not in had]
