"""A chat model as a judge: it says whether a person or a machine wrote a reply, in one word. Also the makers of judges by name.

An answer that is neither word is asked for once more; if the second is no word either, it counts as 0, which says nothing,
and is counted in a warning. So is an answer that is no reply (cut in thinking, filtered, ...), by its kind. Answers are not
fitted: as for a classifier, the side of the threshold with the fewest errors on the pairs of a fit is taken. So a model that
is wrong throughout differs from one that knows nothing.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from parley.envs.core.errors import ConfigError
from parley.envs.core.storage.copies import fetched_model
from parley.envs.core.storage.uris import HUGGING_FACE
from parley.envs.corpora.pairs.compiled import RepliedPair
from parley.envs.corpora.pairs.turns import detokenise
from parley.policies.chat.addresses import is_chat_address
from parley.policies.chat.answers import answers_chats, made_chat_model
from parley.policies.chat.loading import load_chat_model
from parley.policies.chat.model import AnswerKind, Chat, ChatModel, Message
from parley.policies.chat.questions import StrictQuestion, word_of
from parley.policies.chat.settings import DEFAULT
from parley.policies.generation.judges.judge import Judge, JudgeSettings, Numbers, Remembered, ThresholdJudge, judges

logger = logging.getLogger(__name__)


def judge_maker(name: str, settings: JudgeSettings) -> Callable[[], Judge]:
    """Return a function that makes a new judge to be fitted at each call.

    Args:
        name: a registered one, or of a form above.
        settings: settings of the judge; one of your own is called without arguments.

    Raises:
        ConfigError: no judge is called so, or a file of your own makes none.
        CheckpointError: a folder holds no classifier, or a model is not there.
    """
    if is_chat_address(name):
        return _of_address(name, settings)
    maker: Any = judges.get(name)
    if ".py:" not in name:
        return cast("Callable[[], Judge]", maker(settings))
    judge = made_chat_model(name, maker)
    if not isinstance(judge, Judge) and answers_chats(judge):
        return prompted_judge(name, settings)
    if not isinstance(judge, Judge) or inspect.isclass(judge):
        fix = "name a class with the methods fit(pairs, labels, seed) and score(pairs), without arguments; or a chat model"
        raise ConfigError("this makes no judge", where=name, got=repr(judge), fix=fix)
    return cast("Callable[[], Judge]", maker)


def _of_address(name: str, settings: JudgeSettings) -> Callable[[], Judge]:
    from parley.policies.generation.judges.judge import classifier
    from parley.policies.ranking.encoders import is_causal

    folder = name.removeprefix(HUGGING_FACE)
    if name.startswith(HUGGING_FACE) and not is_causal(fetched_model(folder)):
        return classifier(folder, settings.device)
    return prompted_judge(name, settings)


QUESTION = """Below is a conversation and a reply to it. Either a person or a machine wrote the reply.

Conversation:
{context}

Reply: {reply}

Who wrote the reply? Answer with one word, human or machine."""
REPAIR = "Answer with one word and nothing else: human or machine."
"""The second question, after an answer that is neither word."""
_ANSWERS = {"human": 1.0, "machine": -1.0}


class PromptedSides:
    """A chat model's answers about pairs: 1 for a person, -1 for a machine, 0 for neither.

    Args:
        chat_model: the model that answers.
        max_tokens: tokens of an answer at most.
    """

    def __init__(self, chat_model: ChatModel, max_tokens: int = DEFAULT.judge_tokens) -> None:
        self._name, self._question = chat_model.name, StrictQuestion(chat_model, side_of, REPAIR, max_tokens)
        self._has_warned = False
        self.lost: dict[RepliedPair, AnswerKind] = {}
        """Pairs of which the model gave no reply, with the kind of its answer."""

    def __call__(self, pairs: Sequence[RepliedPair]) -> np.ndarray:
        """Return the answer about each pair (N,)."""
        answers = self._question([[question_of(pair, start) for start in range(max(1, len(pair.context)))] for pair in pairs])
        self.lost |= {pair: answer.kind for pair, answer in zip(pairs, answers, strict=True) if answer.is_lost}
        if not self._has_warned and (note := self._question.note()):
            logger.warning("%s says neither human nor machine: %s; further ones are counted at the end", self._name, note)
            self._has_warned = True
        return np.array([answer.value or 0.0 for answer in answers])


def question_of(pair: RepliedPair, start: int = 0) -> Chat:
    """Return the question about a pair, behind the turns of its context from `start` on."""
    context = "\n".join(f"- {detokenise(turn)}" for turn in pair.context[start:])
    return (Message("user", QUESTION.format(context=context, reply=detokenise(pair.reply))),)


def side_of(text: str) -> float | None:
    """Return 1 for human, -1 for machine, None for any other answer, such as a sentence that holds either word."""
    word = word_of(text, _ANSWERS)
    return None if word is None else _ANSWERS[word]


class PromptedJudge(ThresholdJudge):
    """A threshold on a chat model's answers.

    Args:
        sides: its answers, with the pairs that it gives no reply to.
        numbers: the same, kept.
    """

    def __init__(self, sides: PromptedSides, numbers: Numbers) -> None:
        super().__init__(numbers)
        self._sides = sides

    def num_unparsable(self, pairs: Sequence[RepliedPair]) -> int:
        """Return the number of pairs whose answer is neither word."""
        return int((self._numbers(pairs) == 0).sum()) - self.no_replies(pairs).total()

    def no_replies(self, pairs: Sequence[RepliedPair]) -> Counter[str]:
        """Return the number of pairs without a reply, by the kind of the answer."""
        _ = self._numbers(pairs)
        return Counter(self._sides.lost[pair].column for pair in pairs if pair in self._sides.lost)


def prompted_judge(name: str, settings: JudgeSettings) -> Callable[[], Judge]:
    """Return a maker of judges that share a chat model and its earlier answers.

    Args:
        name: its address.
        settings: settings of loading or asking it, and of keeping its answers.

    Raises:
        ConfigError: no chat model is called so.
        CheckpointError: no model is there.
    """
    chat = dataclasses.replace(settings.chat, device=settings.device)
    model = load_chat_model(name, chat, answers=Path(settings.answers) if settings.answers else None)
    sides = PromptedSides(model, chat.judge_tokens)
    return partial(PromptedJudge, sides, Remembered(sides))
