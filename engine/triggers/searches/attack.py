"""A composed trigger search, and the one call that runs it: a method, the model under test, an objective, and a type of hit.

    from parley.engine.triggers import GibbsEnum, search

    triggers = search(victim, ["you are a fool"], method=GibbsEnum(candidates=50, restarts=2), seed=1)
    print(triggers[0].text, triggers[0].hit, triggers[0].loss)

`print(TriggerSearch(victim, GibbsEnum()))` shows the whole composition.

Rules for inputs (`RuledVictim`): a victim may allow some inputs only, such as those that give the same tokens again when they
are typed. Other inputs are refused before the model reads them: swaps leave their list, inputs cost infinitely much. A search
may stand at such an input (if gcg finds no allowed swap) and never returns it.

    B searches, G candidates, R inputs, N searched positions
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from parley.engine.triggers.budget import Spending
from parley.engine.triggers.hits import HitType, Reading, Thresholds
from parley.engine.triggers.methods.gibbs_enum import GibbsEnum
from parley.engine.triggers.methods.goal import Goal, Initial
from parley.engine.triggers.methods.method import Method
from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.scorers.causal.probes import drafting
from parley.engine.triggers.scorers.causal.scorer import CausalScorer, CausalVictim, is_causal
from parley.engine.triggers.scorers.lstm.scorer import LstmScorer
from parley.engine.triggers.scorers.scorer import BestInput, ContinuingScorer, InputModel, PlainScorer, Scorer, Swaps, Victim
from parley.engine.triggers.searches.batch import Outcome, Task, UniversalScorer, UniversalVictim, tasks_of
from parley.engine.triggers.searches.batch_finder import BatchFinder
from parley.engine.triggers.victims import Seq2SeqVictim
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.core.seeds import derive_seed, stream

_DRAWN, _ROUNDS = 64, 16
"""Inputs that are drawn at once until one is allowed, and how often."""


@runtime_checkable
class RuledVictim(Victim, Protocol):
    """A victim with rules for whole inputs."""

    @property
    def start_ids(self) -> Sequence[int] | None:
        """Return the words (N,) that searches start from; None if they are drawn."""

    def allows(self, words_RN: Tensor) -> Tensor:
        """Return a mask of the allowed inputs (R,)."""


class RuledScorer:
    """A scorer that refuses inputs.

    Args:
        inner: scores the allowed inputs.
        victim: the model, which has the rules.
    """

    def __init__(self, inner: Scorer, victim: RuledVictim) -> None:
        self.inner, self.ruled = inner, victim
        self._refused: dict[int, int] = defaultdict(int)

    @property
    def victim(self) -> Victim:
        """Return the model."""
        return self.inner.victim

    @property
    def objective(self) -> TriggerObjective:
        """Return the objective."""
        return self.inner.objective

    def refused(self, target: Tensor) -> int:
        """Return the candidates of a search, identified by its target tensor, refused since the last call."""
        return self._refused.pop(id(target), 0)

    def measure(self, targets: Sequence[Tensor], words_BN: Tensor) -> list[BestInput]:
        """Measure inputs; those that are not allowed have an infinite loss, and are no hits."""
        measured = self.inner.measure(targets, words_BN)
        allowed = self.ruled.allows(words_BN).tolist()
        self._count(targets, allowed)
        return [
            incumbent if ok else replace(incumbent, loss=torch.inf, allowed=False)
            for incumbent, ok in zip(measured, allowed, strict=True)
        ]

    def slopes(self, incumbents: Sequence[BestInput], positions_B: Tensor) -> Tensor:
        """Return the slopes of the inner scorer."""
        return self.inner.slopes(incumbents, positions_B)

    def gradients(self, incumbents: Sequence[BestInput]) -> Tensor:
        """Return the gradients of the inner scorer."""
        return self.inner.gradients(incumbents)

    def next_logits(self, target: Tensor, words_Bt: Tensor) -> Tensor:
        """Return the logits of the inner scorer."""
        return cast(ContinuingScorer, self.inner).next_logits(target, words_Bt)

    def best_swap(self, incumbents: Sequence[BestInput], swaps: Swaps, beat_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return the best of the allowed swaps; if none is allowed and there is no loss to beat, the first at infinite loss."""
        tried_BGN = torch.stack([incumbent.words for incumbent in incumbents])[:, None].repeat(1, swaps.words_BG.shape[1], 1)
        tried_BGN.scatter_(2, swaps.positions_BG[..., None], swaps.words_BG[..., None])
        allowed_BG = self.ruled.allows(tried_BGN.flatten(0, 1)).view_as(swaps.words_BG)
        for incumbent, allowed_G in zip(incumbents, allowed_BG.tolist(), strict=True):
            self._count([incumbent.target] * len(allowed_G), allowed_G)
        choice_B, loss_B = torch.where(beat_B == torch.inf, 0, -1).cpu(), beat_B.clone()
        asked_b = allowed_BG.any(1).nonzero()[:, 0]
        if len(asked_b):
            kept_bG = (~allowed_BG[asked_b]).int().argsort(dim=1, stable=True)
            positions_bG, words_bG = (part[asked_b].gather(1, kept_bG) for part in (swaps.positions_BG, swaps.words_BG))
            left = Swaps(positions_bG, words_bG, allowed_BG[asked_b].sum(1).tolist())
            chosen_b, loss_B[asked_b] = self.inner.best_swap(
                [incumbents[row] for row in asked_b.tolist()], left, beat_B[asked_b]
            )
            named_b = kept_bG.cpu().gather(1, chosen_b.cpu().clamp_min(0)[:, None])[:, 0]
            choice_B[asked_b.cpu()] = torch.where(chosen_b.cpu() < 0, -1, named_b)
        return choice_B, loss_B

    def losses(self, targets: Sequence[Tensor], words_RN: Tensor) -> Tensor:
        """Return the loss of each input (R,), infinite for those not allowed."""
        allowed_R = self.ruled.allows(words_RN)
        self._count(targets, allowed_R.tolist())
        kept_r = allowed_R.nonzero()[:, 0]
        loss_R = torch.full((len(words_RN),), torch.inf, device=words_RN.device)
        if len(kept_r):
            loss_R[kept_r] = self.inner.losses([targets[row] for row in kept_r.tolist()], words_RN[kept_r])
        return loss_R

    def _count(self, targets: Sequence[Tensor], allowed: Sequence[bool]) -> None:
        counts: dict[int, int] = defaultdict(int)
        for target, ok in zip(targets, allowed, strict=True):
            counts[id(target)] += not ok
        for key, number in counts.items():
            # A step that ran out of memory is repeated, and what a list refused is measured again at times.
            if number > self._refused.get(key, 0):
                self._refused[key] = number


