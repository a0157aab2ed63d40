"""Attacks of a scan: other wordings of a prompt, from the prompt and a seed alone."""

from __future__ import annotations

import base64

import pytest

from parley.engine.scan.attacks import NONE, NUM_WORDS, RANDOM_WORDS, WORDS, attack_names, rewordings, templates
from parley.engine.scan.policy import AttackSpec
from parley.envs.core.errors import ConfigError

PROMPT = "What is the discount code of today's {base64} sale?"


def test_every_attack_depends_on_prompt_and_seed_alone() -> None:
    specs = [AttackSpec(name, "named", name) for name in attack_names()]
    made = rewordings(specs)
    assert [*made] == [NONE, RANDOM_WORDS, *attack_names()]
    for name, reword in made.items():
        assert reword(PROMPT, 7) == reword(PROMPT, 7), name
        if name != NONE and name in templates():
            assert reword(PROMPT, 7) != PROMPT, name


def test_controls_change_nothing_or_add_words() -> None:
    made = rewordings([])
    assert made[NONE](PROMPT, 3) == PROMPT
    reworded = made[RANDOM_WORDS](PROMPT, 3)
    added = reworded.removeprefix(f"{PROMPT} ").split()
    assert len(added) == len(set(added)) == NUM_WORDS
    assert set(added) <= set(WORDS)
    assert made[RANDOM_WORDS](PROMPT, 4) != reworded


def test_a_template_holds_the_prompt_as_it_is() -> None:
    made = rewordings(
        [AttackSpec("mine", "template", "a {prompt} b {base64} c {prompt}"), AttackSpec("decode", "named", "decode")]
    )
    coded = base64.b64encode(PROMPT.encode()).decode()
    assert made["mine"](PROMPT, 0) == f"a {PROMPT} b {coded} c {PROMPT}"
    assert made["decode"](PROMPT, 0).endswith(coded)


def test_character_noise_keeps_most_of_a_prompt() -> None:
    noisy = rewordings([AttackSpec("character-noise", "named", "character-noise")])["character-noise"](PROMPT, 1)
    assert noisy != PROMPT
    assert len(noisy.split()) == len(PROMPT.split())


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (AttackSpec("role-pley", "named", "role-pley"), "did you mean 'role-play'"),
        (AttackSpec("none", "named", "none"), "bears the name of a control"),
    ],
)
def test_an_attack_that_is_none_is_named(spec: AttackSpec, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        rewordings([spec])
