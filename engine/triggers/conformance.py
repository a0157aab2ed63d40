"""What models under search (`scorer.Victim`) and methods of search (`method.Method`) promise."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from engine.triggers.batch import Outcome, tasks_of
from engine.triggers.batch_finder import BatchFinder
from engine.triggers.goal import Goal
from engine.triggers.method import Method
from engine.triggers.objective import TriggerObjective
from engine.triggers.scorer import PlainScorer, Victim
from engine.triggers.settings import RelaxationSettings, SearchSettings
from envs.core.conformance import Kind, expect

_ROWS, _REPLY = 3, 4
_TOLERANCE = 1e-4


def _make(named: Any) -> Victim:
    victim: Victim = named() if isinstance(named, type) or (callable(named) and not hasattr(named, "reply_logits")) else named
    return victim


def _inputs(victim: Victim) -> tuple[Tensor, Tensor]:
    """Some inputs as embeddings (B, N, E), and replies (B, T) int64."""
    generator = torch.Generator().manual_seed(1)
    words_S = victim.searchable_V.nonzero()[:, 0].cpu()
    drawn_BN = words_S[torch.randint(len(words_S), (_ROWS, victim.input_length), generator=generator)]
    replies_BT = words_S[torch.randint(len(words_S), (_ROWS, _REPLY), generator=generator)]
    device = victim.embedding_VE.device
    return victim.embedding_VE[drawn_BN.to(device)].detach(), replies_BT.to(device)


def _has_words_to_search(victim: Victim) -> None:
    """Has embeddings (V, E), says which words may be searched (V) and how many an input holds."""
    shape = tuple(victim.embedding_VE.shape)
    expect(len(shape) == 2 and victim.embedding_VE.is_floating_point(), "embedding_VE of floats (V, E)", shape)
    allowed = victim.searchable_V
    right = allowed.dtype == torch.bool and tuple(allowed.shape) == shape[:1]
    expect(right, f"searchable_V of bools ({shape[0]},)", f"{allowed.dtype} {tuple(allowed.shape)}")
    expect(bool(allowed.any()), "a word that may be searched", "none")
    expect(victim.input_length >= 1, "input_length of at least 1", victim.input_length)


def _gives_logits(victim: Victim) -> None:
    """Gives finite logits (B, T, V) of each word of the replies."""
    embedded_BNE, replies_BT = _inputs(victim)
    logits_BTV = victim.reply_logits(embedded_BNE, replies_BT)
    wanted = (_ROWS, _REPLY, len(victim.embedding_VE))
    expect(tuple(logits_BTV.shape) == wanted, f"a tensor {wanted}", tuple(logits_BTV.shape))
    expect(bool(logits_BTV.isfinite().all()), "finite numbers", "NaN or infinity")


def _looks_at_earlier_words_alone(victim: Victim) -> None:
    """Predicts a word of a reply from the words before it alone."""
    embedded_BNE, replies_BT = _inputs(victim)
    others_BT = replies_BT.clone()
    others_BT[:, -1] = replies_BT.roll(1, 0)[:, -1]
    logits, others = victim.reply_logits(embedded_BNE, replies_BT), victim.reply_logits(embedded_BNE, others_BT)
    difference = float((logits - others).detach().abs().max())
    expect(difference <= _TOLERANCE, "the same logits when the last word is another", f"a difference of {difference:.2g}")


def _is_the_same_alone(victim: Victim) -> None:
    """Gives an input the same logits whatever else is in the batch."""
    embedded_BNE, replies_BT = _inputs(victim)
    together = victim.reply_logits(embedded_BNE, replies_BT)
    alone = torch.cat([victim.reply_logits(embedded_BNE[row : row + 1], replies_BT[row : row + 1]) for row in range(_ROWS)])
    difference = float((together - alone).detach().abs().max())
    expect(difference <= _TOLERANCE, "the same logits alone", f"a difference of {difference:.2g}")


def _can_be_differentiated(victim: Victim) -> None:
    """Lets gradients flow back into the embeddings."""
    embedded_BNE, replies_BT = _inputs(victim)
    embedded_BNE.requires_grad_()
    logits_BTV = victim.reply_logits(embedded_BNE, replies_BT)
    expect(logits_BTV.requires_grad, "logits with a gradient", "logits cut off from the embeddings")
    (slope_BNE,) = torch.autograd.grad(logits_BTV.logsumexp(-1).sum(), embedded_BNE)
    expect(bool(slope_BNE.isfinite().all()) and bool(slope_BNE.any()), "a finite gradient that is not 0", "0, NaN or infinity")


VICTIM = Kind(
    "model under trigger search",
    "engine.triggers.scorer.Victim",
    ("reply_logits", "searchable_V", "embedding_VE", "input_length"),
    _make,
    (_has_words_to_search, _gives_logits, _looks_at_earlier_words_alone, _is_the_same_alone, _can_be_differentiated),
)


class _Toy:
    """A victim of nine words; two may not be searched. It reads each of its three places with weights of its own."""

    input_length = 3

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(1)
        self.embedding_VE, self._said_VE = torch.randn(2, 9, 4, generator=generator)
        self._read_NEE, self._out_EV = torch.randn(3, 4, 4, generator=generator), torch.randn(4, 9, generator=generator)
        self.searchable_V = torch.arange(9) >= 2

    def reply_logits(self, embedded_BNE: Tensor, replies_BT: Tensor) -> Tensor:
        before_BTE = self._said_VE[replies_BT].roll(1, 1).index_fill(1, torch.tensor([0]), 0.0)
        heard_B1E = torch.einsum("bne,nef->bf", embedded_BNE, self._read_NEE)[:, None]
        return torch.tanh(heard_B1E + before_BTE) @ self._out_EV


_EFFORT = SearchSettings(
    candidates=4, max_sweeps=3, restarts=2, stop_on_hit=False, relaxation=RelaxationSettings(rounds=1, steps=5)
)
_TARGETS = {"first": torch.tensor([3, 7, 1]), "second": torch.tensor([8, 1]), "third": torch.tensor([4, 4, 4, 1])}
_SCORER = PlainScorer(_Toy(), TriggerObjective(kind="likelihood"))


def _make_method(named: Any) -> Method:
    method: Method = named(_EFFORT) if isinstance(named, type) else named
    return method.bind(Goal(_SCORER, lambda reading: False))


def _found(method: Method, *keys: str) -> list[Outcome]:
    tasks = tasks_of({key: _TARGETS[key] for key in keys}, _EFFORT.restarts, seed=1)
    return list(method.search_all(tasks, BatchFinder(4, "searches")))


def _ends_every_search(method: Method) -> None:
    """Ends every search, and gives the outcomes of a target's restarts in rising order."""
    for key in _TARGETS:
        restarts = [outcome.task.restart for outcome in _found(method, *_TARGETS) if outcome.task.key == key]
        expect(restarts == [*range(_EFFORT.restarts)], f"restarts {[*range(_EFFORT.restarts)]} of {key!r}", restarts)


