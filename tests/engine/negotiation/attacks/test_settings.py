"""Settings of a search that contradict each other."""

from __future__ import annotations

from typing import Any

import pytest

from parley.engine.negotiation.attacks.settings import SearchConfig
from parley.envs.core.errors import ConfigError


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_replacements": 0}, "max_replacements"),
        ({"screening_replies": 17}, "screening_replies"),
        ({"kappa": -1.0}, "kappa"),
        ({"loss": "outcome", "proposals": "gradient"}, "proposals"),
        ({"loss": "outcome", "constraint": "soft"}, "constraint"),
        ({"loss": "outcome", "end_margin": 0.5}, "end_margin"),
    ],
)
def test_a_search_that_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SearchConfig(**changes)
