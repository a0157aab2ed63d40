"""Fitting VHRED: it learns, goes on exactly where it was, and its latent variable carries what the context does not say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from parley.envs.corpora.pairs.turns import Turn, Turns
from parley.policies.core.fitting.batches import evaluate
from parley.policies.core.fitting.loop import Epoch, Fit
from parley.policies.core.responder import DecoderSettings
from parley.policies.core.settings import FitConfig
from parley.policies.vhred.decoding import VhredResponder, divergences
from parley.policies.vhred.model import VHRED, DialogueBatch, DialogueExamples
from parley.policies.vhred.settings import VhredAttention
from tests.policies.core.fitting.killed import goes_on, ignore
from tests.policies.vhred.made_up import ATTENTIONS, VOCABULARY, examples, sizes

CONFIG = FitConfig(learning_rate=0.02, batch_size=8, max_epochs=4, patience=3, decay_epochs=1, precision="float32")
CONTEXTS: list[Turns] = [((("w1", "w2"),), ((word, "w3"),)) for word in ("w4", "w5", "w6", "w7")]
REPLIES: list[Turn] = [(("w8", "w9"),), (("w10",), ("w11",)), (("w12", "w13", "w14"),), (("w15",),)]


def overfitted(folder: Path, contexts: list[Turns], **changes: Any) -> tuple[VHRED, DialogueExamples]:
    """A model that has met four dialogues 240 times, and the four."""
    of = sizes(embed=12, encoder=8, context=8, decoder=16, **changes)
    four = DialogueExamples(contexts, REPLIES, VOCABULARY, of)
    often = DialogueExamples(contexts * 60, REPLIES * 60, VOCABULARY, of)
    config = replace(CONFIG, max_epochs=4, patience=4, decay_epochs=0, keep="last")
    model = VHRED(VOCABULARY, of)
    Fit(model, often, four, replace(config, batch_size=4), 1, folder / "state").run(ignore)
    return model, four


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_four_dialogues_are_learned_by_heart(tmp_path: Path, attention: VhredAttention) -> None:
    model, four = overfitted(tmp_path, CONTEXTS, attention=attention, anneal_steps=50)
    assert evaluate(model, four).nll < 0.3
    responder = VhredResponder(model)
    assert responder.respond(CONTEXTS) == REPLIES
    assert responder.respond(CONTEXTS, decoder=DecoderSettings.parse("beam:3")) == REPLIES
    assert divergences(model, four).mean() < 0.5, "contexts say all there is to say"


def test_what_the_context_does_not_say_goes_through_the_latent_variable(tmp_path: Path) -> None:
    model, four = overfitted(tmp_path, CONTEXTS[:1] * 4, anneal_steps=1_000_000)
    assert divergences(model, four).mean() > 1.0
    batch = four.batch(np.arange(4))
    with torch.no_grad():
        summary, posterior, _ = model._posteriors(batch)
        states_MR = model.reply_states(model.remember(summary, posterior.mean_BZ), batch.reply.words_in_BT)[batch.real_BT]
        told = float(F.cross_entropy(model.output(states_MR), batch.targets_BT[batch.real_BT]))
    assert told < 0.6 * evaluate(model, four).nll, "the prior cannot know, the posterior can"


@pytest.mark.parametrize("epoch", [1, 4])
def test_a_training_killed_within_an_epoch_goes_on_as_if_it_had_not_been(tmp_path: Path, epoch: int) -> None:
    of = sizes(dropout=0.2, word_drop=0.2, anneal_steps=12)
    train, validation = examples(40, seed=1, of=of), examples(10, seed=2, of=of)

    def fit(name: str) -> Fit[DialogueBatch]:
        return Fit(VHRED(VOCABULARY, of), train, validation, CONFIG, 1, tmp_path / name, save_every_s=0)

    assert goes_on(fit, batch=(epoch, 4)) == (epoch - 1, 3)


def test_one_epoch_is_one_epoch(tmp_path: Path) -> None:
    of = sizes()
    epochs: list[Epoch] = []
    train, validation = examples(20, seed=1, of=of), examples(10, seed=2, of=of)
    Fit(VHRED(VOCABULARY, of), train, validation, replace(CONFIG, max_epochs=1), 1, tmp_path / "state").run(epochs.append)
    assert len(epochs) == 1
