"""Checks of the contracts of models under search (`scorer.Victim`) and of methods of search (`method.Method`)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from parley.engine.triggers.methods.method import Method
from parley.engine.triggers.methods.settings import RelaxationSettings, SearchSettings
from parley.engine.triggers.scorers.scorer import Victim
from parley.engine.triggers.searches.attack import Trigger, TriggerSearch, search
from parley.engine.triggers.searches.batch import tasks_of
from parley.envs.core.conformance import Kind, expect, same_alone

_ROWS, _REPLY = 3, 4
_TOLERANCE = 1e-4


def _make(named: Any) -> Victim:
    victim: Victim = named() if isinstance(named, type) or (callable(named) and not hasattr(named, "reply_logits")) else named
    return victim


def _inputs(victim: Victim) -> tuple[Tensor, Tensor]:
    """Draw inputs as embeddings (B, N, E), and replies (B, T) int64."""
    generator = torch.Generator().manual_seed(1)
    words_S = victim.searchable_V.nonzero()[:, 0].cpu()
    drawn_BN = words_S[torch.randint(len(words_S), (_ROWS, victim.input_length), generator=generator)]
    replies_BT = words_S[torch.randint(len(words_S), (_ROWS, _REPLY), generator=generator)]
    device = victim.embedding_VE.device
    return victim.embedding_VE[drawn_BN.to(device)].detach(), replies_BT.to(device)


def _has_words_to_search(victim: Victim) -> None:
    """Have embeddings (V, E), searchable words (V) and a length of inputs."""
    shape = tuple(victim.embedding_VE.shape)
    expect(len(shape) == 2 and victim.embedding_VE.is_floating_point(), "embedding_VE of floats (V, E)", shape)
    allowed = victim.searchable_V
    right = allowed.dtype == torch.bool and tuple(allowed.shape) == shape[:1]
    expect(right, f"searchable_V of bools ({shape[0]},)", f"{allowed.dtype} {tuple(allowed.shape)}")
    expect(bool(allowed.any()), "a word that may be searched", "none")
    expect(victim.input_length >= 1, "input_length of at least 1", victim.input_length)


def _gives_logits(victim: Victim) -> None:
    """Give finite logits (B, T, V) of each word of the replies."""
    embedded_BNE, replies_BT = _inputs(victim)
    logits_BTV = victim.reply_logits(embedded_BNE, replies_BT)
    shape = (_ROWS, _REPLY, len(victim.embedding_VE))
    expect(tuple(logits_BTV.shape) == shape, f"a tensor {shape}", tuple(logits_BTV.shape))
    expect(bool(logits_BTV.isfinite().all()), "finite numbers", "NaN or infinity")


def _looks_at_earlier_words_alone(victim: Victim) -> None:
    """Predict a word of a reply from the words before it alone."""
    embedded_BNE, replies_BT = _inputs(victim)
    others_BT = replies_BT.clone()
    others_BT[:, -1] = replies_BT.roll(1, 0)[:, -1]
    logits, other_logits = victim.reply_logits(embedded_BNE, replies_BT), victim.reply_logits(embedded_BNE, others_BT)
    difference = float((logits - other_logits).abs().max())
    expect(difference <= _TOLERANCE, "the same logits when the last word is another", f"a difference of {difference:.2g}")


def _is_the_same_alone(victim: Victim) -> None:
    """Give an input the same logits whatever else is in the batch."""
    embedded_BNE, replies_BT = _inputs(victim)
    together = victim.reply_logits(embedded_BNE, replies_BT)
    alone = torch.cat([victim.reply_logits(embedded_BNE[row : row + 1], replies_BT[row : row + 1]) for row in range(_ROWS)])
    difference = float((together - alone).abs().max())
    expect(difference <= _TOLERANCE, "the same logits alone", f"a difference of {difference:.2g}")


def _can_be_differentiated(victim: Victim) -> None:
    """Let gradients flow back into the embeddings."""
    embedded_BNE, replies_BT = _inputs(victim)
    embedded_BNE.requires_grad_()
    logits_BTV = victim.reply_logits(embedded_BNE, replies_BT)
    expect(logits_BTV.requires_grad, "logits with a gradient", "logits cut off from the embeddings")
    (slope_BNE,) = torch.autograd.grad(logits_BTV.logsumexp(-1).sum(), embedded_BNE)
    expect(bool(slope_BNE.isfinite().all()) and bool(slope_BNE.any()), "a finite gradient that is not 0", "0, NaN or infinity")


VICTIM = Kind(
    "model under trigger search",
    "parley.engine.triggers.scorers.scorer.Victim",
    ("reply_logits", "searchable_V", "embedding_VE", "input_length"),
    _make,
    (_has_words_to_search, _gives_logits, _looks_at_earlier_words_alone, _is_the_same_alone, _can_be_differentiated),
)


class _Echo:
    """A victim that repeats its input; a word is likelier the nearer its embedding is to the input's."""

    input_length = 3

    def __init__(self) -> None:
        self.embedding_VE = torch.eye(8)
        self.searchable_V = torch.arange(8) >= 2

    def reply_logits(self, embedded_BNE: Tensor, replies_BT: Tensor) -> Tensor:
        """Return logits (B, T, V): 4 for the input's word at that position, 0 for others."""
        lacking = max(0, replies_BT.shape[1] - embedded_BNE.shape[1])
        return 4 * pad(embedded_BNE, (0, 0, 0, lacking))[:, : replies_BT.shape[1]] @ self.embedding_VE.T

    def next_logits(self, words_Bt: Tensor) -> Tensor:
        """Return equal logits (B, V) of the next word of inputs."""
        return torch.zeros(len(words_Bt), 8)


