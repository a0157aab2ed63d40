"""Whether triggers work as they are typed: the model reads the text of an input, and what it replies is judged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from parley.engine.core.runs.answers import answer_columns, count_no_replies
from parley.engine.triggers.success import Success, SuccessSettings
from parley.engine.triggers.verbs.config import TriggerConfig
from parley.engine.triggers.verbs.models import chat_judge, classifier
from parley.envs.core.seeds import derive_seed
from parley.policies.chat.model import Answer
from parley.policies.chat.settings import ChatModelSettings
from parley.policies.chat.thinking import opens_thinking, part_thinking
from parley.policies.chat.verdicts import ReplyRating, ReplyVerdict

if TYPE_CHECKING:
    from parley.engine.triggers.scorers.scorer import TextVictim
    from parley.policies.hugging_face.victims import HuggingFaceVictim

UNVERIFIED: dict[str, Any] = dict.fromkeys(
    (
        *("typed", "retokenised", "reply", "kind", "reasoning", "withheld", "verified"),
        *("samples", "sampled", "drawn_no_replies", "judge_answers", "judge_unparsable", "judge_no_reply"),
    )
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
        from parley.policies.hugging_face.tokens import decode_marked

        num_tokens = self._success.num_tokens(len(victim.target(target)))
        begun = opens_thinking(getattr(victim, "template", ""))

        def judged(temperature: float = 0.0, seed: int = 0) -> JudgedAnswer:
            ids, ended = victim.say(read, num_tokens, temperature=temperature, seed=seed)
            text = decode_marked(victim.tokenizer, ids, clean_up_tokenization_spaces=False)
            parted = part_thinking(text, begun=begun, ended=ended)
            finish_reason = "stop" if ended and parted.closed else "length"
            answer = Answer(parted.reply, finish_reason, len(read), len(ids), reasoning=parted.reasoning)
            return JudgedAnswer(answer, self._success.verdict(answer, target, prompt))

        draws = [judged(self._temperature, derive_seed(seed, "sample", number)) for number in range(self._samples)]
        return judged_columns(judged(), draws)


class JudgedAnswer(NamedTuple):
    """An answer of a model and the verdict on it."""

    answer: Answer
    verdict: ReplyVerdict


def judged_columns(greedy: JudgedAnswer, draws: Sequence[JudgedAnswer]) -> dict[str, Any]:
    """Return the columns of an answer that was judged, and of those that were drawn beside it."""
    judged = [greedy.verdict, *(draw.verdict for draw in draws)]
    return {
        "reply": greedy.answer.text,
        **answer_columns(greedy.answer),
        "verified": greedy.verdict.success,
        "samples": len(draws),
        "sampled": sum(draw.verdict.success for draw in draws),
        "drawn_no_replies": count_no_replies({"drawn": [draw.answer for draw in draws]}),
        **judge_columns(judged),
    }


def judge_columns(judged: Iterable[ReplyVerdict | ReplyRating]) -> dict[str, int]:
    """Return what a chat model that judges was asked for, and what it did not say."""
    verdicts = list(judged)
    return {
        "judge_answers": sum(verdict.answers for verdict in verdicts),
        "judge_unparsable": sum(not verdict.parsed and verdict.kind.is_reply for verdict in verdicts),
        "judge_no_reply": sum(verdict.answers for verdict in verdicts if not verdict.kind.is_reply),
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
