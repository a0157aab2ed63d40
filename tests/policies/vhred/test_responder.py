"""VHRED on disk, and asked in words."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from envs.core.errors import CheckpointError
from envs.pairs.turns import Turn, turn_of
from policies.decoders import DecoderSettings
from policies.seq2seq.checkpoints import load_seq2seq
from policies.vhred.checkpoints import load_model, save_model
from policies.vhred.decoding import greedy
from policies.vhred.responder import VhredResponder, load_vhred
from policies.vhred.settings import VhredAttention
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


def test_another_kind_of_model_is_named(tmp_path: Path) -> None:
    save_model(vhred(), tmp_path / "model", {})
    with pytest.raises(CheckpointError, match=r"another kind(.|\n)*'vhred'(.|\n)*'seq2seq'"):
        load_seq2seq(tmp_path / "model")
    with pytest.raises(CheckpointError, match="no checkpoint is there"):
        load_vhred(tmp_path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_named(tmp_path: Path, value: float) -> None:
    model = vhred()
    model.prior.mean.weight.data[2, 1] = value
    save_model(model, tmp_path, {})
    with pytest.raises(CheckpointError, match=r"not all finite(.|\n)*NaN or infinity in prior\.mean\.weight\n"):
        load_model(tmp_path)


@pytest.mark.parametrize("sizes", [{"latent": 5}, {"turns": 0}, {"heads": 2}], ids=str)
def test_weights_that_do_not_fit_the_sizes_are_named(tmp_path: Path, sizes: dict[str, int]) -> None:
    save_model(vhred(), tmp_path, {})
    config = json.loads((tmp_path / "config.json").read_text())
    config["sizes"] |= sizes
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="do not fit its sizes"):
        load_model(tmp_path)


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
