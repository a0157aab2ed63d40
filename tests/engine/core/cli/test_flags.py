"""From words to configurations: what overrides what, mistakes by name, and the command that leads back."""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from parley.engine.core.cli.flags import JobCommand, dotted_keys, field_docs, parse_job
from parley.engine.core.cli.main import JOBS, Verb, find_verb
from parley.engine.core.verbs.catalogue import find
from parley.engine.core.verbs.job import flat
from parley.engine.negotiation.verbs.match import SELFPLAY, MatchConfig
from parley.engine.negotiation.verbs.negotiator import TRAIN_NEGOTIATOR
from parley.engine.negotiation.verbs.whitebox import ATTACK_TRANSFER, TransferSettings
from parley.engine.triggers.verbs.text_search import SEARCH_TEXT
from parley.envs.core.config import assign, to_dict
from parley.envs.core.errors import ConfigError
from tests.engine.core.cli.conftest import Parley
from tests.engine.core.verbs.made_up import ROOT


def understood(command: str | list[str]) -> JobCommand:
    """What a command line that runs a job asks for."""
    words = shlex.split(command, comments=True) if isinstance(command, str) else command
    words = words[words[0] == "parley" :]
    verb = find_verb(words)
    assert verb is not None, words
    entry = find("-".join(verb.words))
    return parse_job(verb, entry.load(), words[len(verb.words) :])


def test_flags_override_settings_override_the_file_overrides_the_preset(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("seed: 2\nthreads: 2\ncorpus: two\nfit:\n  max_epochs: 2\n  clip: 2\n  batch_size: 2\n")
    given_ = f"train negotiator lewis2017 --config {file} --set threads=3 --set corpus=three --set fit.clip=3.5 --corpus four"
    config = understood(given_).config
    assert (config.seed, config.threads, config.corpus) == (2, 3, "four")
    assert (config.fit.max_epochs, config.fit.clip, config.fit.batch_size) == (2, 3.5, 2)
    assert (config.fit.optimiser, config.fit.patience) == ("sgd", 30)


@pytest.mark.parametrize("verb", ["evaluate ranking", "attack ranking"])
def test_rankers_and_rules_may_be_named_one_flag_each(verb: str) -> None:
    config = understood(f"parley {verb} --model tfidf --rules iiw --model=bm25,runs/smn --rules sow").config
    assert config.model_names == ("tfidf", "bm25", "runs/smn"), "the last one is not the only one"
    assert config.rule_names == ("iiw", "sow")


def test_the_first_preset_is_the_default_and_gives_what_has_no_default() -> None:
    command = understood("train adversary")
    assert command.config == find("train-adversary").load().presets["cheng2019"]()
    assert (command.run, command.json) == (Path("runs/adversary"), False)
    assert understood("train adversary --target runs/rl --run here --json") == JobCommand(
        dataclasses.replace(command.config, target="runs/rl"), Path("here"), True
    )


@pytest.mark.parametrize("verb", JOBS, ids=lambda verb: verb.name)
def test_every_field_of_a_configuration_says_what_it_is(verb: Verb) -> None:
    kinds: list[Any] = [find("-".join(verb.words)).load().config]
    for kind in kinds:
        hints = get_type_hints(kind)
        kinds += [hint for hint in hints.values() if dataclasses.is_dataclass(hint)]
        docs = field_docs(kind)
        names = [field.name for field in dataclasses.fields(kind)]
        assert [name for name in names if not docs.get(name)] == []


def commands() -> list[str]:
    """Every command that runs a job in the examples of the help, in the README and on the pages of docs."""
    examples = [example for verb in JOBS for example in verb.examples]
    pages = [page.read_text() for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if page.exists()]
    blocks = [block for page in pages for block in re.findall(r"^```\w*\n(.*?)^```", page, re.DOTALL | re.MULTILINE)]
    shown = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    typed = [line for line in shown if line.startswith("parley ")]
    return [*examples, *(line for line in typed if find_verb(shlex.split(line, comments=True)[1:]) in JOBS)]


@pytest.mark.parametrize("command", commands())
def test_commands_that_are_shown_can_be_typed(command: str) -> None:
    understood(command)


def test_the_readme_names_no_verb_that_is_not_there() -> None:
    readme = ROOT / "README.md"
    if not readme.exists():
        pytest.skip("there is no README")
    shown = re.findall(r"^(?:\S*/)?parley ([a-z].*?)(?:\s+#.*)?$", readme.read_text(), re.MULTILINE)
    assert [line for line in shown if find_verb(shlex.split(line)) is None and not line.startswith("finds")] == []


MISTAKES = {
    "selfplay nobody": "no preset is called 'nobody'",
    "attack transfer fixd": "did you mean 'fixed'",
    "selfplay --dialogus 3": "no flag --dialogus, did you mean '--dialogues'",
    "search --num-targets 3": "did you mean '--limit'",
    "selfplay --num-workers 3": "did you mean '--workers'",
    "selfplay --dialogus=3": "did you mean '--dialogues'",
    "selfplay --jsn": "did you mean '--json'",
    "selfplay --dialogues 3 scripted": "'scripted' is one argument too many",
    "train rl --dialogues 3": r"not a flag(.|\n)*--set reinforce\.dialogues=VALUE",
    "train rl --reinforce 3": r"a section of settings(.|\n)*--set reinforce\.KEY=VALUE",
    "selfplay --set dialogus=3": "did you mean 'dialogues'",
    "train negotiator --set fit.sizes.embed_wrod=3": "did you mean 'embed_word'",
    "train negotiator --set fitt.clip=3": "unknown key 'fitt'",
    "train negotiator --set seed.clip=3": "'seed' is a setting and not a section",
    "selfplay --set dialogues": "needs a value",
    "selfplay --set dialogues=many": "wrong type",
    "selfplay --set dialogues=0": "allowed: at least 1",
    "selfplay --set judge=[": "not YAML",
    "selfplay --dialogues -3": "allowed: at least 1",
    "selfplay --config nothing.yaml": "fix:   name a file that is there",
    "selfplay --config binary.yaml": "is not YAML",
    "train negotiator --set fit.optimiser=adm": "one of 'adam', 'sgd'",
}


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_named_with_the_nearest_name(command: str) -> None:
    Path("binary.yaml").write_bytes(b"\x9a\x00")
    with pytest.raises(ConfigError, match=MISTAKES[command]):
        understood(command)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("play scripted --run name", "there is no flag --run\n"),
        ("play scripted --agent name", "agent is typed without a flag"),
        ("report runs --out page.html", "there is no flag --out\n"),
    ],
)
def test_a_flag_that_is_none_is_not_answered_with_itself_or_an_argument(parley: Parley, command: str, told: str) -> None:
    assert told in parley(command).err


