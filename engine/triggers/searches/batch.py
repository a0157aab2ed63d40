"""The parts of a batch of searches: tasks, outcomes, states and their JSON, and the scorers of texts and of universal triggers.

A search starts from a task. A method then advances it one visit at a time, in lock-step with others so that a scorer can batch
them (`side_by_side.py`).

Saved searches: outcomes, and searches under way, in JSON types. The words of an input are enough: measured again on the same
processor it is the same to the last bit, in any company. Draws are functions of a search's seed and of its number of visits.
Tensors in float32 are kept bit by bit.

`ByTextScorer`: losses of a model that has other tokens than the searched ones. Each input is read as its text, and there is no
gradient. The common beginning of a list of texts is read once; texts of equal length are read together, and the model's head
computes the reply's positions alone.

`UniversalScorer`: one input behind many prompts, each with a target of its own (Wallace et al. 2019; Zou et al. 2023).

    L(x) = 1/K sum_k L_k(x)         mean over pairs; L_k is the objective behind prompt k for target k
    slope = 1/K sum_k slope_k       so every method that goes by words searches for one input of all pairs

A universal victim is a victim to a method, and its scorer asks the scorer of each pair. Of a list of swaps the pairs are read
one after the other, those of the highest loss first. No loss is below 0, so a candidate whose pairs read so far cost more than
the best one does ends there, which is exact. If there is no loss to beat, as in gcg, the few that are cheapest behind the
first prompt are read behind all of them first.

Pairs may be of several models, as in Zou et al. (section 2.3: an input for several models at once): a prompt of each is a pair
of its own. Models may have more embeddings than tokens; the words are those that all of them have. A model with other tokens
than the first gets inputs as texts: its losses choose among candidates, which the slopes of the other models propose. Each may
be on a device of its own. A search is on the first one's device: inputs go from there to each model, and losses come back.

A hit is an input that is one behind every prompt (o-greedy, o-sample-min); of o-sample-avg it is the mean over all words.
# Zou et al. add prompts one by one as those before are hit. Ours: all from the beginning.

    K pairs, B searches, G candidates, R inputs, N searched positions, S tokens of a prompt, T words of a target (or of all
    targets), V words, E embedding
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from parley.engine.triggers.hits import Reading
from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.methods.settings import SearchSettings
from parley.engine.triggers.scorers.causal.packed import CausalReader, reads_in_parts, said
from parley.engine.triggers.scorers.causal.scorer import LOGITS, CausalScorer, is_causal
from parley.engine.triggers.scorers.scorer import BestInput, InputModel, PlainScorer, Swaps, Victim, require_numbers
from parley.engine.triggers.targets import target_seed
from parley.envs.core.errors import ConfigError

_TRIED = 7
"""Tokens of the text that tests whether a model reads the same in parts."""


@runtime_checkable
class VictimByText(Victim, Protocol):
    """A causal model that reads inputs as texts."""

    @property
    def model(self) -> Any:
        """Return the Hugging Face model."""

    def reads(self, words_RN: Tensor) -> list[list[int]]:
        """Return the tokens of the whole prompt with each input typed into it."""

    def room(self, read: Sequence[int]) -> int | float:
        """Return the number of reply tokens that fit behind a prompt."""


class ByTextScorer(PlainScorer):
    """A scorer that gives losses of inputs, and no slopes.

    Args:
        victim: the model.
        objective: as of `PlainScorer`.
        input_model: as of `PlainScorer`.
    """

    victim: VictimByText

    def __init__(self, victim: VictimByText, objective: TriggerObjective, input_model: InputModel | None = None) -> None:
        super().__init__(victim, objective, input_model)
        in_parts = reads_in_parts(victim.model, victim.embedding_VE[:_TRIED])
        self._reader = CausalReader(victim.model) if in_parts else None

    @torch.no_grad()
    def losses(self, targets: Sequence[Tensor], words_RN: Tensor) -> Tensor:
        """Return the loss of each input (R,); inputs with equal target and length are read together."""
        read, loss_R = self.victim.reads(words_RN), torch.empty(len(words_RN), device=words_RN.device)
        rows_by_shape = dict[tuple[int, int], list[int]]()
        for row, (target, ids) in enumerate(zip(targets, read, strict=True)):
            rows_by_shape.setdefault((id(target), len(ids)), []).append(row)

        def score(rows: Sequence[int]) -> None:
            target_T = targets[rows[0]]
            nll_BT, likeliest_BT = self._said([read[row] for row in rows], target_T)
            input_nll_B = self.input_nll(words_RN[list(rows)])
            loss_R[list(rows)] = self.objective.loss(nll_BT, likeliest_BT, torch.ones_like(likeliest_BT), input_nll_B)

        for rows in rows_by_shape.values():
            most = max(1, LOGITS // (len(targets[rows[0]]) * len(self.victim.embedding_VE)))
            self._finder.in_pieces(score, rows, most)
        return loss_R

    @torch.no_grad()
    def _measure(self, target_T: Tensor, words_N: Tensor) -> BestInput:
        nll_1T, likeliest_1T = self._said(self.victim.reads(words_N[None]), target_T)
        loss_1 = self.objective.loss(nll_1T, likeliest_1T, torch.ones_like(likeliest_1T), self.input_nll(words_N[None]))
        return BestInput(target_T, words_N, float(loss_1), Reading((-nll_1T[0]).tolist(), likeliest_1T[0].tolist()), None)

    def _said(self, read: Sequence[Sequence[int]], target_T: Tensor) -> tuple[Tensor, Tensor]:
        """Return nats of the target's words (B, T) behind prompts of equal length, and whether each is the likeliest."""
        if self.victim.room(read[0]) < len(target_T):
            got, fix = f"{len(read[0])} tokens before the target", "leave the prompt out, or the model"
            raise ConfigError("a prompt with an input is longer than a model reads", got=got, fix=fix)
        ids_BS = torch.tensor(read, device=target_T.device)
        embedded_BLE = self.victim.embedding_VE[torch.cat([ids_BS, target_T[:-1].expand(len(ids_BS), -1)], dim=1)]
        if self._reader is None:
            logits_BTV = self.victim.model(inputs_embeds=embedded_BLE, use_cache=False).logits[:, -len(target_T) :]
        else:
            num_equal = min(int((ids_BS == ids_BS[0]).all(0).int().cumprod(0).sum()), len(read[0]) - 1)
            caches = [self._reader.read(embedded_BLE[:1, :num_equal], (), 1)[1]] if num_equal else []
            logits_BTV = self._reader.read(embedded_BLE[:, num_equal:], caches, len(target_T))[0]
        nll_BT, lead_BT = said(logits_BTV, target_T)
        return nll_BT, lead_BT >= 0


