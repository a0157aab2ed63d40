"""The shared parts of all workers of trigger searches: shards side by side, turn by turn, and the judgement of typed triggers.

`SearchTurns` searches for the items of several shards, whatever the items are. `Verifier` types a trigger: the model reads the
text of an input, and its reply is judged.
"""

from __future__ import annotations

import logging
import os
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from parley.engine.core.ray.record import Rows
from parley.engine.core.ray.worker import Shard, TurnResult, TurnWorker, UnderWay
from parley.engine.core.runs.parts import answer_columns, count_no_replies, error_row
from parley.engine.triggers.success import Success, SuccessSettings
from parley.engine.triggers.targets import target_seed
from parley.engine.triggers.verbs.config import TriggerConfig
from parley.engine.triggers.verbs.models import chat_judge, classifier
from parley.envs.core.errors import ConfigError, ModelError, RefusedModelError
from parley.envs.core.seeds import derive_seed
from parley.policies.chat.completions import opens_thinking, part_thinking
from parley.policies.chat.model import Answer
from parley.policies.chat.settings import ChatModelSettings
from parley.policies.chat.verdicts import ReplyRating, ReplyVerdict

if TYPE_CHECKING:
    from parley.engine.triggers.scorers.scorer import TextVictim
    from parley.engine.triggers.searches.batch import Outcome, Task
    from parley.engine.triggers.searches.side_by_side import BatchedSearch
    from parley.policies.hugging_face.victims import HuggingFaceVictim


logger = logging.getLogger(__name__)
# Of a search's many numbers of rows oneDNN keeps up to 1,024 kernels: 90 MiB of a worker after a minute, and no speed.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")

SAVED_EVERY_S = 30.0
"""Seconds after which the state of a shard is saved again, even if no restart of a single item has ended."""


class SearchItem(Protocol):
    """An item of a search."""

    @property
    def key(self) -> str:
        """Return the name, unique in the run."""


SearchItemT = TypeVar("SearchItemT", bound=SearchItem)


@dataclass(eq=False)
class _RunningShard(Generic[SearchItemT]):
    """A shard under way.

    Args:
        shard: what is searched for.
        outcomes: those of its items' restarts, by item.
        has_news: True if a restart has ended since the state of the shard was last saved.
        saved_at: the time of that save, by `time.monotonic`.
    """

    shard: Shard[SearchItemT]
    outcomes: dict[str, list[Outcome]]
    has_news: bool = False
    saved_at: float = field(default_factory=time.monotonic)


