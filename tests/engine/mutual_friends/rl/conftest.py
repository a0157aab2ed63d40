"""The fixtures of all trainings by RLlib."""

from __future__ import annotations

from tests.engine.negotiation.rl.conftest import _one_thread, built, world  # noqa: F401  # fixtures