Saved = dict[str, Any]
"""A search under way, as JSON types."""
Stop = Literal["satisfied", "converged", "limit"]
"""The reason why a search ended: a hit, no swap helps, or a limit."""


@dataclass(frozen=True, eq=False)
class Task:
    """One search: a target and the number of the restart.

    Args:
        key: names the target.
        target: word ids (T,) int64, the end included.
        restart: counted from 0.
        seed: of the target's search.
    """

    key: str
    target: Tensor
    restart: int
    seed: int


def tasks_of(targets: Mapping[str, Tensor], restarts: int, seed: int) -> Iterator[Task]:
    """Yield the first restart of every target, then the second, and so on.

    Args:
        targets: word ids (T,) int64 by key, the end included.
        restarts: of each target.
        seed: master seed.
    """
    for restart in range(restarts):
        for key, target in targets.items():
            # A copy, because scorers identify a search by its tensor.
            yield Task(key, target.clone(), restart, target_seed(seed, key))


@dataclass(frozen=True)
class Outcome:
    """The result of a search.

    Args:
        task: the task of the search.
        words: ids of the best input; None for a continuous input.
        loss: its objective.
        reading: log probabilities of the target's words and of the input.
        sweeps: sweeps begun, each of as many visits as an input has words.
        visits: steps of the search.
        accepted: visits that moved it.
        candidates: inputs tried.
        loss_by_sweep: the best loss at the start and after each sweep, the last one possibly cut short.
        stopped: the reason why it ended.
        projected: of a continuous input, the reading after the words nearest to it.
        nearness: of a continuous input, how near it is to those words, by position; empty for inputs of words.
        refused: candidates among them that the victim's rules do not allow.
        tokens: that the model read for it, as if each input were read by itself (`parley.engine.triggers.budget`).
        seconds: its share of the steps that it was part of.
    """

    task: Task
    words: tuple[int, ...] | None
    loss: float
    reading: Reading
    sweeps: int
    visits: int
    accepted: int
    candidates: int
    loss_by_sweep: tuple[float, ...]
    stopped: Stop
    projected: Reading | None = None
    nearness: Mapping[str, list[float]] = field(default_factory=dict)
    refused: int = 0
    tokens: int = 0
    # Alone of all this depends on the machine, so that it tells no two outcomes apart.
    seconds: float = field(default=0.0, compare=False)


