"""An attack prints what it is made of, and refuses a method that reads more than the victim shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parley.engine.triggers.methods.composition import AttackComposition, settings_told, shown_access
from parley.engine.triggers.success import SuccessSettings
from parley.envs.core.errors import ConfigError
from parley.policies.chat.model import Access


def test_an_attack_prints_its_parts_with_both_accesses() -> None:
    told = AttackComposition(victim="hf:x", shows=Access.GRADIENTS, method="Beast()", reads=Access.LOGITS, success="by=target")
    assert str(told).splitlines() == [
        "victim     hf:x, shows gradients",
        "method     Beast(), reads logits",
        "success    by=target",
    ]
    assert [f"{name:<9}  {text}" for name, text in told.parts.items()] == str(told).splitlines()


@pytest.mark.parametrize(("victim", "refused"), [("openai:http://x#y", True), ("own.py:reply", True), ("hf:x", False)])
def test_a_method_reads_no_more_than_the_victim_shows(victim: str, refused: bool) -> None:
    assert (shown_access(victim) < Access.SCORES) == refused
    if refused:
        with pytest.raises(ConfigError, match="reads scores of the model, which shows text"):
            AttackComposition(victim=victim, shows=shown_access(victim), method="RandomSearch()", reads=Access.SCORES)


def test_of_a_run_that_answers_messages_replies_alone_are_seen(tmp_path: Path) -> None:
    for name, config in {"own": {"kind": "seq2seq"}, "hardened": {"model_type": "llama"}}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    assert shown_access(f"{tmp_path}/own") == Access.GRADIENTS, "by parley search"
    assert shown_access(f"{tmp_path}/own", by_messages=True) == Access.TEXT
    for name in (f"{tmp_path}/hardened", f"hf:{tmp_path}/hardened", "gguf:x"):
        assert shown_access(name, by_messages=True) == Access.GRADIENTS


def test_settings_are_told_where_they_are_not_the_defaults() -> None:
    assert settings_told(SuccessSettings(), "by") == "by=target"
    assert settings_told(SuccessSettings(by="prefix", samples=2)) == "by=prefix, samples=2"
