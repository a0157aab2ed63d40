"""Decoders of a sequence-to-sequence model against plain computations, and alone against together."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

import pytest
import torch

from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID, EOU_ID, SPECIALS, PairVocabulary
from parley.policies.core import decoding as module
from parley.policies.core.decoding import Repetition, charges_on_words
from parley.policies.core.responder import DecoderSettings
from parley.policies.seq2seq.decoding import ReplyDecoder, greedy, load_responder, sample
from parley.policies.seq2seq.model import LanguageModel, Seq2Seq
from parley.policies.seq2seq.scoring import load_language_model, load_seq2seq, save_model
from parley.policies.seq2seq.settings import LanguageModelSizes, Seq2SeqSizes

WORDS = PairVocabulary((*SPECIALS, "yes", "no", "red", "tea", "the"))
YES, RED, THE = (WORDS.index[word] for word in ("yes", "red", "the"))
SOURCES = [[5, 6], [6], [5, 5, 6, 7, 5], [6, 9, 8], [7, 7], [9, 5, 8]]
SEEDS = range(30, 36)


def drawn(model: torch.nn.Module, seed: int, bound: float = 1.5) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data.uniform_(-bound, bound, generator=generator)


def tiny(seed: int, backward: bool = False, max_reply: int = 6, bound: float = 1.5) -> Seq2Seq:
    sizes = Seq2SeqSizes(embed=5, hidden=6, max_source=5, max_reply=max_reply)
    model = Seq2Seq(WORDS, sizes.exchanged if backward else sizes).eval()
    drawn(model, seed, bound)
    return model


@pytest.fixture
def runs(tmp_path: Path) -> dict[str, str]:
    """A backward model and a language model, whose vocabulary is another."""
    lm = LanguageModel(PairVocabulary((*SPECIALS, "the", "red", "yes", "no")), LanguageModelSizes(embed=4, hidden=5)).eval()
    drawn(lm, 5)
    save_model(tiny(2, backward=True), tmp_path / "backward", {})
    save_model(lm, tmp_path / "lm", {})
    return {name: str(tmp_path / name) for name in ("backward", "lm")}


def decoder(model: Seq2Seq, text: str, runs: dict[str, str] | None = None) -> ReplyDecoder:
    return ReplyDecoder(model, DecoderSettings.parse(text.format(**runs or {})))


EVERY = (
    "greedy",
    "beam:4",
    "sample:1.5",
    "diverse:4,rate=1",
    "mmi:4,backward={backward},rate=1",
    "mmi-antilm:3,lm={lm},weight=0.9",
    "greedy:repeat=3,forbid=<unk> <pad>",
    "mmi:4,backward={backward},repeat=2,forbid=no",
    "mmi-antilm:3,lm={lm},repeat=2,forbid=no,words=1",
)


@pytest.mark.parametrize("text", EVERY)
def test_a_reply_does_not_depend_on_its_batch(text: str, runs: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    answer = decoder(tiny(4, bound=3.5), text, runs)
    together = answer(SOURCES, SEEDS)
    assert answer(SOURCES[::-1], SEEDS[::-1]) == together[::-1]
    monkeypatch.setattr(module, "_ROWS", 1)
    assert answer(SOURCES, SEEDS) == together
    assert len({tuple(reply) for reply in together}) > 2
    assert answer([], []) == []


def test_plain_decoders_are_the_functions_of_their_names() -> None:
    model = tiny(0)
    assert decoder(model, "greedy")(SOURCES) == decoder(model, "beam:1")(SOURCES) == greedy(model, SOURCES)
    assert decoder(model, "sample:0.8")(SOURCES, SEEDS) == sample(model, SOURCES, SEEDS, 0.8)


def test_a_blind_decoder_says_to_everybody_what_it_says_to_no_words() -> None:
    model = tiny(2)
    assert decoder(model, "blind")(SOURCES) == greedy(model, [()]) * len(SOURCES) != greedy(model, SOURCES)
    assert decoder(model, "blind")([]) == []


@torch.no_grad()
def log_p(model: Seq2Seq, source: list[int], reply: list[int]) -> float:
    """Of the whole reply, by the plain forward pass."""
    read = torch.tensor([[*source, EOU_ID]])
    said, targets = torch.tensor([[BOS_ID, *reply]]), torch.tensor([[*reply, EOS_ID]])
    nats = model(read, torch.tensor([read.shape[1]]), said).log_softmax(2).gather(2, targets.unsqueeze(2))
    return float(nats.sum())


def every_reply(longest: int) -> list[list[int]]:
    others = [word for word in range(len(WORDS)) if word != EOS_ID]
    return [list(words) for length in range(longest + 1) for words in product(others, repeat=length)]


@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0])
def test_the_order_by_a_backward_model_is_that_of_a_plain_computation(weight: float, runs: dict[str, str]) -> None:
    forward, backward = tiny(0, max_reply=3), load_seq2seq(Path(runs["backward"]))
    # A beam of all 91 replies.
    answer = decoder(forward, f"mmi:100,backward={{backward}},weight={weight}", runs)
    for source, found in zip(SOURCES[:3], answer.reranked(SOURCES[:3]), strict=True):
        kept = source[:4]
        wanted = {
            tuple(reply): (1 - weight) * log_p(forward, kept, reply) / (len(reply) + 1)
            + weight * log_p(backward, reply, kept) / (len(kept) + 1)
            for reply in every_reply(2)
        }
        assert {tuple(each.words) for each in found} == set(wanted)
        assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
        for each in found:
            assert each.score == pytest.approx(wanted[tuple(each.words)], abs=1e-5)
        assert answer([source]) == [found[0].words]


@torch.no_grad()
@pytest.mark.parametrize("num_words", [1, 5])
def test_a_wide_beam_against_a_language_model_finds_the_best_of_all_replies(num_words: int, runs: dict[str, str]) -> None:
    model, lm = tiny(1, max_reply=3), load_language_model(Path(runs["lm"]))
    to_lm = lm.vocabulary.encode(WORDS.words).tolist()

    def score(source: list[int], reply: list[int]) -> float:
        words = torch.tensor([[to_lm[word] for word in (BOS_ID, *reply, EOS_ID)]])
        nats = lm(words[:, :-1]).log_softmax(2).gather(2, words[:, 1:, None]).flatten()
        return (log_p(model, source, reply) - 0.8 * float(nats[:num_words].sum())) / (len(reply) + 1) ** 0.5

    sayable = [reply for reply in every_reply(2) if not {0, BOS_ID} & set(reply)]
    found = decoder(model, f"mmi-antilm:100,lm={{lm}},weight=0.8,words={num_words},length=0.5", runs)(SOURCES[:3])
    assert found == [max(sayable, key=lambda reply, source=source: score(source[:4], reply)) for source in SOURCES[:3]]
    assert found != decoder(model, "beam:100,length=0.5")(SOURCES[:3])


def test_a_charged_beam_finds_the_best_of_all_replies() -> None:
    model = tiny(3, max_reply=4)
    model.output.bias.data[EOS_ID] -= 4

    def score(source: list[int], reply: list[int]) -> float:
        content = [word for word in reply if WORDS.words[word] in ("yes", "red", "tea")]
        repeated = len(content) - len(set(content))
        return log_p(model, source, reply) - 2.5 * repeated if 4 not in reply else -math.inf

    found = decoder(model, "beam:1000,length=0,repeat=2.5,forbid=<unk>")(SOURCES[:2])
    assert found == [max(every_reply(3), key=lambda reply, source=source: score(source[:4], reply)) for source in SOURCES[:2]]


RULES = ("greedy", "beam:3", "sample:2", "diverse:3", "mmi:3,backward={backward}", "mmi-antilm:3,lm={lm}")


@pytest.mark.parametrize("text", RULES)
def test_forbidden_words_are_never_said(text: str, runs: dict[str, str]) -> None:
    model = tiny(4)
    model.output.bias.data[RED] += 5
    option = "," if ":" in text else ":"
    assert any(RED in reply for reply in decoder(model, text, runs)(SOURCES, SEEDS))
    # A word that the model does not know it cannot say.
    barred = decoder(model, f"{text}{option}forbid=red unheard-of", runs)(SOURCES, SEEDS)
    assert all(RED not in reply for reply in barred)
    assert any(barred)


def test_a_content_word_said_before_costs_more_and_a_stop_word_does_not() -> None:
    model = tiny(0)
    model.output.weight.data.zero_()
    model.output.bias.data[:] = torch.tensor([-9.0, -9, -1.5, -9, -9, 0, -1, -9, -9, -9])
    assert decoder(model, "greedy")(SOURCES[:1]) == [[YES] * 5]
    assert decoder(model, "greedy:repeat=0.9")(SOURCES[:1]) == [[YES] * 5]
    # "no" is a stop word, so once "yes" is dear it is said to the end; what was said twice costs once.
    assert decoder(model, "greedy:repeat=1.1")(SOURCES[:1]) == [[YES, *[YES + 1] * 4]]


def test_charges_leave_other_rows_and_words_alone() -> None:
    scores = torch.randn(3, len(WORDS), generator=torch.Generator().manual_seed(0))
    charge = Repetition(WORDS, 2.0)
    state = charge.begin(3, torch.device("cpu"))
    for place, words in enumerate(([BOS_ID] * 3, [YES, THE, RED], [YES, THE, YES])):
        charged, state = charge.step(place, scores, torch.tensor(words), state)
    off = torch.zeros_like(scores)
    off[0, YES] = off[2, YES] = off[2, RED] = 2.0
    torch.testing.assert_close(charged, scores - off)


def test_an_end_cannot_be_forbidden() -> None:
    with pytest.raises(ConfigError, match="the end of a reply cannot be forbidden"):
        charges_on_words(WORDS, ["</s>"], 0)


def test_a_model_that_does_not_fit_is_named(tmp_path: Path, runs: dict[str, str]) -> None:
    save_model(tiny(0), tmp_path / "forward", {})
    with pytest.raises(CheckpointError, match=r"no backward model(.|\n)*--backward"):
        decoder(tiny(0), f"mmi:backward={tmp_path / 'forward'}")
    with pytest.raises(CheckpointError, match="of another kind"):
        decoder(tiny(0), "mmi-antilm:lm={backward}", runs)
    with pytest.raises(CheckpointError, match="no checkpoint is there"):
        decoder(tiny(0), f"mmi:backward={tmp_path / 'nowhere'}")
    with pytest.raises(CheckpointError, match=r"does not answer them(.|\n)*mmi:backward"):
        load_responder(Path(runs["backward"]))
    model = tiny(0)
    model.sizes = Seq2SeqSizes(embed=5, hidden=6, turns=2)
    with pytest.raises(ConfigError, match=r"contexts of other turns(.|\n)*1 turns, the model reads 2"):
        decoder(model, "mmi:backward={backward}", runs)
