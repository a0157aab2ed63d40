"""Our own networks as victims: text becomes their words and back."""

from __future__ import annotations

import pytest
import torch

from parley.engine.triggers.victims import Seq2SeqVictim
from parley.envs.core.errors import DataError
from parley.envs.corpora.pairs.vocabulary import EOS, EOS_ID
from tests.policies.seq2seq.made_up import VOCABULARY, language_model, seq2seq

FIRST, SECOND = VOCABULARY.words[-2:]


def test_a_target_is_its_words_and_their_end() -> None:
    victim = Seq2SeqVictim(seq2seq())
    ids = victim.target(f"{FIRST}  {SECOND}")
    assert ids.tolist() == [len(VOCABULARY) - 2, len(VOCABULARY) - 1, EOS_ID]
    assert victim.words(ids.tolist()) == [FIRST, SECOND, EOS]
    assert victim.text(ids[:-1].tolist()) == f"{FIRST} {SECOND}"


def test_words_that_it_cannot_say_are_named() -> None:
    with pytest.raises(DataError, match=r"cannot say some words(.|\n)*zebra, </s>"):
        Seq2SeqVictim(seq2seq()).target(f"{FIRST} zebra </s>")


def test_likely_inputs_are_searchable_words_of_full_length_that_depend_on_their_seed() -> None:
    victim = Seq2SeqVictim(seq2seq(), language_model())
    many = victim.likely_inputs(range(20))
    assert many.shape == (20, victim.input_length)
    assert bool(victim.searchable_V[many].all())
    assert torch.equal(victim.likely_inputs([7])[0], many[7])
