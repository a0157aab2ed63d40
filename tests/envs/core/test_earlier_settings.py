"""Settings of earlier versions: constants that were settings, and settings that were added."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.catalogue import ENTRIES, Entry
from parley.engine.core.verbs.job import flat
from parley.engine.negotiation.verbs.match import MatchConfig
from parley.envs.core.config import Configuration, as_now, constants_of, from_dict, put, to_dict, with_values
from parley.envs.core.errors import ConfigError, RunError


@dataclass(frozen=True, kw_only=True)
class Section(Configuration):
    """A section that lost a setting and got another."""

    added: ClassVar[Mapping[str, Any]] = {"depth": 1}

    width: int = 3
    depth: int = 2


@dataclass(frozen=True, kw_only=True)
class EarlierSection(Section):
    """The same with that setting."""

    height: int = 7


@dataclass(frozen=True, kw_only=True)
class Now(Configuration):
    """Settings of today."""

    constants: ClassVar[Mapping[str, Any]] = {"section.height": 7, "gone.rate": 0.5, "flag": True}
    added: ClassVar[Mapping[str, Any]] = {"meta": "none"}

    meta: str = "nash"
    section: Section = field(default_factory=Section)


STORED = {"flag": True, "gone": {"rate": 0.5}, "section": {"width": 4, "height": 7}}


def test_a_constant_that_was_a_setting_is_read_and_another_value_is_an_error() -> None:
    assert as_now(Now, STORED) == {"meta": "none", "section": {"width": 4, "depth": 1}}
    assert STORED["gone"] == {"rate": 0.5}, "what was stored is left as it is"
    assert from_dict(Now, STORED) == Now(section=Section(width=4)), "a file of settings has the defaults of today"
    with pytest.raises(ConfigError, match=r"section\.height is no setting any more: it is always 7(.|\n)*got: +8"):
        from_dict(Now, {"section": {"height": 8}})
    with pytest.raises(ConfigError, match=r"flag is no setting any more(.|\n)*not resumed"):
        with_values(Now(), {"flag": False}, "--set flag=false")
    with pytest.raises(ConfigError, match="unknown key 'gone'"):
        from_dict(Now, {"gone": {"other": 1, "rate": 0.5}})


@pytest.mark.parametrize(("height", "meta", "error"), [(7, "none", None), (8, "none", ConfigError), (7, "nash", RunError)])
def test_a_run_of_an_earlier_version_goes_on_only_as_it_was(
    tmp_path: Path, height: int, meta: str, error: type[Exception] | None
) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Earlier(Configuration):
        flag: bool = True
        section: EarlierSection = field(default_factory=EarlierSection)

    with RunFolder.open(tmp_path / "run", Earlier(section=EarlierSection(height=height)), job="made-up") as begun:
        begun.event("update", number=1)
    now = Now(meta=meta)
    if error is None:
        with RunFolder.open(tmp_path / "run", now, job="made-up") as run:
            assert run.config == to_dict(now)
    else:
        with pytest.raises(error):
            RunFolder.open(tmp_path / "run", now, job="made-up")
    assert RunFolder.load(tmp_path / "run").config["section"]["height"] == height, "it can be read in any case"


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: " ".join(entry.words))
def test_every_constant_of_a_verb_reads_with_its_value_alone(entry: Entry) -> None:
    job = entry.load()
    config = next(iter(job.presets.values()))()
    constants = constants_of(job.config)
    earlier = to_dict(config)
    assert not constants.keys() & flat(earlier).keys(), "what is a constant is no setting"
    for key, value in constants.items():
        put(earlier, key, value)
    assert from_dict(job.config, earlier) == config
    assert as_now(job.config, earlier) == to_dict(config)
    for key in constants:
        other = to_dict(config)
        put(other, key, "another value")
        with pytest.raises(ConfigError, match=rf"{re.escape(key)} is no setting any more(.|\n)*another value"):
            from_dict(job.config, other)


def test_prices_of_earlier_versions_are_told_where_to_go() -> None:
    with pytest.raises(ConfigError, match=r"chat\.price_per_1k_in is no setting any more(.|\n)*chat\.prices=IN/OUT"):
        with_values(MatchConfig(adversary="scripted", target="scripted"), {"chat.price_per_1k_in": 0.5}, "--set")