@pytest.mark.parametrize("command", ["selfplay --dialogues many", "selfplay --seed", "data check", "attack rl --seed 1.5"])
def test_a_value_of_the_wrong_type_ends_with_the_flags_help(parley: Parley, command: str) -> None:
    outcome = parley(command)
    assert outcome.status == 2
    assert outcome.out == ""
    assert f"{command.split(' --')[0]}" in outcome.err


@pytest.mark.parametrize(
    ("text", "value"), [("1e-3", 0.001), ("1E3", 1000.0), ("2", 2.0), ("0.5", 0.5), ("-1e-2", None), ("1e", None)]
)
def test_numbers_may_be_typed_with_an_exponent(text: str, value: float | None) -> None:
    config = TRAIN_NEGOTIATOR.presets["fast"]()
    if value is None:
        with pytest.raises(ConfigError):
            assign(config, [f"fit.learning_rate={text}"])
    else:
        assert assign(config, [f"fit.learning_rate={text}"]).fit.learning_rate == value


def test_an_empty_value_is_an_empty_text_and_null_is_none() -> None:
    config = MatchConfig(adversary="a", target="b", judge="c", data_root=Path("d"))
    changed = assign(config, ["judge=", "data_root=null"])
    assert (changed.judge, changed.data_root) == ("", None)


@pytest.mark.parametrize(
    "pair",
    [
        {"success.by": "pattern", "success.pattern": "sure"},
        {"success.by": "judge", "success.judge": "openai:http://localhost/v1#m"},
        {"fitness.by": "similarity", "fitness.encoder": "hf:folder"},
        {"fitness.by": "rating", "fitness.judge": "gguf:file"},
    ],
)
def test_settings_that_need_each_other_may_come_in_any_order(pair: dict[str, str]) -> None:
    config = SEARCH_TEXT.presets["evolution"]()
    words = [f"{key}={value}" for key, value in pair.items()]
    changed = assign(config, words)
    assert flat(to_dict(changed)).items() >= pair.items()
    assert assign(config, words[::-1]) == changed
    for word in words:
        with pytest.raises(ConfigError):
            assign(config, [word, "limit=3"])


def test_a_wrong_setting_is_named_beside_others() -> None:
    with pytest.raises(ConfigError) as caught:
        assign(SEARCH_TEXT.presets["evolution"](), ["success.by=pattern", "limit=3", "success.patern=x"])
    assert "'success.patern'" in str(caught.value)
    assert "--set success.by=pattern --set success.patern=x" in str(caught.value)


def test_dotted_keys_are_those_that_can_be_set() -> None:
    keys = dotted_keys(TRAIN_NEGOTIATOR.config)
    assert set(keys) == set(flat(to_dict(TRAIN_NEGOTIATOR.presets["fast"]())))


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")) | st.just(" "), max_size=8)
MATCHES = st.builds(
    MatchConfig,
    adversary=st.sampled_from(["scripted", "runs/a b", "x'y"]),
    target=st.just("scripted-tough"),
    dialogues=st.integers(1, 10**6),
    temperature=st.floats(0, 9),
    complementary=st.booleans(),
    judge=TEXTS.filter(lambda text: not text.startswith("-")),
    data_root=st.none() | st.just(Path("some where")),
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(config=MATCHES, path=st.sampled_from([Path("runs/selfplay"), Path("runs/other one")]))
def test_the_command_of_a_match_leads_back_to_it(config: MatchConfig, path: Path) -> None:
    assert understood(SELFPLAY.command(config, path)) == JobCommand(config, path, False)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@example(preset="cheng2019", source="\U00010000 \u2028", turn=3, seed=0)
@given(preset=st.sampled_from(["cheng2019", "fixed"]), source=TEXTS, turn=st.integers(0, 9), seed=st.integers(0, 2**63))
def test_the_command_of_a_section_leads_back_to_it(preset: str, source: str, turn: int, seed: int) -> None:
    shown = TransferSettings(source=source, turn=turn)
    config = dataclasses.replace(ATTACK_TRANSFER.presets[preset](), seed=seed, transfer=shown)
    assert understood(ATTACK_TRANSFER.command(config, Path("runs/attack-transfer"))).config == config


def test_the_command_names_the_nearest_preset() -> None:
    config = dataclasses.replace(TRAIN_NEGOTIATOR.presets["lewis2017"](), seed=7)
    assert TRAIN_NEGOTIATOR.command(config, Path("runs/negotiator")) == "parley train negotiator lewis2017 --seed 7"
    fast = TRAIN_NEGOTIATOR.presets["fast"]()
    assert TRAIN_NEGOTIATOR.command(fast, Path("runs/negotiator")) == "parley train negotiator"