def allowed_inputs(victim: RuledVictim, likely: Callable[[int], Tensor] | None = None, *, from_start: bool = True) -> Initial:
    """Return a function that gives an input that the victim allows: its own start, else a drawn one.

    Args:
        victim: the model.
        likely: draws an input (N,) by a seed; uniformly when None.
        from_start: True to use the victim's own start.

    Raises:
        ConfigError: the start is not allowed, or none of many that were drawn is.
    """
    words = victim.searchable_V.nonzero()[:, 0].cpu().numpy()
    device, length, start = victim.searchable_V.device, victim.input_length, victim.start_ids if from_start else None
    start_N = None if start is None else torch.tensor(start, device=device)
    if start_N is not None and not bool(victim.allows(start_N[None])[0]):
        fix = "start from other words, or --set hugging_face.typed=false"
        raise ConfigError("the text to start from gives other tokens where it stands in the prompt", got=str(start), fix=fix)

    def drawn(seed: int) -> Tensor:
        for number in range(_ROUNDS if likely else 0):
            assert likely is not None
            ids_N = likely(derive_seed(seed, "likely", number))
            if bool(victim.allows(ids_N[None])[0]):
                return ids_N
        generator = stream(seed, "uniform")
        # The first is what a search without rules starts from.
        tried_RN = generator.integers(len(words), size=(1, length))
        for _ in range(_ROUNDS):
            ids_RN = torch.from_numpy(words[tried_RN]).to(device)
            if len(allowed := victim.allows(ids_RN).nonzero()[:, 0]):
                return ids_RN[allowed[0]]
            # Words that repeat survive more often than others: half of the inputs are of one or two words.
            tried_RN = generator.integers(len(words), size=(_DRAWN, length))
            tried_RN[::2] = np.where(np.arange(length) % 2, tried_RN[::2, :1], tried_RN[::2, -1:])
        raise ConfigError(
            "no input was found that gives the same tokens again when it is typed",
            got=f"none of {_DRAWN * (_ROUNDS - 1) + 1} drawn",
            fix="name a text to start from (hugging_face.start), or --set hugging_face.typed=false",
        )

    def draw(seeds: Sequence[int]) -> Tensor:
        return torch.stack([drawn(seed) if start_N is None else start_N.clone() for seed in seeds])

    return draw


