"""Models that answer and rewrite do on a GPU what they do on the CPU; robustness and paraphrases are decoded so."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from torch import nn

from parley.envs.corpora.pairs.turns import Turns
from parley.policies.core.fitting.batches import evaluate
from parley.policies.core.responder import DecoderSettings
from parley.policies.paraphraser.model import paraphrases
from parley.policies.paraphraser.settings import BeamConfig
from parley.policies.seq2seq.decoding import Seq2SeqResponder
from parley.policies.vhred.decoding import VhredResponder
from tests.devices import CLOSE, SHARE, on_each_device
from tests.policies.paraphraser.made_up import network
from tests.policies.seq2seq import made_up as pairs
from tests.policies.vhred import made_up as dialogues

NUM_CONTEXTS = 40


def on(device: str, model: Any) -> Any:
    assert isinstance(model, nn.Module)
    return copy.deepcopy(model).to(device)


def seq2seq(device: str) -> Seq2SeqResponder:
    return Seq2SeqResponder(on(device, pairs.seq2seq()))


def vhred(device: str) -> VhredResponder:
    return VhredResponder(on(device, dialogues.vhred()))


RESPONDERS = {"seq2seq": seq2seq, "vhred": vhred}
Maker = Callable[[str], Any]


def contexts() -> list[Turns]:
    return list(dialogues.dialogues(NUM_CONTEXTS)[0])


def share(found: list[Any], wanted: list[Any]) -> float:
    return sum(ours == theirs for ours, theirs in zip(found, wanted, strict=True)) / len(wanted)


@on_each_device
@pytest.mark.parametrize("make", RESPONDERS.values(), ids=RESPONDERS)
@pytest.mark.parametrize("decoder", ["greedy", "beam:4"])
def test_it_answers_the_same(make: Maker, decoder: str, device: str) -> None:
    settings = DecoderSettings.parse(decoder)
    wanted = make("cpu").respond(contexts(), decoder=settings)
    assert len(set(wanted)) > 1
    assert share(make(device).respond(contexts(), decoder=settings), wanted) >= SHARE


@on_each_device
def test_it_predicts_replies_as_well(device: str) -> None:
    replies = seq2seq("cpu").respond(contexts())
    found, wanted = (
        vars(evaluate(asked.model, asked.examples(contexts(), replies))) for asked in (seq2seq(device), seq2seq("cpu"))
    )
    np.testing.assert_allclose(found["nll_sums"], wanted["nll_sums"], **CLOSE)
    assert found["num_targets"].tolist() == wanted["num_targets"].tolist()


@on_each_device
@pytest.mark.parametrize("covers", [False, True], ids=["plain", "coverage"])
def test_it_rewrites_the_same(covers: bool, device: str) -> None:
    sentences = [tuple(f"w{(first * step) % 12}" for step in range(1, 2 + first % 5)) for first in range(1, NUM_CONTEXTS + 1)]
    config = BeamConfig(min_share=0.5, max_share=1.0, max_extra=1)
    model = network(covers=covers)
    wanted = paraphrases(model, sentences, config)
    assert share(paraphrases(on(device, model), sentences, config), wanted) >= SHARE
