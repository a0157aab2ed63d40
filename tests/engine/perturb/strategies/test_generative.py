"""Generative paraphrase: which utterances change, what may enter, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from parley.engine.perturb.catalogue import Resources, build
from parley.engine.perturb.strategies import generative
from parley.engine.perturb.strategies.generative import GenerativeParaphrase
from parley.engine.perturb.strategy import PerturbSettings
from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.corpora.pairs.turns import Turns, parse_turns
from parley.envs.corpora.pairs.vocabulary import EOS_ID, SPECIALS, PairVocabulary
from parley.policies.paraphraser import model as decoding
from parley.policies.paraphraser.model import PointerGenerator, save_pointer_generator
from parley.policies.paraphraser.settings import PointerSizes
from tests.engine.perturb.fakes import large

SAYS = {"my screen is dark": ["the screen is black", "my screen is dark"], "thanks": ["thanks", "thank you"], "it froze": []}
CONTEXTS = [parse_turns("my screen is dark <eou> <eou> it froze <eot> thanks"), parse_turns("my screen is dark")]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What the network was asked for, batch by batch; it answers by `SAYS`."""
    batches: list[list[str]] = []

    def say(_: PointerGenerator, sentences: Sequence[Sequence[str]], config: object) -> list[list[tuple[str, ...]]]:
        batches.append([" ".join(words) for words in sentences])
        return [[tuple(each.split()) for each in SAYS.get(text, [])] for text in batches[-1]]

    monkeypatch.setattr(decoding, "paraphrases", say)
    return batches


def network() -> PointerGenerator:
    words = ("my", "the", "screen", "is", "dark", "thanks")
    model = PointerGenerator(PairVocabulary((*SPECIALS, *words)), PointerSizes(embed=4, hidden=4))
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data.uniform_(-1.5, 1.5, generator=generator)
    # A random network seldom ends what it says.
    model.output.bias.data[EOS_ID] += 4
    return model.eval()


def strategy(words: set[str] | None = None, rule: str = "released") -> GenerativeParaphrase:
    settings = PerturbSettings(lexicon="built-in", rule=rule)  # type: ignore[arg-type]  # a rule by its name
    return GenerativeParaphrase(network(), Resources(settings, words=words), settings)


def test_the_likeliest_paraphrase_takes_the_place_of_an_utterance(asked: list[list[str]]) -> None:
    assert strategy().perturb(CONTEXTS, [0, 1]) == [
        parse_turns("the screen is black <eou> <eou> it froze <eot> thanks"),
        parse_turns("the screen is black"),
    ]


def test_only_words_that_the_model_knows_enter(asked: list[list[str]]) -> None:
    # "screen" and "is" are unknown as well, but they were there.
    assert strategy({"the", "black"}).perturb(CONTEXTS[1:], [0]) == [parse_turns("the screen is black")]
    assert strategy({"the"}).perturb(CONTEXTS, [0, 1]) == CONTEXTS


@pytest.mark.parametrize(
    ("before", "said", "after"),
    [
        ("well , it is dark", ["well , it is dark", "it is dark"], "it is dark"),
        ("maybe the screen froze", ["maybe froze", "perhaps the screen froze"], "perhaps the screen froze"),
        ("i 'm not sure", ["i 'm sure", "i 'm unsure"], "i 'm unsure"),
        ("it is a strange noise", ["a noise is strange", "it is a weird noise ."], "it is a strange noise"),
        ("it is a strange noise", ["it is strange noise", "it is a weird noise"], "it is a weird noise"),
        ("looks ok", ["looks"], "looks ok"),
    ],
)
def test_by_the_papers_rule_the_likeliest_that_says_the_same_is_taken(
    monkeypatch: pytest.MonkeyPatch, before: str, said: list[str], after: str
) -> None:
    monkeypatch.setattr(decoding, "paraphrases", lambda *_: [[tuple(each.split()) for each in said]])
    assert strategy(rule="paper").perturb([parse_turns(before)], [0]) == [parse_turns(after)]


def test_a_paraphrase_that_the_corpus_finds_odd_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "paraphrases", lambda *_: [[("it", "is", "a", "weird", "noise")]])
    said = [tuple(line.split()) for line in ["it is a strange noise", "my weird screen"] * 9]
    for settings_ratio, after in ((1.01, "strange"), (99.0, "weird")):
        settings = PerturbSettings(lexicon="built-in", perplexity_ratio=settings_ratio)
        resources = Resources(settings)
        resources.__dict__["trigrams"] = large(said)
        made = GenerativeParaphrase(network(), resources, settings)
        assert made.perturb([parse_turns("it is a strange noise")], [0]) == [parse_turns(f"it is a {after} noise")]


def test_every_utterance_is_decoded_once(asked: list[list[str]]) -> None:
    found = strategy()
    found.perturb(CONTEXTS, [0, 1])
    assert sorted(asked[0]) == ["", "it froze", "my screen is dark", "thanks"]
    found.perturb([parse_turns("thanks <eou> hello")], [0])
    assert asked[1:] == [["hello"]]


def test_a_network_perturbs_each_context_alone_and_keeps_the_boundaries() -> None:
    contexts: list[Turns] = [*CONTEXTS, parse_turns("<eot> the dark screen <eou> caf\N{LATIN SMALL LETTER E WITH ACUTE} ?")]
    found = strategy().perturb(contexts, [0, 1, 2])
    assert found == [strategy().perturb([turns], [seed])[0] for seed, turns in enumerate(contexts)]
    assert found != contexts
    for before, after in zip(contexts, found, strict=True):
        assert [list(map(bool, turn)) for turn in before] == [list(map(bool, turn)) for turn in after]


def test_a_stored_paraphraser_is_found_by_its_run(tmp_path: Path) -> None:
    save_pointer_generator(network(), tmp_path / "checkpoint", {})
    settings = PerturbSettings(paraphraser=tmp_path, lexicon="built-in")
    (found,) = build(["generative-paraphrase"], settings, Resources(settings))
    assert found.name == "generative-paraphrase"
    assert len(found.perturb(CONTEXTS, [0, 1])) == 2


def test_a_missing_paraphraser_is_named_with_the_command_that_trains_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="parley train paraphraser"):
        generative.build(PerturbSettings(), Resources(PerturbSettings()))
    settings = PerturbSettings(paraphraser=tmp_path / "none")
    with pytest.raises(CheckpointError, match="no checkpoint is there"):
        generative.build(settings, Resources(settings))