MEMBERS = ("embedding_VE", "searchable_V", "input_length", "reply_logits")
"""The members of a victim."""


class TriggerSearch:
    """A method, composed with the model under test, an objective and a type of hit.

    Args:
        victim: the model.
        method: the method; gibbs-enum as published when None.
        hit: the type of hit, or its name, that ends a restart; it sets the default objective.
        thresholds: of hits; needed for all types but o-greedy.
        objective: the loss; the hit's own when None.
        input_model: judges inputs of a victim that is not one of Parley's own networks; those bring theirs.
        batch_size: searches side by side, until memory runs out.
        budget: tokens and seconds that a restart may cost beside the limits of the method's settings; no limit when None.

    Raises:
        ConfigError: a part is of another kind than it has to be, or the parts do not fit each other.
    """

    def __init__(
        self,
        victim: Victim,
        method: Method | None = None,
        *,
        hit: HitType | str = "o-greedy",
        thresholds: Thresholds | None = None,
        objective: TriggerObjective | None = None,
        input_model: InputModel | None = None,
        batch_size: int = 16,
        budget: Spending | None = None,
    ) -> None:
        method = GibbsEnum() if method is None else method
        _require("method", method, Method, "an instance such as GibbsEnum(candidates=100)")
        if str(budget or "") and not method.holds_budget:
            what, fix = f"{type(method).__name__} searches to its own end, whatever that costs", "leave the budget out"
            raise ConfigError(what, where="budget", got=str(budget), fix=fix)
        lacking = [name for name in MEMBERS if isinstance(victim, type) or not hasattr(victim, name)]
        if lacking:
            fix = "give an object with the members of Victim (engine/triggers/scorers/scorer.py)"
            what = f"the victim lacks {', '.join(lacking)}"
            raise ConfigError(what, where="victim", got=_kind(victim), fix=fix)
        self.hit = HitType.parse(hit) if isinstance(hit, str) else hit
        _require("hit", self.hit, HitType, 'a name such as "o-greedy"')
        self.thresholds = Thresholds() if thresholds is None else thresholds
        _require("thresholds", self.thresholds, Thresholds, "Thresholds(t_out=-3.0)")
        if self.hit.statistic != "greedy" and self.thresholds.t_out is None:
            fix = "thresholds=Thresholds(t_out=NATS), minus the model's loss per word on replies it was not fitted to"
            raise ConfigError(f"{self.hit.name} compares the target's words with a usual word", where="thresholds", fix=fix)
        if objective is None:
            objective = self.hit.objective(self.thresholds)
        _require("objective", objective, TriggerObjective, 'TriggerObjective(kind="likelihood")')
        if not isinstance(batch_size, int) or batch_size < 1:
            raise ConfigError("batch_size is no number of searches", got=repr(batch_size), fix="give a whole number from 1 on")
        judged = victim.lm is not None if isinstance(victim, Seq2SeqVictim) else input_model is not None
        if (self.hit.limits_input or objective.lm_weight > 0) and not (judged and method.searches_words):
            what = "no model judges the inputs" if method.searches_words else "a continuous input has no words to judge"
            fix = "give a language model, or a hit and an objective that leave the input free"
            raise ConfigError(what, got=f"hit {self.hit.name}, {objective}", fix=fix)
        if objective.mellowmax and isinstance(victim, Seq2SeqVictim):
            what, fix = "Parley's own networks are searched by means over words", "leave out mellowmax"
            raise ConfigError(what, where="objective", got=str(objective), fix=fix)
        several = isinstance(victim, Seq2SeqVictim | UniversalVictim)
        causal = method.searches_words and not several and is_causal(victim)
        screened = (causal or isinstance(victim, Seq2SeqVictim)) and "screening" in method.uses
        if method.settings.screening and not screened:
            what = "only swaps in Parley's own networks and in causal Hugging Face models are screened, by gibbs-enum and gcg"
            fix = "leave out search.screening"
            raise ConfigError(what, where="search.screening", got=f"{type(method).__name__} on {_kind(victim)}", fix=fix)
        draft = method.settings.draft
        if draft and not (causal and "draft" in method.uses):
            what, fix = (
                "only swaps in one causal Hugging Face model are drafted, by gibbs-enum and gcg",
                "leave out search.draft",
            )
            raise ConfigError(what, where="search.draft", got=f"{type(method).__name__} on {_kind(victim)}", fix=fix)
        first, num_models = (victim.victims[0], victim.num_models) if isinstance(victim, UniversalVictim) else (victim, 1)
        if method.embeds and num_models > 1:
            what, fix = "the method moves among embeddings, which models do not share", "search one model, or by another method"
            raise ConfigError(what, where="method", got=f"{type(method).__name__} on {num_models} models", fix=fix)
        if method.continues and not hasattr(first, "next_logits"):
            what, fix = "the victim does not predict the next word of its inputs", "a causal model, or another method"
            raise ConfigError(what, where="method", got=f"{type(method).__name__} on {_kind(first)}", fix=fix)
        self.victim, self.objective, self.input_model = victim, objective, input_model
        # The model itself reads a continuous input: no tables are made for its words.
        if isinstance(victim, Seq2SeqVictim) and method.searches_words:
            draw = victim.likely_inputs if self.hit.limits_input else None
            goal = Goal(LstmScorer(victim, objective, screening=method.settings.screening), self.is_hit, draw, budget)
        elif method.searches_words and isinstance(victim, UniversalVictim):
            goal = Goal(UniversalScorer(victim, objective, input_model), self.is_hit, budget=budget)
        elif causal:
            searched = cast(CausalVictim, victim)
            drafts = CausalScorer(drafting(searched, draft), objective, input_model) if draft else None
            scorer = CausalScorer(searched, objective, input_model, screening=method.settings.screening, draft=drafts)
            goal = Goal(scorer, self.is_hit, budget=budget)
        else:
            goal = Goal(PlainScorer(victim, objective, input_model), self.is_hit, budget=budget)
        if isinstance(victim, RuledVictim) and method.searches_words:
            goal = Goal(RuledScorer(goal.scorer, victim), self.is_hit, allowed_inputs(victim, self._likely_inputs()), budget)
        self.method = method.bind(goal)
        self.finder = BatchFinder(batch_size, "searches")

    def __repr__(self) -> str:
        searchable = int(self.victim.searchable_V.sum())
        words = f"{searchable:,} of {len(self.victim.searchable_V):,} words at {self.victim.input_length} positions"
        judge = getattr(self.victim, "lm", None) or self.input_model
        parts = {
            "method": repr(self.method),
            "victim": type(self.victim).__name__,
            "objective": repr(self.objective),
            "hit": f"{self.hit.name}, {self.thresholds}",
            "words": words,
            "input": "free" if judge is None else f"judged by {type(judge).__name__}",
            "scorer": type(self.method.scorer).__name__,
            "batch_size": str(self.finder.size),
        }
        return "\n".join([f"{type(self).__name__}(", *(f"  {name}: {part}" for name, part in parts.items()), ")"])

    def _likely_inputs(self) -> Callable[[int], Tensor] | None:
        """Return a sampler of likely inputs, if a hit limits the input and the judge can draw them (paper, section 4.3)."""
        draw = getattr(self.input_model, "draw", None)
        if draw is None or not self.hit.limits_input:
            return None
        return lambda seed: draw([seed], self.victim.input_length, self.victim.searchable_V)[0]

    def is_hit(self, reading: Reading) -> bool:
        """Return True if a reading is a hit as wanted."""
        return self.hit.is_hit(reading, self.thresholds)

    def run(self, tasks: Iterable[Task], on_step: Callable[[int], None] | None = None) -> Iterator[Outcome]:
        """Search for the target of each task; see `Method.search_all`."""
        return self.method.search_all(tasks, self.finder, on_step)


