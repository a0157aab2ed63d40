"""The form that plays against the form that learns: one step and the final choice."""

from __future__ import annotations

import gc
from weakref import ref

import numpy as np
import pytest
import torch

from parley.envs.negotiation.domain import PAD_ID
from parley.policies.core.layers import by_step
from parley.policies.negotiator.inference import Tables
from parley.policies.negotiator.model import ROWS, Negotiator, make_batch
from parley.policies.negotiator.settings import NegotiatorSizes
from tests.policies.negotiator.made_up import TINY, VOCABULARY, MadeUp, dialogues, negotiator


def read(tables: Tables, contexts: np.ndarray, tokens: np.ndarray, lengths: np.ndarray) -> tuple[torch.Tensor, np.ndarray]:
    """Language states read one token at a time and kept in an order of their own, and where each is."""
    _, gates = tables.encode(contexts)
    state, states = torch.zeros(len(lengths), tables.model.sizes.hidden_language), []
    for t in range(tokens.shape[1]):
        state = tables.advance(torch.from_numpy(tokens[:, t].copy()), gates, state)
        states.append(state)
    order = np.random.default_rng(0).permutation(tokens.size)
    at = np.empty(tokens.size, dtype=np.int64)
    at[order] = np.arange(tokens.size)
    # The states past each end belong to nobody; they must not be read.
    ended = np.arange(tokens.shape[1])[:, None] >= lengths
    kept = torch.stack(states).masked_fill(torch.from_numpy(ended).unsqueeze(2), torch.nan).flatten(0, 1)[order]
    return kept, np.ascontiguousarray(at.reshape(ended.shape).T)


@torch.no_grad()
def decided(tables: Tables, made: MadeUp, indices: np.ndarray, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    contexts, tokens, lengths = made.contexts[indices], make_batch(made, indices).tokens_BT.numpy(), made.lengths[indices]
    return tables.decide(contexts, tokens, lengths, *read(tables, contexts, tokens, lengths), dtype)


@pytest.mark.parametrize("size", [1, 7, 300])
def test_the_final_choice_is_that_of_the_networks(size: int) -> None:
    model, made = negotiator(), dialogues(size, max_turns=6)
    batch = make_batch(made, np.arange(size))
    with torch.no_grad():
        _, wanted = model(batch.contexts_B6, batch.tokens_BT, batch.lengths_B)
    torch.testing.assert_close(decided(Tables(model), made, np.arange(size)), wanted, rtol=1e-4, atol=1e-5)


def test_the_final_choice_does_not_depend_on_order_or_companions() -> None:
    tables, made = Tables(negotiator()), dialogues(40, max_turns=6)
    assert len(set(made.lengths.tolist())) > 10
    together = decided(tables, made, np.arange(40))
    order = np.random.default_rng(0).permutation(40)
    torch.testing.assert_close(decided(tables, made, order), together[torch.from_numpy(order)], rtol=1e-4, atol=1e-5)
    for i in range(40):
        torch.testing.assert_close(decided(tables, made, np.array([i]))[0], together[i], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [1, 7, ROWS[torch.bfloat16] + 50])
@torch.no_grad()
def test_the_screened_choice_is_nearly_the_choice(size: int) -> None:
    model, made = Negotiator(VOCABULARY, NegotiatorSizes()), dialogues(size, max_turns=6)
    model.initialise(torch.Generator().manual_seed(0))
    tables = Tables(model.eval())
    exact, nearly = (decided(tables, made, np.arange(size), dtype) for dtype in (torch.float32, torch.bfloat16))
    assert nearly.dtype == torch.float32
    assert not torch.equal(nearly, exact), "the products must be in bfloat16"
    torch.testing.assert_close(nearly, exact, rtol=0, atol=0.01 * float(exact.max() - exact.min()))


@pytest.mark.parametrize(("lengths", "steps"), [([2, 3, 1], [0, 0, 0, 1, 1, 2]), ([1], [0]), ([], [])])
def test_tokens_stand_step_by_step(lengths: list[int], steps: list[int]) -> None:
    step, row = by_step(np.array(lengths, dtype=np.int64))
    assert step.tolist() == steps
    assert all(row[step == t].tolist() == [i for i, length in enumerate(lengths) if length > t] for t in steps)


def test_what_stands_after_the_end_is_never_read() -> None:
    tables, made = Tables(negotiator()), dialogues(5)
    indices = np.arange(5)
    tokens = make_batch(made, indices).tokens_BT.numpy()
    garbage = np.where(tokens == PAD_ID, 7, tokens)
    garbage = np.concatenate([garbage, np.full((5, 3), 9)], axis=1)
    with torch.no_grad():
        found = tables.decide(made.contexts, garbage, made.lengths, *read(tables, made.contexts, garbage, made.lengths))
    assert torch.equal(found, decided(tables, made, indices))


def test_what_one_batch_leaves_behind_does_not_show_in_the_next() -> None:
    tables, made = Tables(negotiator()), dialogues(40, max_turns=6)
    for dtype in (torch.float32, torch.bfloat16):
        first = decided(tables, made, np.arange(5), dtype)
        decided(tables, made, np.arange(40), dtype)
        assert torch.equal(decided(tables, made, np.arange(5), dtype), first)


def test_step_by_step_the_log_probabilities_are_those_of_the_whole_pass() -> None:
    model, made = negotiator(), dialogues(6)
    tables = Tables(model)
    for i in range(6):
        context, tokens = made.contexts[[i]], made.words[i]
        with torch.no_grad():
            wanted = model(torch.from_numpy(context), torch.from_numpy(tokens)[None], torch.tensor([len(tokens)]))[0][0]
            encoded, gates = tables.encode(context)
            torch.testing.assert_close(encoded, model.encode_context(torch.from_numpy(context)))
            state = torch.zeros(1, TINY.hidden_language)
            for t in range(len(tokens) - 1):
                state = tables.advance(torch.from_numpy(tokens[[t]]), gates, state)
                logits = torch.addmm(tables.word_bias_V, state, tables.word_weight_HV)
                torch.testing.assert_close(logits.log_softmax(1)[0], wanted[t].log_softmax(0), rtol=1e-4, atol=1e-5)


def test_tables_that_nobody_holds_go_at_once() -> None:
    """A training makes some at each update; those that wait for Python's search for circles would fill the memory."""
    gc.disable()
    try:
        tables = Tables(negotiator())
        assert tables.screening.cost > 0
        gone = ref(tables)
        del tables
        assert gone() is None
    finally:
        gc.enable()
