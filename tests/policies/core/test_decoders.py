"""Decoders as they are typed: what each text stands for, and what is said of one that stands for nothing."""

from __future__ import annotations

import pytest

from parley.envs.core.errors import ConfigError
from parley.policies.core.responder import GREEDY, DecoderSettings


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("greedy", GREEDY),
        ("beam", DecoderSettings(rule="beam", beam=5)),
        ("beam:3,length=0.6", DecoderSettings(rule="beam", beam=3, length=0.6)),
        ("sample:0.8", DecoderSettings(rule="sample", temperature=0.8)),
        ("sample", DecoderSettings(rule="sample", temperature=1.0)),
        ("diverse:7,rate=1", DecoderSettings(rule="diverse", beam=7, rate=1.0)),
        ("mmi:beam=20,backward=s3://x/y:1,weight=0.3", DecoderSettings(rule="mmi", beam=20, backward="s3://x/y:1", weight=0.3)),
        ("mmi-antilm:3,lm=runs/lm,words=2", DecoderSettings(rule="mmi-antilm", beam=3, lm="runs/lm", words=2)),
        ("greedy:repeat=2", DecoderSettings(repeat=2.0)),
        ("greedy,repeat=2", DecoderSettings(repeat=2.0)),
        ("beam:2,forbid=<unk> no", DecoderSettings(rule="beam", beam=2, forbid=("<unk>", "no"))),
    ],
)
def test_a_text_stands_for_settings(text: str, settings: DecoderSettings) -> None:
    assert DecoderSettings.parse(text) == settings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bema:3", "no decoder is called 'bema', did you mean 'beam'"),
        ("", "no decoder is called ''"),
        ("greedy:3", "the decoder greedy has no option '3'"),
        ("beam:3,lenght=1", "no option 'lenght', did you mean 'length'"),
        ("beam:3,rate=1", "the decoder beam has no option 'rate'"),
        ("beam:3,4", "no option '4'"),
        ("beam:wide", r"beam has the wrong type(.|\n)*'wide'(.|\n)*whole number"),
        ("beam:0", r"beam is out of range(.|\n)*--decoder beam:0"),
        ("blind:3", "the decoder blind has no option '3'"),
        ("sample:0", r"temperature is out of range(.|\n)*above 0"),
        ("sample:nan", r"temperature is out of range"),
        ("mmi:20", r"the decoder mmi needs backward(.|\n)*parley train seq2seq --backward"),
        ("mmi-antilm:lm=", "the decoder mmi-antilm needs lm"),
        ("mmi:backward=x,weight=2", "weight is out of range"),
    ],
)
def test_a_text_that_stands_for_nothing_says_why(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DecoderSettings.parse(text)


def test_its_parts_are_what_a_model_has_to_know() -> None:
    assert DecoderSettings.parse("beam:2,repeat=1,forbid=no").parts == ("beam", "repeat", "forbid")
    assert DecoderSettings.parse("mmi-antilm:lm=runs/lm").models == {"lm": "runs/lm"}
    assert DecoderSettings.parse("sample").draws
    assert not GREEDY.draws
