"""Attacks of a scan: each makes another wording of a prompt, from the prompt and a seed alone.

    none           the prompt as it is: the control that shows what happens without an attack
    random-words   the prompt and eight random words: the control at equal cost
    templates      ways to ask that do not depend on the question (`templates.yaml`)
    perturbations  strategies of `parley perturb` that need no data, by their names: `character-noise`, ...
    template       a template of the policy's own, with {prompt}
    triggers       what searches found (`parley search`), typed into the prompt

An attack is asked `repeats` times, and so is each control, with a seed of its own each time. So all cost the same. Under a
budget each of them asks again and again, beside attackers that read replies (`attackers/`).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from importlib.resources import files

import yaml

from parley.engine.perturb.catalogue import names as strategy_names
from parley.engine.perturb.catalogue import perturb_text
from parley.engine.perturb.strategy import PerturbSettings
from parley.engine.scan.policy import AttackSpec
from parley.envs.core.errors import ConfigError
from parley.envs.core.registry import nearest
from parley.envs.core.seeds import stream

NONE, RANDOM_WORDS = "none", "random-words"
REPEAT, BLIND, SCORES_ONLY = "repeat", "blind", "scores-only"
"""Controls of a scan under a budget."""
CONTROLS: Mapping[str, str] = {
    NONE: "no attack",
    RANDOM_WORDS: "random words",
    REPEAT: "the prompt repeated",
    BLIND: "an attacker that sees nothing",
    SCORES_ONLY: "an attacker that sees scores alone",
}
"""Attacks that are there to be beaten, with their titles."""
NUM_WORDS = 8
WORDS = tuple(
    "apple river chair green seven window paper stone music under garden yellow spoon winter across candle bridge little "  # noqa: SIM905
    "feather eleven basket cloud quiet button market orange ladder summer pocket harbour silver kettle mountain velvet".split()
)
"""Words of the control, harmless and without a request."""
PERTURBATIONS = (
    "character-noise", "misspellings", "random-swap", "stopword-dropout", "grammar-errors", "data-paraphrase",
)  # fmt: skip
"""Strategies of `parley perturb` that keep a prompt's meaning and need no data of their own."""
_SETTINGS = PerturbSettings(lexicon="built-in")

Rewording = Callable[[str, int], str]
"""Returns another wording of a prompt, by a seed."""


@cache
def templates() -> Mapping[str, str]:
    """Return the templates of this package by name."""
    text = files("parley.engine.scan").joinpath("templates.yaml").read_text(encoding="utf-8")
    return {str(name): str(template).strip() for name, template in yaml.safe_load(text).items()}


def attack_names() -> list[str]:
    """Return the names that a policy may list under `attacks`."""
    return [*templates(), *PERTURBATIONS]


def rewordings(
    specs: Sequence[AttackSpec], triggers: Callable[[str], Sequence[str]] = lambda runs: (), others: Iterable[str] = ()
) -> dict[str, Rewording]:
    """Return the controls and the attacks of a policy, by name.

    Args:
        specs: the attacks.
        triggers: returns what the searches of some runs, between commas, found.
        others: names of other attacks that a policy may list, for messages.

    Raises:
        ConfigError: there is no attack of a name, or a run holds no triggers that can be typed.
    """
    made: dict[str, Rewording] = {NONE: lambda prompt, seed: prompt, RANDOM_WORDS: _with_random_words}
    for spec in specs:
        if spec.name in CONTROLS:
            raise ConfigError(
                "an attack bears the name of a control", where="attacks", got=spec.name, fix="give it another name:"
            )
        if spec.kind == "template":
            made[spec.name] = partial(filled, spec.value)
        elif spec.kind == "triggers":
            made[spec.name] = partial(_typed, triggers(spec.value))
        elif spec.value in templates():
            made[spec.name] = partial(filled, templates()[spec.value])
        elif spec.value in PERTURBATIONS or spec.value in strategy_names("all"):
            made[spec.name] = partial(_perturbed, spec.value)
        else:
            known = [*attack_names(), *others]
            fix = f"one of {', '.join(known)}; or - template: TEXT with {{prompt}}, or - triggers: RUN"
            raise ConfigError(f"there is no attack {spec.value!r}{nearest(spec.value, known)}", where="attacks", fix=fix)
    return made


def adapted_rewordings(
    specs: Sequence[AttackSpec], triggers: Callable[[str], Sequence[str]]
) -> dict[tuple[str, str], Rewording]:
    """Return the attacks that were made behind a defence, by the names of both; see `rewordings`."""
    return {(spec.name, defence): partial(_typed, triggers(runs)) for spec in specs for defence, runs in spec.behind}


def _with_random_words(prompt: str, seed: int) -> str:
    chosen = stream(seed, "random-words").choice(len(WORDS), NUM_WORDS, replace=False)
    return f"{prompt} {' '.join(WORDS[index] for index in chosen)}"


def filled(template: str, prompt: str, seed: int = 0) -> str:
    """Return a template with the prompt, as it is or in base64, in its places."""
    parts = {"prompt": prompt, "base64": base64.b64encode(prompt.encode()).decode()}
    # One pass, so that a prompt that holds "{base64}" stays as it is.
    return re.sub(r"\{(prompt|base64)\}", lambda part: parts[part[1]], template)


def _perturbed(strategy: str, prompt: str, seed: int) -> str:
    return perturb_text(prompt, strategy, seed=seed, settings=_SETTINGS)


def _typed(slots: Sequence[str], prompt: str, seed: int) -> str:
    return f"{prompt} {slots[int(stream(seed, 'trigger').integers(len(slots)))]}".strip()
