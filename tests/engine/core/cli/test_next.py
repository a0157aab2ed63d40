"""Commands that are named as the next thing to type can be typed as they stand."""

from __future__ import annotations

import shlex
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.cli.flags import parse, parse_job
from parley.engine.core.cli.main import find_verb
from parley.engine.core.cli.runs import ReportArguments
from parley.engine.core.verbs.catalogue import ENTRIES
from parley.engine.core.verbs.job import in_free_folder
from parley.engine.core.verbs.trainings import Entry
from parley.engine.negotiation.verbs import training
from parley.engine.negotiation.verbs.minmax import MINMAX
from parley.engine.negotiation.verbs.negotiator import TRAIN_NEGOTIATOR
from parley.engine.negotiation.verbs.play import PlayArguments
from parley.engine.perturb.verbs.audit import LabelArguments
from parley.engine.perturb.verbs.perturb import PerturbArguments
from parley.engine.ranking.verbs.play import PlayRankingArguments
from parley.engine.responders.data import CorpusArguments
from parley.engine.responders.reply import PlayReplyArguments
from parley.envs.corpora.lines import data_command
from tests.engine.core.cli.conftest import Parley
from tests.engine.core.verbs.made_up import CORPUS

JOBS = [
    pytest.param(entry, preset, id="-".join((*entry.words, preset))) for entry in ENTRIES for preset in entry.load().presets
]
KINDS = {
    "data": CorpusArguments,
    "perturb": PerturbArguments,
    "perturb label": LabelArguments,
    "play": PlayArguments,
    "play ranking": PlayRankingArguments,
    "play reply": PlayReplyArguments,
    "report": ReportArguments,
}


def understood(command: str) -> Any:
    """What a command asks for: a job's configuration, or the arguments of another verb; None for help."""
    _, *words = shlex.split(command.rpartition("| ")[2])
    verb = find_verb(words)
    assert verb is not None, command
    rest = words[len(verb.words) :]
    if rest == ["--help"]:
        return None
    for entry in ENTRIES:
        if entry.words == verb.words:
            return parse_job(verb, entry.load(), rest).config
    return parse(KINDS.get(verb.name, KINDS[words[0]]), verb, rest)


@pytest.mark.parametrize(("entry", "preset"), JOBS)
def test_what_a_job_names_is_understood_and_looks_for_corpora_where_it_did(entry: Entry, preset: str) -> None:
    job = entry.load()
    config, root = job.presets[preset](), Path("/my data")
    if "data_root" in {field.name for field in fields(config)}:
        config = replace(config, data_root=root)
    # A sweep's best settings are a file that the sweep writes.
    commands = [each for each in job.next_commands(config, Path("runs/my run")) if "--config" not in each]
    assert commands
    for asked in filter(None, map(understood, commands)):
        if hasattr(config, "data_root") and hasattr(asked, "data_root"):
            assert asked.data_root == root


def test_a_next_command_names_a_new_folder_if_another_run_is_in_its_own(parley: Parley) -> None:
    parley("selfplay scripted --dialogues 3")
    best = "parley selfplay scripted --config runs/sweep/best.yaml"
    assert in_free_folder(best) == f"{best} --run runs/selfplay-2"
    Path("runs/selfplay-2").mkdir()
    assert in_free_folder(best) == f"{best} --run runs/selfplay-3"
    for command in (
        f"{best} --run runs/mine",
        "parley report runs/selfplay",
        "parley minmax replies",
        "echo it | parley perturb typos",
    ):
        assert in_free_folder(command) == command
    parley("attack ranking --limit 3 --method random")
    told = parley("evaluate ranking --limit 3 --rules none --no-controls").err
    assert "parley attack ranking --model tfidf,bm25 --limit 3 --run runs/ranking-attack-2\n" in told


def test_fresh_adversaries_of_the_next_commands_learn_as_long_as_those_of_the_run() -> None:
    rule = training.demo().reinforce
    *_, table, matrix = map(understood, MINMAX.next_commands(MINMAX.presets["demo"](), Path("runs/minmax")))
    assert (table.reinforce, table.target, matrix.reinforce, matrix.campaign) == (rule, "runs/minmax", rule, "runs/minmax")
    *_, matrix = map(understood, MINMAX.next_commands(MINMAX.presets["psro"](), Path("runs/minmax")))
    assert (matrix.num_fresh, matrix.reinforce.dialogues) == (1, 12_800)
    *_, adversary = map(understood, TRAIN_NEGOTIATOR.next_commands(TRAIN_NEGOTIATOR.presets["demo"](), Path("runs/mine")))
    assert (adversary.reinforce, adversary.target, adversary.corpus) == (rule, "runs/mine", "embedded")
    hardened = replace(training.hardened(), corpus="embedded")
    (measured,) = map(understood, training.TRAIN_TARGET.next_commands(hardened, Path("runs/mine")))
    assert (measured.reinforce, measured.target) == (rule, "runs/mine")


@pytest.mark.parametrize("verb", ["get", "info"])
def test_what_a_corpus_is_followed_by_can_be_typed(parley: Parley, root: Path, verb: str) -> None:
    outcome = parley("data", verb, CORPUS, "--data-root", str(root))
    commands = outcome.err.partition("next:\n")[2].splitlines()
    assert len(commands) == 2
    for command in commands:
        assert understood(command).data_root == root
        if command.strip().startswith("parley data"):
            assert parley(*shlex.split(command)[1:]).status == 0


def test_corpora_that_are_missing_are_fetched_into_the_root_that_was_named(parley: Parley, tmp_path: Path) -> None:
    root = tmp_path / "my data"
    outcome = parley("data", "list", "--data-root", str(root))
    commands = outcome.err.partition("next:\n")[2].splitlines()
    assert commands
    assert {understood(command).data_root for command in commands} == {root}


@pytest.mark.parametrize("verb", ["data info", "data check", "train negotiator --corpus", "selfplay --scenarios"])
def test_the_remedy_of_a_missing_corpus_fetches_it_into_the_root_that_was_named(
    parley: Parley, tmp_path: Path, verb: str
) -> None:
    root = tmp_path / "my data"
    outcome = parley(*verb.split(), "dealornodeal", "--data-root", str(root))
    assert outcome.status in (1, 2)
    asked = understood("parley data get" + outcome.err.partition("parley data get")[2].partition("; or")[0])
    assert (asked.name, asked.data_root) == ("dealornodeal", root)


def test_the_data_root_that_needs_no_flag_gets_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_DATA", str(tmp_path))
    assert data_command("check", "huge.csv", tmp_path) == "parley data check huge.csv"
    assert data_command("check", "huge.csv", Path("/other")) == "parley data check huge.csv --data-root /other"