def _finds_words_that_may_be_searched(method: Method) -> None:
    """Finds inputs of words that may be searched, as many as an input holds."""
    for outcome in _found(method, *_TARGETS):
        words = outcome.words
        right = words is None or (len(words) == _Toy.input_length and min(words) >= 2)
        expect(right, f"{_Toy.input_length} words of {_SCORER.victim.searchable_V.nonzero()[:, 0].tolist()}", words)


def _tells_the_loss_of_what_it_finds(method: Method) -> None:
    """Gives the loss of the input that it found."""
    for outcome in _found(method, *_TARGETS) if method.searches_words else ():
        loss = float(_SCORER.losses([outcome.task.target], torch.tensor([outcome.words])))
        expect(abs(loss - outcome.loss) <= _TOLERANCE, f"a loss of {loss:.6f}", f"{outcome.loss:.6f}")


def _finds_the_same_in_any_company(method: Method) -> None:
    """Finds the same for a target whatever else is searched for."""
    together = {(outcome.task.key, outcome.task.restart): outcome for outcome in _found(method, *_TARGETS)}
    for key in _TARGETS:
        for alone in _found(method, key):
            other = together[key, alone.task.restart]
            same = alone.words == other.words and abs(alone.loss - other.loss) <= _TOLERANCE
            expect(same, f"{alone.words} for {key!r}", f"{other.words} beside other targets")


METHOD = Kind(
    "method of trigger search",
    "engine.triggers.method.Method",
    ("search_all", "bind", "uses"),
    _make_method,
    (
        _ends_every_search,
        _finds_words_that_may_be_searched,
        _tells_the_loss_of_what_it_finds,
        _finds_the_same_in_any_company,
    ),
)