_TARGETS = [[3, 5, 2], [7, 7, 4]]
_SHORT = SearchSettings(candidates=8, max_sweeps=3, restarts=2, relaxation=RelaxationSettings(rounds=1, steps=20))


def _make_method(named: Any) -> Method:
    method: Method = named(_SHORT) if callable(named) else named
    return method


def _found(method: Method, targets: list[list[int]], batch_size: int = 8) -> list[Trigger]:
    return search(_Echo(), targets, method=method, batch_size=batch_size, seed=3)


def _searches_to_an_end(method: Method) -> None:
    """Search for every target to an end, and count the candidates tried."""
    for trigger in _found(method, _TARGETS):
        expect(len(trigger.restarts) > 0, "an outcome of at least one restart", "none")
        expect(all(outcome.candidates >= 0 for outcome in trigger.restarts), "candidates counted", trigger.restarts)
        expect(all(outcome.stopped for outcome in trigger.restarts), "why a restart ended", trigger.restarts)


def _does_not_get_worse(method: Method) -> None:
    """End at a loss that is not above the loss at the start."""
    for outcome in (outcome for trigger in _found(method, _TARGETS) for outcome in trigger.restarts):
        first = outcome.loss_by_sweep[0]
        expect(outcome.loss <= first + _TOLERANCE, f"a loss of at most {first:.3g}", f"{outcome.loss:.3g}")


def _uses_searchable_words(method: Method) -> None:
    """Put only searchable words into an input."""
    for trigger in _found(method, _TARGETS):
        if trigger.words is not None:
            expect(all(word >= 2 for word in trigger.words), "words that may be searched", trigger.words)


def _search_repeats_itself(method: Method) -> None:
    """Find the same inputs from the same seed."""
    first, second = ([trigger.words for trigger in _found(method, _TARGETS)] for _ in range(2))
    expect(first == second, "the same inputs twice", f"{first} and {second}")


def _target_is_the_same_alone(method: Method) -> None:
    """Find the same input for a target whatever the other targets and the batch size."""
    together = [trigger.words for trigger in _found(method, _TARGETS)]
    same_alone(together, [_found(method, [target])[0].words for target in _TARGETS], "what is found for a target")
    same_alone(together, [trigger.words for trigger in _found(method, _TARGETS, batch_size=1)], "what is found for a target")


def _goes_on_where_it_was_left(method: Method) -> None:
    """Give the same result when another search resumes from its saved state."""
    searches = [TriggerSearch(_Echo(), method, batch_size=8) for _ in range(2)]
    first, second = (search.method.side_by_side(search.finder) for search in searches)
    targets = {" ".join(map(str, target)): torch.tensor(target) for target in _TARGETS}
    tasks = {key: [*tasks_of({key: target}, method.settings.restarts, 3)] for key, target in targets.items()}
    for restarts in tasks.values():
        first.add(restarts)
    outcomes = [outcome for _ in range(2) for outcome in first.step()]
    for key in first.keys:
        second.add(tasks[key], first.begun(key))
    while second.keys:
        outcomes += second.step()
    for key, trigger in zip(targets, _found(method, _TARGETS), strict=True):
        inputs = {outcome.task.restart: outcome.words for outcome in outcomes if outcome.task.key == key}
        expected = {outcome.task.restart: outcome.words for outcome in trigger.restarts}
        expect(inputs == expected, f"the inputs of an undisturbed search, {expected}", inputs)


METHOD = Kind(
    "method of trigger search",
    "parley.engine.triggers.methods.method.Method",
    ("search_all", "bind"),
    _make_method,
    (
        _searches_to_an_end,
        _does_not_get_worse,
        _uses_searchable_words,
        _search_repeats_itself,
        _target_is_the_same_alone,
        _goes_on_where_it_was_left,
    ),
)
