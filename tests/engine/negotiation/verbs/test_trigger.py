"""Words that are searched within a talk: what the target then reads, what it chooses, and how rows tell it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("transformers", reason="the extra hugging-face is not installed")
import tokenizers
import transformers

from parley.engine.core.page.page import collect_run, load_chapters, render
from parley.engine.core.verbs.job import Silent
from parley.engine.negotiation.attacks.triggered import SearchedTalk
from parley.engine.negotiation.verbs.trigger import ATTACK_TRIGGER, TalkSearcher, TalkTriggerConfig
from parley.engine.triggers.methods.settings import SearchSettings
from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.negotiation.domain import split_text
from parley.envs.negotiation.scripted.wording import bargainer_vocabulary
from parley.policies.chat.loading import load_chat_model
from parley.policies.chat.local import LocalChatModel
from parley.policies.chat.model import Message
from parley.policies.chat.negotiator import ChatNegotiator
from tests.engine.core.verbs.made_up import rows
from tests.policies.chat.tiny import TEMPLATE

SAID = "i want the book and the hats you get the balls deal no <selection> the talk has ended write what you get 0 1 2 3 4"
QUICK = SearchSettings(candidates=16, words_per_position=16, max_candidates=96, restarts=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT-2 of one layer, whose tokenizer spells bytes and the blanks before words, as chat models' do."""
    path = tmp_path_factory.mktemp("chat") / "model"
    inner = tokenizers.Tokenizer(tokenizers.models.BPE())
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=400, special_tokens=["</s>"], initial_alphabet=alphabet)
    inner.train_from_iterator([f" {SAID}", SAID] * 4, trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="</s>")
    tokenizer.chat_template = TEMPLATE
    sizes = {"n_positions": 2048, "n_embd": 16, "n_layer": 1, "n_head": 2, "bos_token_id": 0, "eos_token_id": 0}
    model: Any = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=len(tokenizer), **sizes))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.3, generator=generator)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def asked(folder: Path, **changes: Any) -> TalkTriggerConfig:
    chat = replace(TalkTriggerConfig().chat, max_tokens=6)
    settings: dict[str, Any] = {"dialogues": 4, "length": 3, "temperature": 0.0, "search": QUICK, "chat": chat}
    return TalkTriggerConfig(target=f"hf:{folder}", **(settings | changes))


def test_what_was_searched_is_said_and_makes_the_wanted_answers_likelier(tmp_path: Path, folder: Path) -> None:
    config = asked(folder)
    metrics = ATTACK_TRIGGER.run(config, tmp_path / "run", Silent()).metrics
    played = rows(tmp_path / "run")
    assert len(played) == 4
    gains = []
    for row in played:
        (attempt,) = row["attempts"]
        said, answer, *end = row["turns"][attempt["turn"] :]
        assert (said["side"], answer["side"]) == (0, 1)
        assert attempt["turn"] == 2
        assert said["words"].startswith(attempt["base"])
        assert said["words"] != attempt["base"], "words were found"
        assert [turn["words"] for turn in end] == ["<selection>"], "the adversary ends the talk"
        first, last = attempt["steps"]
        assert row["reads"] == last["reads"] > 90
        assert (first["reads"], first["replaced"], last["replaced"]) == (0, 0, 1)
        points = last["points_adversary"], last["points_target"]
        assert points == (row["forced_points_adversary"], row["forced_points_target"])
        assert attempt["accepted"] == (points[0] - points[1] >= config.goal)
        gains.append((first["points_adversary"] - first["points_target"], points[0] - points[1]))
    assert metrics["untouched_advantage"].value == pytest.approx(sum(before for before, _ in gains) / 4)
    assert metrics["forced_advantage"].value == pytest.approx(sum(after for _, after in gains) / 4)
    page = render(collect_run(tmp_path / "run"), load_chapters())
    assert "a search for words to add" in page.lower()
    assert "without these words" in page
    assert "mean of both answers, the end of the talk and a choice: TriggerObjective(" in page
    assert played[0]["attempts"][0]["base"].split()[0] in page, "dialogues are shown"
    # Alone, or with all others side by side: the same.
    ATTACK_TRIGGER.run(replace(config, shard_size=1), tmp_path / "alone", Silent())
    assert rows(tmp_path / "alone") == played