@dataclass(frozen=True)
class Trigger:
    """The result of the search for a target.

    Args:
        target: as it was given.
        text: the input as text; None if the victim has no text, or the input no words.
        words: ids of the input; None for a continuous input.
        hit: True if it is a hit as wanted.
        loss: the objective.
        reading: log probabilities of the target's words and of the input.
        restarts: every search for it.
    """

    target: str | tuple[int, ...]
    text: str | None
    words: tuple[int, ...] | None
    hit: bool
    loss: float
    reading: Reading
    restarts: tuple[Outcome, ...]


def search(
    victim: Victim,
    targets: Sequence[str] | Sequence[Sequence[int]],
    *,
    method: Method | None = None,
    hit: HitType | str = "o-greedy",
    thresholds: Thresholds | None = None,
    objective: TriggerObjective | None = None,
    input_model: InputModel | None = None,
    seed: int = 1,
    batch_size: int = 16,
    on_step: Callable[[int], None] | None = None,
) -> list[Trigger]:
    """Search for inputs after which a model gives the targets.

    Args:
        victim: the model.
        targets: texts, if the victim can encode them, or word ids that end as a reply does.
        method: as in `TriggerSearch`, like `hit`, `thresholds`, `objective`, `input_model` and `batch_size`.
        hit: see there.
        thresholds: see there.
        objective: see there.
        input_model: see there.
        seed: master seed; a target's result depends on it and on the target, and on no other target.
        batch_size: see there.
        on_step: called after every step with the number of candidates tried so far.

    Returns:
        One trigger for each target, in order: of its restarts a hit, else the one of least loss.

    Raises:
        ConfigError: an argument is of another kind than it has to be.
        DataError: the victim cannot say some words of a target, or a target is longer than its member `longest_reply`, the
            words of the longest reply with its end.
        CheckpointError: the model's losses are no numbers.
    """
    parts: dict[str, Any] = {"hit": hit, "thresholds": thresholds, "objective": objective, "input_model": input_model}
    composed = TriggerSearch(victim, method, **parts, batch_size=batch_size)
    if not isinstance(seed, int) or seed < 0:
        raise ConfigError("seed is no seed", got=repr(seed), fix="give a whole number from 0 on")
    if isinstance(targets, str) or not isinstance(targets, Sequence):
        raise ConfigError("targets are a list", got=_kind(targets), fix="put a single target into a list")
    named = [_named(victim, target) for target in targets]
    ids = {_key(target): _ids(victim, target) for target in named}
    outcomes: dict[str, list[Outcome]] = {key: [] for key in ids}
    for outcome in composed.run(tasks_of(ids, composed.method.settings.restarts, seed), on_step):
        outcomes[outcome.task.key].append(outcome)
    return [_trigger(victim, target, outcomes[_key(target)], composed.is_hit) for target in named]


