"""The fixtures of all verbs."""

from __future__ import annotations

from tests.engine.core.verbs.conftest import _small_machine, root, speaker, target, trainee  # noqa: F401  # fixtures
