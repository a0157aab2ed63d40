from __future__ import annotations

from functools import cache
from itertools import product

import pytest
import torch

from parley.engine.triggers.searches import enumeration
from parley.engine.triggers.searches.enumeration import Space, branch_replies
from parley.envs.core.errors import ConfigError
from parley.envs.corpora.pairs.vocabulary import EOS_ID, SPECIALS, PairVocabulary
from parley.policies.seq2seq.decoding import greedy
from parley.policies.seq2seq.model import Seq2Seq
from parley.policies.seq2seq.settings import Attention, Seq2SeqSizes

WORDS = (5, 6, 8)


def made(attention: Attention) -> Seq2Seq:
    """A model whose replies are of every length and depend on the input."""
    sizes = Seq2SeqSizes(embed=6, hidden=8, attention=attention, max_source=6, max_reply=6)
    model = Seq2Seq(PairVocabulary((*SPECIALS, *"abcdef")), sizes)
    model.initialise(torch.Generator().manual_seed(4))
    for name, parameter in model.named_parameters():
        parameter.data.mul_(1 if "bias" in name else 5 if "embedding" in name else 9)
    return model.eval()


def replies(model: Seq2Seq, space: Space) -> dict[tuple[int, ...], list[int]]:
    """What is said to every input of every branch, each of which comes once."""
    said: dict[tuple[int, ...], list[int]] = {}
    for beginning in space.branches():
        size = 0
        for words_BL, reply_BT in branch_replies(model, space, beginning):
            size += len(words_BL)
            for words, reply in zip(words_BL.tolist(), reply_BT.tolist(), strict=True):
                assert tuple(words) not in said
                assert tuple(words[: len(beginning)]) == beginning
                said[tuple(words)] = reply
        below = range(space.max_length - len(beginning) + 1) if len(beginning) == space.branch_length else [0]
        assert size == sum(len(space.words) ** length for length in below)
    return said


def cut(reply: list[int]) -> list[int]:
    return reply[: reply.index(EOS_ID)] if EOS_ID in reply else reply


@cache
def plain(attention: Attention, max_length: int) -> dict[tuple[int, ...], list[int]]:
    """The replies to all inputs, decoded one by one."""
    every = [words for length in range(1, max_length + 1) for words in product(WORDS, repeat=length)]
    model = made(attention)
    return {words: greedy(model, [words])[0] for words in every}


@pytest.mark.parametrize("attention", ["none", "general", "released"])
@pytest.mark.parametrize("rows", [1, 7, 1024])
def test_every_input_is_replied_to_as_if_alone(attention: Attention, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enumeration, "_ROWS", rows)
    model, space = made(attention), Space(WORDS, max_length=4)
    said = replies(model, space)
    assert len(said) == len(space) == 3 + 9 + 27 + 81
    assert {words: cut(reply) for words, reply in said.items()} == plain(attention, 4)
    assert len({len(cut(reply)) for reply in said.values()}) > 3, "replies of several lengths"
    assert len({tuple(reply) for reply in said.values()}) > 20


def test_a_reply_is_filled_up_with_its_end() -> None:
    for reply in replies(made("none"), Space(WORDS, max_length=2)).values():
        assert set(reply[len(cut(reply)) :]) <= {EOS_ID}


def test_a_shared_beginning_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every input costs the encoder its last word and its end."""
    model, space = made("general"), Space(WORDS, max_length=5)
    steps = 0
    forward = model.encoder.forward

    def counted(embedded: torch.Tensor, *state: object) -> object:
        nonlocal steps
        steps += embedded.shape[0] * embedded.shape[1]
        return forward(embedded, *state)  # type: ignore[arg-type]

    monkeypatch.setattr(model.encoder, "forward", counted)
    num = len(replies(model, space))
    beginnings = sum(len(beginning) - 1 for beginning in space.branches())
    assert steps == 2 * num + beginnings


def test_branches_cover_all_inputs_whatever_their_length() -> None:
    model = made("none")
    whole = replies(model, Space(WORDS, max_length=3, branch_length=1))
    assert whole == replies(model, Space(WORDS, max_length=3, branch_length=3))


@pytest.mark.parametrize("wrong", [{"words": ()}, {"max_length": 0}, {"branch_length": 0}, {"branch_length": 4}])
def test_a_space_without_inputs_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Space(**{"words": WORDS, "max_length": 3, **wrong})  # type: ignore[arg-type]