def best_restart(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the restart whose input is kept: one that is a hit as wanted, else that of least loss; ties to the first."""
    return min(outcomes, key=lambda outcome: (outcome.stopped != "satisfied", outcome.loss, outcome.task.restart))


def _trigger(
    victim: Victim, target: str | tuple[int, ...], outcomes: Sequence[Outcome], is_hit: Callable[[Reading], bool]
) -> Trigger:
    best, read = best_restart(outcomes), getattr(victim, "text", None)
    text = None if best.words is None or read is None else read(best.words)
    return Trigger(target, text, best.words, is_hit(best.reading), best.loss, best.reading, tuple(outcomes))


def _key(target: str | tuple[int, ...]) -> str:
    return target if isinstance(target, str) else " ".join(map(str, target))


def _named(victim: Victim, target: Any) -> str | tuple[int, ...]:
    """Return a target as it was given: a text, or word ids that the victim has."""
    if isinstance(target, str):
        return target
    try:
        ids = tuple(map(int, target))
    except (TypeError, ValueError):
        fix = "give a list of targets, each a text or a list of word ids"
        raise ConfigError("a target is neither a text nor word ids", where="targets", got=_kind(target), fix=fix) from None
    if outside := [i for i in ids if not 0 <= i < len(victim.embedding_VE)]:
        fix = f"give ids from 0 to {len(victim.embedding_VE) - 1}"
        raise ConfigError("a target holds ids of no word", where="targets", got=", ".join(map(str, outside)), fix=fix)
    return ids


def _ids(victim: Victim, target: str | tuple[int, ...]) -> Tensor:
    """Return the word ids (T,) int64 of a target."""
    if not target:
        raise ConfigError("a target is empty", where="targets", fix="leave it out")
    ids = _encoded(victim, target)
    longest = getattr(victim, "longest_reply", None)
    if longest is not None and len(ids) > longest:
        got = f"{len(ids)} words with its end, and replies have {longest} at most"
        raise DataError("a target is longer than the model's replies", where=target, got=got, fix="write it with fewer words")
    return ids


def _encoded(victim: Victim, target: str | tuple[int, ...]) -> Tensor:
    if not isinstance(target, str):
        return torch.tensor(target, device=victim.embedding_VE.device)
    if not hasattr(victim, "target"):
        fix = "give word ids, the end of the reply included, or a victim with the member `target`"
        raise ConfigError("the victim does not know which words a text is", where=type(victim).__name__, got=target, fix=fix)
    ids: Tensor = victim.target(target)
    return ids


def _require(name: str, value: object, kind: type, example: str) -> None:
    if not isinstance(value, kind):
        raise ConfigError(f"{name} is no {kind.__name__}", got=_kind(value), fix=f"give {example}")


def _kind(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"{type(value).__name__} {value!r:.60}"