class SearchTurns(TurnWorker[SearchItemT, Rows], ABC, Generic[SearchItemT]):
    """Searches for the items of several shards at a time; a subclass calls `drop` once all is loaded.

    Attributes:
        config: the search.
    """

    config: TriggerConfig

    @abstractmethod
    def searches(self) -> BatchedSearch:
        """Return the batch of searches; called again whenever all shards are dropped."""

    @abstractmethod
    def tasks(self, item: SearchItemT) -> list[Task]:
        """Return the searches for an item, its restarts in rising order; none if nothing is searched for."""

    def search_effort(self, item: SearchItemT) -> float:
        """Return the work of the searches for an item, in the units of `Work.effort`; the rest of its work is its row."""
        return 1.0

    @abstractmethod
    def row(self, item: SearchItemT, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        """Return the row of an item whose searches have ended."""

    def drop(self) -> None:
        self._side_by_side = self.searches()
        self._running: dict[str, _RunningShard[SearchItemT]] = {}
        self._shard_of: dict[str, _RunningShard[SearchItemT]] = {}

    def turn(self, joining: Sequence[Shard[SearchItemT]], seconds: float) -> TurnResult[Rows]:
        until = time.monotonic() + seconds
        for shard in joining:
            running = self._running[shard.name] = self._add(shard)
            self._shard_of |= dict.fromkeys(running.outcomes, running)
        ended: dict[str, Rows] = {}
        while self._running:
            for outcome in self._side_by_side.step():
                running = self._shard_of[outcome.task.key]
                running.outcomes[outcome.task.key].append(outcome)
                running.has_news = True
            under_way = self._side_by_side.keys
            for name in [name for name, shard in self._running.items() if shard.outcomes.keys().isdisjoint(under_way)]:
                finished = self._running.pop(name)
                self._shard_of = {key: shard for key, shard in self._shard_of.items() if shard is not finished}
                ended[name] = [self._row(item, finished.outcomes[item.key]) for item in finished.shard.items]
            if time.monotonic() >= until or (ended and self._side_by_side.num_free):
                break
        return TurnResult(ended, {name: self._progress(shard) for name, shard in self._running.items()})

    def _row(self, item: SearchItemT, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        """Return its row; an error row if the judge of replies fails, which costs no other item."""
        try:
            return self.row(item, outcomes)
        except RefusedModelError:
            raise
        except (ConfigError, ModelError) as error:
            logger.warning("the input for %s is not judged: %s", item.key, error.what)
            return error_row(item.key, target_seed(self.config.seed, item.key), str(error))

    def _add(self, shard: Shard[SearchItemT]) -> _RunningShard[SearchItemT]:
        """Begin with a shard, or resume it from its saved state."""
        from parley.engine.triggers.searches.batch import outcome_from_json
        from parley.engine.triggers.searches.side_by_side import StartedSearch

        for item in shard.items:
            if tasks := self.tasks(item):
                state = (shard.kept or {}).get(item.key, {"outcomes": [], "saved": {}})
                outcomes = [outcome_from_json(entry, tasks.__getitem__) for entry in state["outcomes"]]
                saved = {int(number): entry for number, entry in state["saved"].items()}
                self._side_by_side.add(tasks, StartedSearch(outcomes, saved))
        return _RunningShard(shard, {item.key: [] for item in shard.items})

    def _progress(self, running: _RunningShard[SearchItemT]) -> UnderWay:
        """Return the progress of a shard, and now and then its saved state."""
        under_way = {key for key in running.outcomes if key in self._side_by_side.keys}
        share = sum(
            self.search_effort(item) * (self._side_by_side.share(item.key) if item.key in under_way else 1.0)
            for item in running.shard.items
        )
        ended = (
            outcome.candidates for key, outcomes in running.outcomes.items() if key not in under_way for outcome in outcomes
        )
        tried = Counter(candidates=sum(map(self._side_by_side.tried_for, under_way)) + sum(ended))
        # The saved state of many items is large.
        if not (running.has_news and len(running.outcomes) == 1) and time.monotonic() - running.saved_at < SAVED_EVERY_S:
            return UnderWay(share, tried)
        running.has_news, running.saved_at = False, time.monotonic()
        return UnderWay(share, tried, {key: self._saved_state(running, key) for key in running.outcomes})

    def _saved_state(self, running: _RunningShard[SearchItemT], key: str) -> dict[str, Any]:
        """Return the saved state of an item: the restarts that have ended, and those under way."""
        from parley.engine.triggers.searches.batch import outcome_to_json
        from parley.engine.triggers.searches.side_by_side import StartedSearch

        is_over = key not in self._side_by_side.keys
        begun = StartedSearch(running.outcomes[key]) if is_over else self._side_by_side.begun(key)
        saved = {str(number): state for number, state in begun.saved.items()}
        return {"outcomes": list(map(outcome_to_json, begun.outcomes)), "saved": saved}


UNVERIFIED: dict[str, Any] = dict.fromkeys(
    (
        *("typed", "retokenised", "reply", "kind", "reasoning", "withheld", "verified"),
        *("samples", "sampled", "drawn_no_replies", "judge_answers", "judge_unparsable", "judge_no_reply"),
    )
)
"""The columns of a row whose input is not typed."""


class Verifier:
    """A judge that types inputs to the model.

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
        """Return the columns of a row.

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
        """Return the columns of the model's reply.

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
    """An answer of a model with its verdict."""

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
    """Return the number of a judge's answers, and of those without a verdict."""
    verdicts = list(judged)
    return {
        "judge_answers": sum(verdict.answers for verdict in verdicts),
        "judge_unparsable": sum(not verdict.parsed and verdict.kind.is_reply for verdict in verdicts),
        "judge_no_reply": sum(verdict.answers for verdict in verdicts if not verdict.kind.is_reply),
    }


def verifier(config: TriggerConfig, victim: TextVictim, answers: str = "") -> Verifier | None:
    """Return the verifier of a search's triggers; None for models that read words, not text.

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
    """Return the judge of replies, by whether a reply ends behind its target.

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
