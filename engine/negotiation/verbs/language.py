"""The language of agents that learn: the corpus that guards it, its perplexity, and when it counts as lost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parley.engine.core.stats.statistics import Estimate, count
from parley.engine.negotiation.attacks.settings import ReinforceConfig
from parley.engine.negotiation.verbs.agents import require_negotiator
from parley.envs.core.errors import ConfigError
from parley.envs.corpora.root import root_words
from parley.envs.negotiation.corpora.catalogue import find_negotiations
from parley.envs.negotiation.vocabulary import Vocabulary

PUBLISHED = "dealornodeal"
"""The corpus of the published agents, which presets take unless they are the demonstration's."""


class Language:
    """The perplexity of a learner's words, and how far it may go.

    Args:
        corpus: by whose dialogues it is measured.
        data_root: where corpora lie.
        base: the learner's model as it begins.
        rule: by which it learns.
        limit: as a multiple of the perplexity at the start; 0 for none.

    Raises:
        ConfigError: the corpus is of another game than the learner, or has other words where they guard its language.
        DataError: the corpus is missing or broken.
    """

    def __init__(self, corpus: str, data_root: Path | None, base: Any, rule: ReinforceConfig, limit: float) -> None:
        from parley.envs.negotiation.corpora.compiled import load_corpus
        from parley.policies.negotiator.evaluation import evaluate

        _require_same_game(corpus, base.vocabulary)
        found = load_corpus(corpus, data_root)
        fits = found.vocabulary.digest == base.vocabulary.digest
        if rule.supervised_weight > 0 or limit > 0:
            require_words(corpus, data_root, base.vocabulary, "or set reinforce.supervised_weight=0 and perplexity_limit=0")
        self._dialogues: Any = found.splits["val"] if fits else None
        self._model, self._evaluate, self._rule = base, evaluate, rule
        self.limit = limit * self._perplexity() if limit else math.inf

    def _perplexity(self) -> float:
        try:
            return float(self._evaluate(self._model, self._dialogues).perplexity_reference)
        except OverflowError:
            return math.inf

    def measured(self, weights: Mapping[str, Any]) -> dict[str, Estimate]:
        """The perplexity under those weights; nothing where the corpus has other words."""
        if self._dialogues is None:
            return {}
        self._model.load_state_dict(dict(weights))
        return {"perplexity": count(self._perplexity(), len(self._dialogues))}

    def require_known(self, measured: Mapping[str, Estimate]) -> None:
        """Checks that the perplexity after the last update is one of a language.

        Raises:
            DivergenceError: it is not a number, or no model that still learns has it.
        """
        from parley.engine.core.baseline import DivergenceError
        from parley.policies.core.training import DIVERGED

        for estimate in measured.values():
            if not estimate.value < math.exp(DIVERGED):
                raise DivergenceError(
                    "the training has diverged",
                    where=f"after {self._rule.updates} updates",
                    got=f"validation perplexity {estimate.value:g}",
                    fix=f"train again with a smaller reinforce.learning_rate (now {self._rule.learning_rate:g})",
                )


def _require_same_game(corpus: str, words: Vocabulary) -> None:
    """Checks that a corpus, whose files may be absent, is of the game that agents play.

    Raises:
        ConfigError: it is of another, or there is none of that name.
    """
    game = find_negotiations(corpus).game
    if game != words.game:
        raise ConfigError(
            "the corpus is of another game than the agents",
            where=f"corpus {corpus}",
            got=f"{game!r}, and the agents play {words.game!r}",
            fix=f"name a corpus of {words.game!r} with --corpus, such as the one that the agents were trained on",
        )


def require_words(corpus: str, data_root: Path | None, words: Vocabulary, otherwise: str = "") -> None:
    """Checks that a corpus can guard the language of agents.

    Args:
        corpus: its name.
        data_root: where corpora lie; the usual places when not given.
        words: the agents'.
        otherwise: what else a user can do where it cannot.

    Raises:
        ConfigError: it has other words than they.
        DataError: the corpus is missing or broken.
    """
    from parley.envs.negotiation.corpora.compiled import load_corpus

    _require_same_game(corpus, words)
    found = load_corpus(corpus, data_root).vocabulary
    if found.digest != words.digest:
        raise ConfigError(
            "the corpus of the supervised guard has another vocabulary than the agents",
            where=f"corpus {corpus}",
            got=f"{len(found)} words, digest {found.digest}; the agents {len(words)}, digest {words.digest}",
            fix=", ".join(filter(None, ("name the corpus that the agents were trained on with --corpus", otherwise))),
        )


def corpus_words(corpus: str, data_root: Path | None) -> list[str]:
    """The words of a command that name a corpus, where it is not the one that presets take, and say where corpora lie."""
    return [*([] if corpus == PUBLISHED else ["--corpus", corpus]), *root_words(data_root)]


def validation_perplexity(spec: str, corpus: str, data_root: Path | None) -> Estimate:
    """Perplexity of an agent on a corpus' validation dialogues, by the released formula.

    Raises:
        CheckpointError: there is no checkpoint, or it is damaged.
        DataError: the corpus is missing or broken.
    """
    from parley.envs.negotiation.corpora.compiled import load_corpus
    from parley.policies.negotiator.checkpoints import load_model
    from parley.policies.negotiator.evaluation import evaluate

    model = load_model(require_negotiator(spec, "the agent"))
    dialogues = load_corpus(corpus, data_root).splits["val"]
    return count(evaluate(model, dialogues).perplexity_reference, len(dialogues))
