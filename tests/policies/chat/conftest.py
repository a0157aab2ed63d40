"""Servers of tests need no time before they are asked again."""

from __future__ import annotations

import pytest

from parley.policies.chat.settings import ChatAsking


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChatAsking, "first_wait_s", 0.01)
    monkeypatch.setattr(ChatAsking, "longest_wait_s", 1.0)
