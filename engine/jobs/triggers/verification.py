"""Whether triggers work as they are typed: the model reads the text of an input, and what it replies is judged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from engine.jobs.triggers.config import TriggerConfig
from engine.jobs.triggers.models import classifier
from engine.triggers.success import Success
from envs.core.seeds import derive_seed

if TYPE_CHECKING:
    from engine.triggers.scorer import TextVictim
    from policies.hugging_face_victims import HuggingFaceVictim

UNVERIFIED: dict[str, Any] = dict.fromkeys(("typed", "retokenised", "reply", "verified", "samples", "sampled"))
"""The columns of a row whose input nobody types."""


class Verifier:
    """Types inputs and judges replies.

    Args:
        success: judges.
        samples: replies that are drawn beside the greedy one.
        temperature: of the draws.
    """

    def __init__(self, success: Success, samples: int, temperature: float) -> None:
        self._success, self._samples, self._temperature = success, samples, temperature

    def verify(self, victim: HuggingFaceVictim, words: Sequence[int], target: str, seed: int) -> dict[str, Any]:
        """The columns of a row.

        Args:
            victim: the model, with the prompt of the target.
            words: of an input.
            target: as it was searched for.
            seed: of the draws.
        """
        return {
            "typed": victim.slot_texts(words),
            "retokenised": victim.retokenises(words),
            **self.asked(victim, victim.typed(words), target, seed),
        }

    def asked(self, victim: HuggingFaceVictim, read: Sequence[int], target: str, seed: int) -> dict[str, Any]:
        """The columns of what the model replies.

        Args:
            victim: the model.
            read: the tokens of a prompt, or a source.
            target: what it is to say.
            seed: of the draws.
        """
        num_tokens = self._success.num_tokens(len(victim.target(target)))

        def said(temperature: float = 0.0, seed: int = 0) -> tuple[str, bool]:
            ids, ended = victim.say(read, num_tokens, temperature=temperature, seed=seed)
            reply = victim.reply_text(ids)
            return reply, self._success.judge(reply, ended, target)

        reply, verified = said()
        draws = (said(self._temperature, derive_seed(seed, "sample", number)) for number in range(self._samples))
        return {
            "reply": reply,
            "verified": verified,
            "samples": self._samples,
            "sampled": sum(success for _, success in draws),
        }


def verifier(config: TriggerConfig, victim: TextVictim) -> Verifier | None:
    """What verifies the triggers of a search; None for models whose words are what is typed.

    Raises:
        ConfigError: of a classifier, its package is not installed, or it has no such label.
        CheckpointError: there is no classifier.
        DataError: the file of refusals cannot be read.
    """
    if not config.is_hugging_face:
        return None
    judge = classifier(config, config.device)
    success = Success(config.success, end=config.hugging_face.end, scores=judge.scores if judge else None)
    return Verifier(success, config.success.samples, config.success.temperature)
