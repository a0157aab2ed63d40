"""`parley settings`: what each verb can be told, and what a command line would use."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from parley.engine.core.cli.listing import TOPICS, settings_of, topic_class
from parley.engine.core.cli.main import JOBS, Verb
from parley.engine.core.verbs.catalogue import find
from parley.engine.core.verbs.job import flat
from parley.envs.core.config import to_dict
from tests.engine.core.cli.conftest import Parley


@pytest.mark.parametrize("verb", JOBS, ids=lambda verb: verb.name)
def test_every_setting_is_listed_with_its_value_and_meaning(parley: Parley, verb: Verb) -> None:
    job = find("-".join(verb.words)).load()
    settings = list(settings_of(job.config))
    values = flat(to_dict(next(iter(job.presets.values()))()))
    assert [each.key for each in settings] == list(dict.fromkeys(each.key for each in settings))
    assert {each.key for each in settings} == set(values)
    assert all(each.kind and each.meaning for each in settings)
    outcome = parley(f"settings {verb.name} --all")
    assert outcome.status == 0
    assert all(each.key in outcome.err for each in settings)
    assert len(job.presets) == 1 or all(preset in outcome.err for preset in job.presets)
    assert not Path("runs").exists()


@pytest.mark.parametrize("verb", JOBS, ids=lambda verb: verb.name)
def test_a_section_that_another_list_has_is_one_line_there(verb: Verb) -> None:
    kind = find("-".join(verb.words)).load().config
    listed, every = list(settings_of(kind, verb=verb.name)), list(settings_of(kind))
    assert sum(each.num or 1 for each in listed) == len(every)
    for each in listed:
        if each.num:
            topic = re.search(r"parley settings (.+) lists them", each.meaning)[1]  # type: ignore[index]
            names = {key.rpartition(".")[2] for key in each.default}
            there = (
                settings_of(topic_class(topic)) if topic in TOPICS else settings_of(find(topic.replace(" ", "-")).load().config)
            )
            assert names <= {other.key.rpartition(".")[2] for other in there}


def test_a_line_of_a_section_shows_what_differs_from_its_defaults(parley: Parley) -> None:
    told = " ".join(parley("settings minmax --set attack.learning_rate=0.125 --set chat.timeout_s=7").err.split())
    assert "attack.learning_rate=0.125" in told
    assert "chat.timeout_s=7.0" in told
    assert "chat.timeout_s" not in parley("settings minmax").err.partition("this command")[0]
    assert "chat.timeout_s" in parley("settings chat").err
    assert "parley settings smn" in " ".join(parley("settings train matcher").err.split())
    assert "smn.session" in parley("settings smn").err


def test_it_shows_what_a_command_would_use(parley: Parley) -> None:
    outcome = parley("settings train negotiator lewis2017 --set fit.clip=1 --seed 3 --json")
    found = json.loads(outcome.out)
    assert (found["seed"], found["corpus"]) == (3, "dealornodeal")
    assert (found["fit"]["clip"], found["fit"]["optimiser"], found["fit"]["max_epochs"]) == (1.0, "sgd", 32)
    told = parley("settings train negotiator lewis2017 --set fit.clip=1 --seed 3").err
    assert "parley train negotiator lewis2017 --seed 3 --set fit.clip=1.0" in told


def test_a_setting_may_be_a_json_object(parley: Parley, tmp_path: Path) -> None:
    fields = {"chat_template_kwargs": {"enable_thinking": False}, "temperature": None}
    told = parley("settings selfplay", "--set", f"chat.extra={json.dumps(fields)}", "--json").out
    assert json.loads(json.loads(told)["chat"]["extra"]) == fields
    (tmp_path / "chat.yaml").write_text("chat:\n  extra:\n    top_p: 0.9\n")
    told = parley("settings selfplay --config", str(tmp_path / "chat.yaml")).err
    (line,) = [line for line in told.splitlines() if line.strip().startswith("parley selfplay")]
    again = parley("settings", *shlex.split(line)[1:], "--json").out
    assert json.loads(json.loads(again)["chat"]["extra"]) == {"top_p": 0.9}, "the command that is shown says the same"
    assert "give a JSON object such as" in parley("settings selfplay --set chat.extra=[1]").err
    assert "any field but model, messages" in parley('settings selfplay --set chat.extra={"model":1}').err


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("settings selfpla", "did you mean 'selfplay'"),
        ("settings evaluate", "is called 'evaluate'\n  fix:   one of evaluate exploitability, "),
        ("settings train negotiater", "did you mean 'train negotiator'"),
        ("settings list", "no verb with settings is called 'list'"),
        ("settings selfplay --set dialogus=1", "did you mean 'dialogues'"),
    ],
)
def test_mistakes_are_named(parley: Parley, asked: str, told: str) -> None:
    outcome = parley(asked)
    assert outcome.status == 2
    assert told in outcome.err


def test_the_settings_of_perturbations_are_listed_too(parley: Parley) -> None:
    outcome = parley("settings perturb")
    assert outcome.status == 0
    assert "perturb.swap_every" in outcome.err


@pytest.mark.parametrize(
    ("verb", "setting", "value"), [("perturb", "perturb.swap_every", 7), ("play ranking", "candidates.turns", 30)]
)
def test_settings_of_verbs_that_run_no_job_follow_a_file_and_what_is_set(
    parley: Parley, verb: str, setting: str, value: int
) -> None:
    section, name = setting.split(".")
    Path("more.yaml").write_text(f"{section}:\n  {name}: {value + 1}\n")
    found = [parley(f"settings {verb} --json {more}") for more in ("--config more.yaml", f"--set {setting}={value}")]
    assert [json.loads(each.out)[section][name] for each in found] == [value + 1, value]
    assert parley(f"settings {verb} --json --set {setting}_=1").status == 2


def test_without_a_verb_it_helps(parley: Parley) -> None:
    assert parley("settings").out == parley("settings --help").out
    assert "parley settings selfplay" in parley("settings").out


def test_the_words_of_a_verb_may_stand_in_quotes(parley: Parley) -> None:
    assert parley("settings", "evaluate adversarial", "--json").out == parley("settings evaluate adversarial --json").out
    assert "replies.generic" in parley("settings", "play ranking").err