@dataclass(eq=False)
class SearchState:
    """A search under way; methods add the fields that they need.

    Args:
        task: the target and restart.
        best: the best input so far.
    """

    task: Task
    best: BestInput
    visits: int = 0
    accepted: int = 0
    candidates: int = 0
    refused: int = 0
    tokens: int = 0
    seconds: float = 0.0
    loss_by_sweep: list[float] = field(default_factory=list)
    stopped: Stop | None = None

    @property
    def finished(self) -> bool:
        """Return True if the search is over."""
        return self.stopped is not None

    def outcome(self) -> Outcome:
        """Return the result of a finished search."""
        assert self.stopped is not None, "the search goes on"
        return Outcome(
            task=self.task,
            words=tuple(self.best.words.tolist()),
            loss=self.best.loss,
            reading=self.best.reading,
            sweeps=len(self.loss_by_sweep) - 1,
            visits=self.visits,
            accepted=self.accepted,
            candidates=self.candidates,
            loss_by_sweep=tuple(self.loss_by_sweep),
            stopped=self.stopped,
            refused=self.refused,
            tokens=self.tokens,
            seconds=self.seconds,
        )


StateT = TypeVar("StateT", bound=SearchState)


class Stepper(Protocol[StateT]):
    """A method that advances searches visit by visit, ready to search."""

    @property
    def settings(self) -> SearchSettings:
        """Return the settings: limits, and whether a hit drops a target's later restarts."""

    @property
    def most_visits(self) -> int:
        """Return the number of visits after which a search ends in any case."""

    def start(self, tasks: Sequence[Task]) -> list[StateT]:
        """Return a state for each task, possibly finished already."""

    def step(self, states: Sequence[StateT]) -> None:
        """Advance each unfinished search by one visit.

        States change only after the model was asked for the last time, so that a step that ran out of memory can be repeated.
        """

    def clock(self) -> float:
        """Return the time by the clock of the model's work."""

    def spend(self, states: Sequence[StateT], seconds: float, shares: Sequence[float]) -> None:
        """Add a step's seconds to its searches, by their shares of its work, and end those that have used up theirs."""

    def save(self, state: StateT) -> Saved | None:
        """Return the saved state of a search; None if it has to start again."""

    def restore(self, tasks: Sequence[Task], saved: Sequence[Saved]) -> list[StateT]:
        """Return the states of those tasks from their saved form."""


WORDS = "words"
"""Key of the entry that stands for an input."""
FLOAT32, SHAPE = "float32", "shape"
"""Keys of the entries that stand for a tensor: its numbers in base 64, and its axes."""
NOT_SAVED = {"saved": False}
"""Metadata of a state's field that is not saved."""


def state_to_json(state: SearchState) -> Saved | None:
    """Return a search under way as JSON types; None if its state has a field without a JSON form."""
    try:
        return {name: _to_json(getattr(state, name)) for name in _names(state)}
    except TypeError:
        return None


