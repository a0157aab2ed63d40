"""Adapters of a chat model learn seats of a game from dialogues."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from parley.engine.chat.games.secret import ScriptedSecrets
from parley.engine.chat.verbs.train_chat import TRAIN_CHAT, TrainChatConfig, chat_recipe
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.api import run_verb
from parley.engine.core.verbs.job import Silent
from parley.envs.core.errors import CheckpointError, ConfigError, DataError
from parley.envs.secret.game import ATTACKER, DEFENDER, SecretRules
from parley.policies.chat.local import LocalChatModel, load_local
from parley.policies.chat.model import ChatDecoding
from parley.policies.chat.predictor import ChatLessons, conversation_lessons
from parley.policies.chat.secret import secret_moves, talk
from parley.policies.chat.settings import DEFAULT
from tests.policies.byte_pairs import TURN_ID
from tests.policies.chat.architectures import drawn_model

pytest.importorskip("peft", reason="the extra lora is not installed")
RULES = SecretRules(max_messages=2)
TINY = replace(chat_recipe(), learning_rate=3e-2, batch_size=4, max_epochs=2)


def played(side: int, num: int, split: str = "train", rules: SecretRules | None = None) -> list[Any]:
    return [seat for _, *seat in ScriptedSecrets([side], num, rules or SecretRules(), 1).played(side, split, num)]


def saved_base(folder: Path, seed: int = 0) -> Path:
    model, tokenizer = drawn_model("llama")
    torch.manual_seed(seed)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("side", [ATTACKER, DEFENDER])
def test_a_lesson_is_what_the_seat_reads_and_its_own_texts_alone_are_learned(side: int) -> None:
    model, tokenizer = drawn_model("llama")
    prompts = LocalChatModel("tiny", model, tokenizer).prompts
    for view, turns in played(side, 4, rules=RULES):
        (lesson,) = conversation_lessons(tokenizer, tokenizer.decode([TURN_ID]), secret_moves(view, turns))
        ((read, is_own),) = ChatLessons(tokenizer, [lesson], TURN_ID, 10_000)._read
        for number in range(view.side, len(turns), 2):
            before = prompts.ids(talk(replace(view, turns=turns[:number])))
            own = [*prompts.reply_ids(turns[number]), TURN_ID]
            assert read[: len(before)] == before
            assert read[len(before) : len(before) + len(own)] == own
            assert is_own[len(before) - 1 : len(before) + len(own)] == [False, *[True] * len(own)]
        assert sum(is_own) == sum(len(prompts.reply_ids(text)) + 1 for text in turns[view.side :: 2])


def test_the_attacker_learns_from_words_that_were_said_and_the_defender_from_both_kinds() -> None:
    attacks = played(ATTACKER, 12)
    assert {view.side for view, _ in attacks} == {ATTACKER}
    assert all(len(turns) % 2 == 0 for _, turns in attacks)
    assert len(min((turns for _, turns in attacks), key=len)) < 12, "the dialogue ends when the word is said"
    defences = played(DEFENDER, 12)
    assert {view.side for view, _ in defences} == {DEFENDER}
    assert all(view.word not in reply for view, turns in defences for reply in turns[1::2])
    assert played(DEFENDER, 12, "test") != defences


def test_one_adapter_learns_both_seats_by_turns_and_each_is_told_its_seat() -> None:
    game = ScriptedSecrets(range(2), 5, RULES, 1)
    assert game.title == "attacker and defender of the secret game"
    dialogues = game.dialogues("train")
    assert len(dialogues) == 5
    alone = [ScriptedSecrets([side], 3, RULES, 1).dialogues("train") for side in (ATTACKER, DEFENDER)]
    assert dialogues[::2] == alone[ATTACKER], "a seat learns the dialogues that it learns alone"
    assert dialogues[1::2] == alone[DEFENDER][:2]
    assert dialogues[0].unit == dialogues[1].unit, "both seats of one scenario are one unit"
    told = [dialogue.moves[0][0][0].content for dialogue in dialogues[:2]]
    assert told[0] != told[1], "the system message tells the seat"
    words = game.match("hf:run", "hf:base")
    assert words[4:] == ["--attackers", "hf:run,hf:base", "--defenders", "hf:run,hf:base"]


def test_an_adapter_is_trained_stored_alone_and_opened_by_its_run(tmp_path: Path) -> None:
    base = saved_base(tmp_path / "base")
    settings = {"base": f"hf:{base}", "role": "defender", "dialogues": 8, "rules": RULES, "fit": TINY}
    result = run_verb("train chat", run=tmp_path / "run", **settings)
    metrics = result.metrics
    assert metrics["test_nll"].value < metrics["test_nll_before"].value
    assert metrics["test_ppl_word"].value < metrics["test_ppl_word_before"].value
    stored = {path.name for path in (tmp_path / "run" / "checkpoint").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "base.json"} <= stored
    assert "model.safetensors" not in stored
    adapted, plain = (load_local(name, DEFAULT) for name in (f"hf:{tmp_path / 'run'}", f"hf:{base}"))
    (view, _), *_ = played(DEFENDER, 2, "test", RULES)
    answers = [
        model.answer([talk(replace(view, turns=("hello",)))], decoding=ChatDecoding(max_tokens=8)) for model in (adapted, plain)
    ]
    assert answers[0] != answers[1]
    again = run_verb("train chat", run=tmp_path / "again", **settings)
    assert again.metrics == metrics, "a training follows from its seed"
    assert len([event for event in RunFolder.load(tmp_path / "run").events() if event["kind"] == "epoch"]) == 2


def test_a_training_that_was_cut_goes_on_to_the_digit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from parley.policies.core.fitting.loop import Fit

    base = saved_base(tmp_path / "base")
    settings = {"base": f"hf:{base}", "role": "defender", "dialogues": 8, "rules": RULES, "fit": TINY}
    whole = run_verb("train chat", run=tmp_path / "whole", **settings)
    epochs = []

    def validate(fit: Any) -> float:
        epochs.append(1)
        if len(epochs) == 2:
            raise KeyboardInterrupt
        return float(fit.objective.validation(fit.validation))

    with monkeypatch.context() as patch:
        patch.setattr(Fit, "validate", validate)
        with pytest.raises(KeyboardInterrupt):
            run_verb("train chat", run=tmp_path / "cut", **settings)
    assert run_verb("train chat", run=tmp_path / "cut", **settings).metrics == whole.metrics
    weights = [(tmp_path / name / "checkpoint" / "adapter_model.safetensors").read_bytes() for name in ("whole", "cut")]
    assert weights[0] == weights[1]


def test_the_adapter_of_another_base_is_refused(tmp_path: Path) -> None:
    base = saved_base(tmp_path / "base")
    settings = {"dialogues": 4, "rules": RULES, "fit": replace(TINY, max_epochs=1)}
    run_verb("train chat", run=tmp_path / "run", base=f"hf:{base}", **settings)
    saved_base(base, seed=1)
    with pytest.raises(CheckpointError, match="trained on another base"):
        load_local(f"hf:{tmp_path / 'run'}", DEFAULT)
    with pytest.raises(ConfigError, match="an adapter is no base"):
        run_verb("train chat", run=tmp_path / "more", base=f"hf:{tmp_path / 'run'}", **settings)


def test_wrong_bases_are_refused_before_a_run_is_made(tmp_path: Path) -> None:
    for base in ("", "mine.py:Bot", "openai:http://127.0.0.1:8000/v1#m"):
        with pytest.raises(ConfigError, match="weights that are here"):
            TRAIN_CHAT.prepare(TrainChatConfig(base=base), tmp_path / "run", Silent())
    base = saved_base(tmp_path / "base")
    long = TrainChatConfig(base=f"hf:{base}", dialogues=2, rules=SecretRules(max_messages=100))
    with pytest.raises(DataError, match="longer than the model reads"):
        TRAIN_CHAT.prepare(long, tmp_path / "run", Silent())
    config = json.loads((base / "tokenizer_config.json").read_text())
    config.pop("chat_template", None)
    (base / "tokenizer_config.json").write_text(json.dumps(config))
    (base / "chat_template.jinja").unlink(missing_ok=True)
    with pytest.raises(ConfigError, match="no chat template"):
        TRAIN_CHAT.prepare(TrainChatConfig(base=f"hf:{base}"), tmp_path / "run", Silent())
