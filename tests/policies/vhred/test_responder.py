"""VHRED on disk, and asked in words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from parley.envs.corpora.pairs.turns import Turn, turn_of
from parley.policies.core.responder import DecoderSettings
from parley.policies.vhred.decoding import VhredResponder, greedy, load_vhred
from parley.policies.vhred.settings import VhredAttention
from tests.policies.vhred.made_up import ATTENTIONS, VOCABULARY, contexts, dialogues, examples, vhred


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_a_run_folder_or_its_checkpoint_gives_the_model_back(tmp_path: Path, attention: VhredAttention) -> None:
    model = vhred(attention=attention)
    model.steps += 7
    VhredResponder(model).save(tmp_path / "checkpoint", {"role": "made up"})
    for folder in (tmp_path, tmp_path / "checkpoint"):
        found = load_vhred(folder).model
        assert (found.vocabulary, found.sizes, found.training) == (model.vocabulary, model.sizes, False)
        assert all(torch.equal(value, model.state_dict()[name]) for name, value in found.state_dict().items())


def test_it_answers_in_words_and_utterances() -> None:
    responder = VhredResponder(vhred())
    assert responder.turns == 3
    asked = dialogues(8)[0]
    replies = responder.respond(asked)
    assert replies == [turn_of(VOCABULARY.decode(reply)) for reply in greedy(responder.model, contexts(8))]
    older: Turn = (("older",),)
    longer = [((older, *context), reply) for context, reply in zip(asked, replies, strict=True) if len(context) >= 3]
    assert longer
    assert responder.respond([context for context, _ in longer]) == [reply for _, reply in longer]
    assert responder.respond([]) == responder.respond([], decoder=DecoderSettings.parse("beam:2")) == []


def test_its_vectors_are_its_embeddings_of_the_words_that_it_knows() -> None:
    responder = VhredResponder(vhred())
    found = responder.vectors(["w3", "nobody", "<eou>", "w0"])
    wanted = responder.model.embedding.weight.detach().numpy()[VOCABULARY.encode(["w3", "w0"])]
    assert found.dtype == np.float32
    assert np.array_equal(found, wanted)
    assert responder.vectors(["nobody"]).shape == (0, 7)


def test_its_examples_are_what_it_is_fitted_to() -> None:
    found, wanted = VhredResponder(vhred()).examples(*dialogues(5)), examples(5)
    assert found.num_targets.tolist() == wanted.num_targets.tolist()
    rows = np.arange(5)
    assert torch.equal(found.batch(rows).context.words_BKN, wanted.batch(rows).context.words_BKN)