def words_in(saved: Any) -> Iterator[list[int]]:
    """Yield the words of every input in a saved search, in order."""
    if isinstance(saved, dict):
        for name, part in saved.items():
            yield from [part] if name == WORDS else words_in(part)
    elif isinstance(saved, list):
        for part in saved:
            yield from words_in(part)


def fill(state: SearchState, saved: Saved, measured: Iterator[BestInput]) -> None:
    """Restore a state from its saved form.

    Args:
        state: of the same task, at any input.
        saved: result of `state_to_json`.
        measured: the inputs of `words_in`, in order.

    Raises:
        ValueError: it was saved of another kind of search.
    """
    if set(saved) != set(_names(state)):
        raise ValueError(f"a search was saved with {', '.join(saved)}, and it has {', '.join(_names(state))}")
    for name, value in saved.items():
        made, was = _from_json(value, measured), getattr(state, name)
        setattr(state, name, made.to(was.device) if isinstance(made, Tensor) else made)


def outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as JSON types, without its target."""
    plain = {field.name: getattr(outcome, field.name) for field in fields(outcome)} | {"restart": outcome.task.restart}
    readings = {name: None if plain[name] is None else asdict(plain[name]) for name in ("reading", "projected")}
    return {name: value for name, value in (plain | readings).items() if name != "task"}


def outcome_from_json(saved: Mapping[str, Any], task_of: Callable[[int], Task]) -> Outcome:
    """Return the outcome from its JSON form.

    Args:
        saved: result of `outcome_to_json`.
        task_of: returns the target's task by the number of the restart.
    """
    readings = {name: None if saved[name] is None else Reading(**saved[name]) for name in ("reading", "projected")}
    words = None if saved[WORDS] is None else tuple(saved[WORDS])
    parts = {name: value for name, value in saved.items() if name != "restart"}
    values = {"task": task_of(saved["restart"]), WORDS: words, "loss_by_sweep": tuple(saved["loss_by_sweep"])}
    return Outcome(**{**parts, **readings, **values})


def _names(state: SearchState) -> list[str]:
    return [field.name for field in fields(state) if field.name != "task" and field.metadata.get("saved", True)]


def _to_json(value: Any) -> Any:
    if isinstance(value, BestInput):
        return {WORDS: value.words.tolist()}
    if isinstance(value, Tensor) and value.dtype == torch.float32:
        return {FLOAT32: base64.b64encode(value.detach().cpu().numpy().tobytes()).decode(), SHAPE: list(value.shape)}
    if isinstance(value, list):
        return [_to_json(part) for part in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(type(value).__name__)


def _from_json(value: Any, measured: Iterator[BestInput]) -> Any:
    if isinstance(value, dict) and FLOAT32 in value:
        numbers = np.frombuffer(base64.b64decode(value[FLOAT32]), dtype=np.float32)
        return torch.from_numpy(numbers.copy()).view(value[SHAPE])
    if isinstance(value, dict):
        return next(measured)
    if isinstance(value, list):
        return [_from_json(part, measured) for part in value]
    return value


FIRST = 8
"""Candidates that are read behind all prompts first if there is no loss to beat."""
_ROUNDING = 1e-5
"""Share of a loss by which a bound has to exceed it, so that rounding ends nothing that is as good."""


class UniversalVictim:
    """Prompts of one model, or of several, that share the searched words.

    Args:
        victims: a model behind each prompt; all have the words of the first, as tokens or as texts (`VictimByText`), and as
            many searched positions.
        targets: word ids (T,) of each, the end included.

    Attributes:
        num_models: how many there are.
        device: the first model's, where searches are.
        searchable_V: which words an input may hold.
    """

    def __init__(self, victims: Sequence[Victim], targets: Sequence[Tensor]) -> None:
        assert len(victims) == len(targets) > 0, "a target for each prompt"
        self.victims, self.targets = tuple(victims), tuple(targets)
        self.num_models = len({id(getattr(victim, "model", None)) for victim in victims})
        num = min(len(victim.searchable_V) for victim in victims)
        self.device = victims[0].embedding_VE.device
        self.searchable_V: Tensor = torch.stack([victim.searchable_V[:num].to(self.device) for victim in victims]).all(0)

    @property
    def target_ids(self) -> Tensor:
        """Return the words (T,) of all targets, concatenated."""
        return torch.cat([target.to(self.device) for target in self.targets])

    @property
    def embedding_VE(self) -> Tensor:
        """Return the first model's embeddings of the words of the input."""
        return self.victims[0].embedding_VE[: len(self.searchable_V)]

    @property
    def input_length(self) -> int:
        """Return N."""
        return self.victims[0].input_length

    @property
    def start_ids(self) -> Sequence[int] | None:
        """Return the words (N,) that searches start from; None if they are drawn."""
        start: Sequence[int] | None = getattr(self.victims[0], "start_ids", None)
        return start

    def allows(self, words_RN: Tensor) -> Tensor:
        """Return a mask of the inputs (R,) that every prompt allows."""
        allowed_R = torch.ones(len(words_RN), dtype=torch.bool, device=words_RN.device)
        for victim in self.victims:
            allows: Callable[[Tensor], Tensor] | None = getattr(victim, "allows", None)
            left_r = allowed_R.nonzero()[:, 0]
            if allows is None or not len(left_r):
                break
            allowed_R[left_r] = allows(words_RN[left_r])
        return allowed_R

    def reply_logits(self, embedded_BNE: Tensor, replies_BT: Tensor) -> Tensor:
        """Return logits (B, T, V) of the words of all targets, concatenated."""
        parts_BT = replies_BT.split([len(target) for target in self.targets], dim=1)
        read = []
        for victim, part_BT in zip(self.victims, parts_BT, strict=True):
            device = victim.embedding_VE.device
            read.append(victim.reply_logits(embedded_BNE.to(device), part_BT.to(device)).to(self.device))
        return torch.cat(read, dim=1)


