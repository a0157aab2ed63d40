"""Whether triggers work as they are typed: the model reads the text of an input, and what it replies is judged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.jobs.triggers.config import TriggerConfig
from engine.jobs.triggers.models import chat_judge, classifier
from engine.triggers.success import Success, SuccessSettings
from envs.core.seeds import derive_seed
from policies.chat.settings import ChatModelSettings
from policies.chat.verdicts import ReplyVerdict

if TYPE_CHECKING:
    from engine.triggers.scorer import TextVictim
    from policies.hugging_face_victims import HuggingFaceVictim

UNVERIFIED: dict[str, Any] = dict.fromkeys(
    ("typed", "retokenised", "reply", "verified", "samples", "sampled", "judge_answers", "judge_unparsable")
)
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

    def verify(
        self, victim: HuggingFaceVictim, words: Sequence[int], target: str, prompt: str | None, seed: int
    ) -> dict[str, Any]:
        """The columns of a row.

        Args:
            victim: the model, with the prompt of the target.
            words: of an input.
            target: as it was searched for.
            prompt: the request that it came with.
            seed: of the draws.
        """
        return {
            "typed": victim.slot_texts(words),
            "retokenised": victim.retokenises(words),
            **self.asked(victim, victim.typed(words), target, prompt, seed),
        }

    def asked(
        self, victim: HuggingFaceVictim, read: Sequence[int], target: str, prompt: str | None, seed: int
    ) -> dict[str, Any]:
        """The columns of what the model replies.

        Args:
            victim: the model.
            read: the tokens of a prompt, or a source.
            target: what it is to say.
            prompt: the request that it came with.
            seed: of the draws.
        """
        num_tokens = self._success.num_tokens(len(victim.target(target)))

        def said(temperature: float = 0.0, seed: int = 0) -> tuple[str, ReplyVerdict]:
            ids, ended = victim.say(read, num_tokens, temperature=temperature, seed=seed)
            reply = victim.reply_text(ids)
            return reply, self._success.verdict(reply, ended, target, prompt)

        reply, verdict = said()
        draws = [said(self._temperature, derive_seed(seed, "sample", number))[1] for number in range(self._samples)]
        return {"reply": reply, **verdict_columns(verdict, draws)}


def verdict_columns(verdict: ReplyVerdict, draws: Sequence[ReplyVerdict]) -> dict[str, Any]:
    """The columns of what was judged: the greedy reply, and those that were drawn."""
    judged = [verdict, *draws]
    return {
        "verified": verdict.success,
        "samples": len(draws),
        "sampled": sum(each.success for each in draws),
        "judge_answers": sum(each.answers for each in judged),
        "judge_unparsable": sum(not each.parsed for each in judged),
    }


def verifier(config: TriggerConfig, victim: TextVictim, answers: str = "") -> Verifier | None:
    """What verifies the triggers of a search; None for models whose words are what is typed.

    Args:
        config: the search.
        victim: what is searched.
        answers: folder of the run in which answers of a chat model that judges are kept; empty keeps none.

    Raises:
        ConfigError: of a classifier or a judge, its package is not installed, or it is none.
        CheckpointError: there is no classifier, or no judge.
        DataError: the file of refusals cannot be read.
    """
    if not config.is_hugging_face:
        return None
    judges = judges_of_replies(config.success, config.chat.on(config.device), Path(answers) if answers else None)
    return Verifier(judges[config.hugging_face.end], config.success.samples, config.success.temperature)


def judges_of_replies(settings: SuccessSettings, chat: ChatModelSettings, answers: Path | None) -> dict[bool, Success]:
    """What judges replies, by whether one ends behind its target.

    Args:
        settings: by what.
        chat: how a chat model that judges is loaded or asked; a classifier is on its device.
        answers: folder of a run in which answers of a chat model that judges are kept; None keeps none.

    Raises:
        ConfigError: of a classifier or a judge, its package is not installed, or it is none.
        CheckpointError: there is no classifier, or no judge.
        DataError: a file of the settings cannot be read.
    """
    judge, verdicts = classifier(settings, chat.device), chat_judge(settings, chat, answers)
    scores = judge.scores if judge else None
    return {end: Success(settings, end=end, scores=scores, verdicts=verdicts) for end in (True, False)}