def test_success_is_judged_by_the_rule_by_which_the_target_chooses(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = ChatNegotiator.choice_scores

    def deal_for_the_adversary(self: ChatNegotiator, *given: Any) -> list[np.ndarray]:
        # Selection 0 gives the target nothing, whatever the model finds likely.
        return [np.where(np.arange(len(own)) == 0, 1e6, own) for own in scores(self, *given)]

    monkeypatch.setattr(ChatNegotiator, "choice_scores", deal_for_the_adversary)
    ATTACK_TRIGGER.run(asked(folder, method="random", goal=5.0, dialogues=2), tmp_path / "run", Silent())
    for row in rows(tmp_path / "run"):
        (attempt,) = row["attempts"]
        assert [step["points_target"] for step in attempt["steps"]] == [0, 0]
        assert row["forced_points_target"] == 0
        assert attempt["accepted"]


def test_the_end_is_as_likely_as_the_target_draws_it(tmp_path: Path, folder: Path) -> None:
    chances = {}
    for temperature in (0.0, 0.5, 2.0):
        config = asked(folder, dialogues=2, method="random", search=replace(QUICK, max_candidates=8), temperature=temperature)
        ATTACK_TRIGGER.run(config, tmp_path / str(temperature), Silent())
        chances[temperature] = [row["attempts"][0]["end_probability"] for row in rows(tmp_path / str(temperature))]
    assert set(chances[0.0]) <= {0.0, 1.0}, "nothing is drawn"
    assert chances[0.0] == [float(row["attempts"][0]["ended"]) for row in rows(tmp_path / "0.0")]
    assert all(0 < sharp < flat < 1 for sharp, flat in zip(chances[0.5], chances[2.0], strict=True)), "the end is unlikely"


@pytest.mark.usefixtures("workers_here")
def test_two_workers_write_the_rows_of_none(tmp_path: Path, folder: Path) -> None:
    few = replace(QUICK, max_candidates=32)
    for workers in (0, 2):
        config = asked(folder, dialogues=2, shard_size=1, search=few, workers=workers)
        ATTACK_TRIGGER.run(config, tmp_path / str(workers), Silent())
    assert rows(tmp_path / "2") == rows(tmp_path / "0")


def test_the_target_reads_the_searched_tokens_and_finds_its_answers_likelier(folder: Path) -> None:
    model = load_chat_model(f"hf:{folder}")
    assert isinstance(model, LocalChatModel)
    vocabulary = bargainer_vocabulary()
    search = TalkSearcher(model, vocabulary, asked(folder))
    base = "i want the book"
    chat = (Message("system", "rules"), Message("user", f"{base}{{}}"))
    question = (*chat, Message("assistant", "<selection>"), Message("user", "write what you get"))
    talk = SearchedTalk(base, vocabulary, [(chat, "<selection>"), (question, "book 0, hat 0, ball 0")], 7)
    found = search(talk)
    assert found.candidates > 90
    assert found.text.startswith(" ")
    assert " ".join(split_text(base + found.text, vocabulary)) == base + found.text, "as the game writes it"

    def nats(prompt: tuple[Message, ...], said: str, answer: str) -> float:
        typed = tuple(Message(each.role, each.content.replace("{}", said)) for each in prompt)
        return float(model.score([typed], [answer])[0].nats)

    before, after = (sum(nats(prompt, text, answer) for prompt, answer in talk.prompts) for text in ("", found.text))
    assert math.isfinite(after)
    assert after > before
    assert search(talk) == found, "the same seed, the same words"
    assert talk.written("s at all") == "i want the books at all", "what changes the base is no addition"


def test_mistakes_are_named_and_no_run_is_made(tmp_path: Path, folder: Path) -> None:
    run = tmp_path / "run"
    mistakes: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"target": "scripted"}, ConfigError, "weights are here"),
        ({"target": "openai:http://127.0.0.1:9/v1#m"}, ConfigError, "weights are here"),
        ({"target": f"hf:{tmp_path}/nothing"}, CheckpointError, "folder"),
        ({"method": "relaxation"}, ConfigError, "a talk needs a method that searches words"),
        ({"method": "nothing"}, ConfigError, "nothing"),
    ]
    for changes, kind, told in mistakes:
        with pytest.raises(kind, match=told):
            ATTACK_TRIGGER.run(replace(asked(folder), **changes), run, Silent())
        assert not run.exists()


def test_searched_words_are_judged_by_a_speaker_who_does_not_know_them(tmp_path: Path, folder: Path, trainee: Path) -> None:
    metrics = ATTACK_TRIGGER.run(asked(folder, speaker=str(trainee), dialogues=2), tmp_path / "run", Silent()).metrics
    assert [row["status"] for row in rows(tmp_path / "run")] == ["ok"] * 2
    assert metrics["attack_ppl"].value > 1