class UniversalScorer:
    """A scorer of the mean over pairs.

    Args:
        victim: the prompts and targets; the targets that a search names are ignored.
        objective: the loss behind each prompt.
        input_model: judges inputs.
    """

    def __init__(self, victim: UniversalVictim, objective: TriggerObjective, input_model: InputModel | None = None) -> None:
        self.victim, self.objective = victim, objective
        firsts = {id(getattr(part, "model", None)): part for part in reversed(victim.victims)}
        kinds = {model: _kind(part) for model, part in firsts.items()}
        self.parts: list[PlainScorer] = [
            kinds[id(getattr(part, "model", None))](part, objective, input_model) for part in victim.victims
        ]
        self.guides = [index for index, part in enumerate(self.parts) if not isinstance(part, ByTextScorer)]

    def measure(self, targets: Sequence[Tensor], words_BN: Tensor) -> list[BestInput]:
        """Measure inputs behind each prompt."""
        of_pairs = [part.measure([target_T] * len(words_BN), words_BN.to(target_T.device)) for part, target_T in self._pairs()]
        return [
            BestInput(target, words_N, sum(measured.loss for measured in read) / len(read), _together(read), tuple(read))
            for target, words_N, read in zip(targets, words_BN, zip(*of_pairs, strict=True), strict=True)
        ]

    def slopes(self, incumbents: Sequence[BestInput], positions_B: Tensor) -> Tensor:
        """Return the mean of the slopes (B, V) behind each prompt of a model with the searched tokens."""
        num = len(self.victim.searchable_V)
        total_BV = torch.zeros(len(incumbents), num, device=self.victim.device)
        for index in self.guides:
            slopes_BV = self.parts[index].slopes([incumbent.cache[index] for incumbent in incumbents], positions_B)
            total_BV += slopes_BV[:, :num].to(self.victim.device)
        return total_BV / len(self.guides)

    def gradients(self, incumbents: Sequence[BestInput]) -> Tensor:
        """Return the mean of the gradients (B, N, E) behind each prompt of a model with the searched tokens."""
        of_pairs = [self.parts[index].gradients([incumbent.cache[index] for incumbent in incumbents]) for index in self.guides]
        return torch.stack([of_pair.to(self.victim.device) for of_pair in of_pairs]).mean(0)

    def next_logits(self, target: Tensor, words_Bt: Tensor) -> Tensor:
        """Return the mean of log probabilities (B, V) behind each prompt of a model with the searched tokens."""
        num = len(self.victim.searchable_V)
        total_BV = torch.zeros(len(words_Bt), num, device=self.victim.device)
        pairs = self._pairs()
        for part, own_target in (pairs[index] for index in self.guides):
            logits_BV = part.next_logits(own_target, words_Bt.to(own_target.device))
            total_BV += logits_BV.log_softmax(-1)[:, :num].to(self.victim.device)
        return total_BV / len(self.guides)

    def best_swap(self, incumbents: Sequence[BestInput], swaps: Swaps, beat_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return the argmin of the mean over the lists; candidates that cannot be it are not read behind all prompts."""
        rows = zip(incumbents, swaps.lists(), beat_B.tolist(), strict=True)
        results = [self._best(incumbent, *swaps_G, beat) for incumbent, swaps_G, beat in rows]
        choices, losses = zip(*results, strict=True)
        return torch.tensor(choices), beat_B.new_tensor(losses)

    def losses(self, targets: Sequence[Tensor], words_RN: Tensor) -> Tensor:
        """Return the mean loss of each input (R,)."""
        of_pairs = [part.losses([target_T] * len(words_RN), words_RN.to(target_T.device)) for part, target_T in self._pairs()]
        return torch.stack([loss_R.to(self.victim.device) for loss_R in of_pairs]).mean(0)

    def _pairs(self) -> list[tuple[PlainScorer, Tensor]]:
        return list(zip(self.parts, self.victim.targets, strict=True))

    def _best(self, incumbent: BestInput, positions_G: Tensor, words_G: Tensor, beat: float) -> tuple[int, float]:
        """Return the candidate of least loss and that loss, ties to the first; -1 and `beat` if none undercuts it."""
        order = sorted(range(len(self.parts)), key=lambda index: -incumbent.cache[index].loss)

        def read(index: int, rows_g: Tensor) -> Tensor:
            stored, swaps = incumbent.cache[index], (positions_G[rows_g], words_G[rows_g])
            loss_g = self.parts[index].swap_losses(stored, *(part.to(stored.words.device) for part in swaps))
            require_numbers(loss_g)
            return loss_g.to(self.victim.device) / len(order)

        least, left_g = beat, torch.arange(len(words_G), device=words_G.device)
        cost_G = torch.full((len(words_G),), torch.inf, device=words_G.device)
        cost_G[left_g] = read(order[0], left_g)
        if least == torch.inf and len(left_g) > FIRST:
            first_g = cost_G.argsort(stable=True)[:FIRST].sort().values
            sums_g = cost_G[first_g].clone()
            for index in order[1:]:
                sums_g += read(index, first_g)
            least = float(sums_g.min())
        for index in order[1:]:
            left_g = left_g[cost_G[left_g] <= least + _ROUNDING * max(1.0, least)]
            if not len(left_g):
                return -1, beat
            cost_G[left_g] += read(index, left_g)
        choice = int(left_g[cost_G[left_g].argmin()])
        loss = float(cost_G[choice])
        return (choice, loss) if loss < beat else (-1, beat)


def _kind(victim: Victim) -> type[PlainScorer]:
    if isinstance(victim, VictimByText):
        return ByTextScorer
    return CausalScorer if is_causal(victim) else PlainScorer


def _together(read: Sequence[BestInput]) -> Reading:
    readings = [measured.reading for measured in read]
    nats = [nat for reading in readings for nat in reading.word_log_probability]
    likeliest = [word for reading in readings for word in reading.likeliest]
    return Reading(nats, likeliest, readings[0].input_log_probability)
