"""Campaigns of adversarial training: who learns from whom, what a round measures, which target is the result."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parley.engine.core.ray.session import RaySession
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import EXPLOITABILITY, MEAN_FRESH, known_of
from parley.engine.core.stats.statistics import paired_difference
from parley.engine.core.verbs.campaign import ROUND, rounds_of
from parley.engine.core.verbs.job import Result, Silent
from parley.engine.core.verbs.repeated import nth_name
from parley.engine.negotiation.attacks.opponents import OpponentConfig
from parley.engine.negotiation.metrics.campaign import (
    AFTER,
    BEFORE,
    PERPLEXITY,
    PLAIN_AGREEMENT,
    PLAIN_SCORE,
    REPEATS,
    REPETITION,
    ROUND_METRICS,
    rounds_table,
)
from parley.engine.negotiation.verbs import exploitability
from parley.engine.negotiation.verbs.agents import judge_of
from parley.engine.negotiation.verbs.exploitability import MORE, NUM_KNOWN
from parley.engine.negotiation.verbs.minmax import BEFORE_TRAINING, DROP, DROP_BEYOND_CONTROL, FINAL_STAGES, LEGEND, MINMAX
from parley.envs.negotiation.domain import Vocabulary
from parley.policies.core.checkpoint import Checkpoint
from parley.policies.negotiator.settings import KIND
from tests.engine.core.verbs.made_up import (
    CORPUS,
    Notes,
    asked_of,
    assert_equal_weights,
    campaign,
    corpus_vocabulary,
    metrics,
    phases,
    rows,
    save_negotiator,
    scalars,
)

run = MINMAX.run

pytestmark = pytest.mark.ray

START, FINAL, CONTROL = (
    [f"{kind}-{name}" for name in ("best", "exploitability", "plain")] for kind in ("00", "final", "control")
)
"""The folders of what measures the start, the result and the control."""
MIXED = OpponentConfig(sampling="prioritised", partner_share=0.5)


@pytest.fixture(scope="module")
def partner(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """Another one, for plain play."""
    return save_negotiator(tmp_path_factory.mktemp("partner") / "checkpoint", seed=5, vocabulary=corpus_vocabulary(root))


@pytest.fixture(scope="module")
def continued(
    tmp_path_factory: pytest.TempPathFactory, root: Path, trainee: Path, ray_session: RaySession
) -> tuple[Result, Notes]:
    """Two rounds as in the paper."""
    notes = Notes()
    return run(campaign(root, trainee), tmp_path_factory.mktemp("continued") / "run", notes), notes


@pytest.fixture(scope="module")
def fresh(
    tmp_path_factory: pytest.TempPathFactory, root: Path, trainee: Path, partner: Path, ray_session: RaySession
) -> Result:
    """Two rounds with fresh best responses and an ordinary partner; three adversaries measure start, result and control."""
    asked = campaign(root, trainee, adversaries="fresh", num_adversaries=2, partner=str(partner), opponents=MIXED)
    asked = replace(asked, num_final_adversaries=3, control=True, seed=2)
    return run(asked, tmp_path_factory.mktemp("fresh") / "run", Silent())


def summary(path: Path) -> dict[str, Any]:
    found = RunFolder.load(path).summary()
    assert found is not None
    return dict(found["metrics"])


def origin(path: Path, *names: str) -> dict[str, Any]:
    """What a checkpoint says of its origin."""
    provenance = Checkpoint.load(path / "checkpoint", KIND, Vocabulary).provenance
    return {name: provenance[name] for name in names}


def test_in_the_paper_each_side_is_trained_on(continued: tuple[Result, Notes], trainee: Path) -> None:
    path, start = continued[0].run, str(trainee)
    measured = ("adversary", "after", "before", "exploitability", "plain", "target")
    names = [f"0{k}-{name}" for k in (1, 2) for name in measured]
    assert phases(path) == sorted([*START, *names, *FINAL, "crossplay", "crossplay-rounds"])
    assert set(FINAL_STAGES) >= {name for name in (*START, *FINAL) if not name.endswith("exploitability")}
    first, second = ({name: str(path / f"0{k}-{name}") for name in measured} for k in (1, 2))
    learned = ("target", "learner", "reference")
    assert asked_of(path / "01-adversary", *learned) == dict(zip(learned, (start, start, start), strict=True))
    assert asked_of(path / "02-adversary", *learned) == dict(
        zip(learned, (first["target"], first["adversary"], start), strict=True)
    )
    hardened = ("target", "adversaries", "reference", "partner")
    both = f"{first['adversary']},{second['adversary']}"
    assert asked_of(path / "01-target", *hardened) == dict(
        zip(hardened, (start, first["adversary"], start, start), strict=True)
    )
    assert asked_of(path / "02-target", *hardened) == dict(zip(hardened, (first["target"], both, start, start), strict=True))
    assert origin(path / "02-adversary", "role", "target", "learner") == {
        "role": "adversary",
        "target": first["target"],
        "learner": first["adversary"],
    }
    assert origin(path / "02-target", "role", "target", "adversaries") == {
        "role": "target",
        "target": first["target"],
        "adversaries": both.split(","),
    }
    seeds = {name: asked_of(path / name, "seed")["seed"] for name in names}
    assert seeds["01-target"] != seeds["02-target"], "every round has dialogues of its own"
    assert len({seed for name, seed in seeds.items() if name[3:] not in ("target", "adversary")}) == 1, "measured alike"


def test_best_responses_start_afresh(continued: tuple[Result, Notes], fresh: Result, trainee: Path) -> None:
    for path in (continued[0].run, fresh.run):
        for number, target in enumerate((trainee, path / "01-target", path / "02-target")):
            measured = asked_of(path / f"0{number}-exploitability", "target", "speaker", "judge")
            assert measured == {"target": str(target), "speaker": str(trainee), "judge": str(trainee)}


def test_best_responses_are_the_next_rounds_adversaries(fresh: Result, trainee: Path, partner: Path) -> None:
    path = fresh.run
    assert not any(name.endswith("-adversary") for name in phases(path)), "none is trained along"
    names = [nth_name(exploitability.ADVERSARY, number) for number in (1, 2, 3)]
    first, second = ([str(path / f"0{k}-exploitability" / name) for name in names[: 3 - k]] for k in (0, 1))
    assert asked_of(path / "01-target", "target", "adversaries") == {"target": str(trainee), "adversaries": ",".join(first)}
    assert asked_of(path / "02-target", "target", "adversaries") == {
        "target": str(path / "01-target"),
        "adversaries": ",".join(first + second),
    }
    assert asked_of(path / "02-before", "speaker") == {"speaker": second[0]}
    for number in (1, 2):
        hardened = RunFolder.load(path / f"0{number}-target")
        assert (hardened.config["partner"], hardened.config["reference"]) == (str(partner), str(trainee))
        assert hardened.config["opponents"] == {"sampling": "prioritised", "pool": 8, "partner_share": 0.5, "weights": []}
        assert all("plain_score" in event for event in hardened.events() if event["kind"] == "iteration")
        assert asked_of(path / f"0{number}-plain", "adversary") == {"adversary": str(partner)}


def test_a_round_measures_what_its_runs_say(continued: tuple[Result, Notes], trainee: Path) -> None:
    path = continued[0].run
    events = [event for event in RunFolder.load(path).events() if event["kind"] == ROUND]
    assert [event["number"] for event in events] == [0, 1, 2]
    targets = [str(trainee), str(path / "01-target"), str(path / "02-target")]
    for number, event in enumerate(events):
        stage = f"0{number}-"
        plain = summary(path / f"{stage}plain")
        wanted = {
            **{name: summary(path / f"{stage}exploitability")[name] for name in (EXPLOITABILITY, MEAN_FRESH, MORE)},
            PLAIN_SCORE: plain["score_target"],
            PLAIN_AGREEMENT: plain["agreement"],
            REPETITION: plain["repetition_target"],
            REPEATS: plain["repeats_target"],
        }
        if number:
            wanted |= {
                BEFORE: summary(path / f"{stage}before")["advantage"],
                AFTER: summary(path / f"{stage}after")["advantage"],
            }
            wanted[PERPLEXITY] = summary(path / f"{stage}target")[PERPLEXITY]
            adversary = str(path / f"{stage}adversary")
            for name, target in (("before", targets[number - 1]), ("after", targets[number])):
                assert asked_of(path / f"{stage}{name}", "speaker", "target") == {"speaker": adversary, "target": target}
        estimates = event["estimates"]
        assert {name: estimates[name] for name in wanted} == wanted
        assert set(estimates) == set(wanted) | {PERPLEXITY}
        assert {name: event[name] for name in estimates} == {name: parts["value"] for name, parts in estimates.items()}


def test_the_rounds_are_told_as_they_end(continued: tuple[Result, Notes]) -> None:
    result, notes = continued
    table = rounds_table(rounds_of(RunFolder.load(result.run)))
    assert table.columns == ("round", *(metric.title for metric in ROUND_METRICS.values()))
    assert notes.said[0].startswith("plan: the start is measured, then 2 rounds at most; dialogues of a round: ")
    assert all(f"({key})" in notes.said[0] for key in ("attack.dialogues", "defence.dialogues", "--dialogues"))
    told = [line.split("  ") for line in notes.said]
    shown = [tuple(cell.strip() for cell in cells if cell.strip()) for cells in told]
    assert [cells for cells in shown if cells[0] in ("round", "0", "1", "2")] == [table.columns, *table.rows]
    trained = [line for line in notes.said if "training" in line]
    assert trained == [
        "round 0: training fresh adversaries against the frozen target",
        *(
            f"round {number}: training {what}"
            for number in (1, 2)
            for what in ("the adversary", "the target", "fresh adversaries against the frozen target")
        ),
        "training fresh adversaries once more, from seeds that chose no round",
    ]


def by_pair(path: Path) -> dict[tuple[str, str], float]:
    """The mean advantage of each adversary over each target, in the dialogues of a campaign's cross-play."""
    gained: dict[tuple[str, str], list[int]] = {}
    for name in ("crossplay-rounds", "crossplay"):
        for row in rows(path / name):
            gained.setdefault((row["target"], row["adversary"]), []).append(row["points_adversary"] - row["points_target"])
    return {pair: float(np.mean(values)) for pair, values in gained.items()}


@pytest.mark.parametrize("mode", ["continued", "fresh"])
def test_all_targets_meet_all_adversaries_and_the_best_of_each_measures_it(
    mode: str, request: pytest.FixtureRequest, trainee: Path
) -> None:
    made = request.getfixturevalue(mode)
    path = (made if isinstance(made, Result) else made[0]).run
    result = made if isinstance(made, Result) else made[0]
    control = [path / "control-target"] if mode == "fresh" else []
    targets = [str(one) for one in (trainee, path / "01-target", path / "02-target", *control)]
    trained = [str(one.parent) for one in sorted(path.glob("**/checkpoint")) if "adversary" in str(one.parent.name)]
    pairs = by_pair(path)
    everybody = {*trained, str(trainee), "scripted", "scripted-tough"}
    assert set(pairs) == {(target, adversary) for target in targets for adversary in everybody}
    chosen = origin(path, "round")["round"]
    measured = {"_before": ("00", targets[0]), "": ("final" if chosen else "00", targets[chosen])}
    measured |= {"_control": ("control", targets[-1])} if control else {}
    known = known_of(RunFolder.load(path).summary())
    assert known is not None
    for ending, (stage, target) in measured.items():
        speaker = asked_of(path / f"{stage}-best", "speaker")["speaker"]
        assert pairs[target, speaker] == max(gain for (met, _), gain in pairs.items() if met == target)
        assert metrics(result)[f"{EXPLOITABILITY}{ending}"] == summary(path / f"{stage}-best")["advantage"]
        assert known.best_of(target.removeprefix(f"{path}/")) == speaker.removeprefix(f"{path}/")
    chose = {(row["seed"], *row["counts"]) for name in ("crossplay-rounds", "crossplay") for row in rows(path / name)}
    assert not chose & {(row["seed"], *row["counts"]) for row in rows(path / "00-best")}, "they measure what they chose"
    assert result.metrics[NUM_KNOWN].value == len(everybody) == len(known.adversaries)
    assert result.metrics[NUM_KNOWN].n == result.metrics[EXPLOITABILITY].n, "a number of adversaries is no sample of dialogues"
    names = {name.removeprefix(f"{path}/") for name in trained}
    assert known.learned.keys() == names
    for name, gained in known.learned.items():
        stage = name.partition("/")[0]
        target = {"00": targets[0], "01": targets[1], "02": targets[2], "final": targets[chosen]}.get(
            stage.partition("-")[0], targets[-1]
        )
        if stage.endswith("-adversary"):
            target = targets[int(stage[:2]) - 1]
        wanted = pairs[target, f"{path}/{name}"] - pairs[target, str(trainee)]
        assert gained.value == pytest.approx(wanted), "against the target that it was trained against"
        assert known.gained[name].value == pytest.approx(pairs[target, f"{path}/{name}"])


@pytest.mark.parametrize("mode", ["continued", "fresh"])
def test_the_result_is_the_least_exploitable_target(mode: str, request: pytest.FixtureRequest, trainee: Path) -> None:
    made = request.getfixturevalue(mode)
    path = (made if isinstance(made, Result) else made[0]).run
    found = {event["number"]: event for event in RunFolder.load(path).events() if event["kind"] == ROUND}
    playing = [number for number, event in found.items() if event[PLAIN_SCORE] >= found[0][PLAIN_SCORE] - 0.5]
    in_rounds = {row["adversary"] for row in rows(path / "crossplay-rounds")}
    targets, pairs = [str(trainee), str(path / "01-target"), str(path / "02-target")], by_pair(path)
    losses = [max(pairs[target, name] for name in in_rounds) for target in targets]
    best = min(playing, key=lambda number: losses[number])
    assert best > 0, "the seeds are chosen so that training helps"
    assert MINMAX.loss(RunFolder.load(path)) == pytest.approx(losses[best])
    assert_equal_weights(path, path / f"0{best}-target")
    assert origin(path, "campaign_from", "round") == {"campaign_from": str(trainee), "round": best}
    assert judge_of("", [str(path)]) == str(trainee)
    for stage, target in (("00", trainee), ("final", path / f"0{best}-target")):
        assert asked_of(path / f"{stage}-exploitability", "target") == {"target": str(target)}
        assert asked_of(path / f"{stage}-best", "target") == {"target": str(target)}
        assert asked_of(path / f"{stage}-plain", "target") == {"target": str(target)}


def test_the_best_adversary_is_found_from_any_folder(continued: tuple[Result, Notes], monkeypatch: pytest.MonkeyPatch) -> None:
    path = continued[0].run
    best = MINMAX.offers["last_adversary"](RunFolder.load(path))
    assert best.startswith(str(path))
    monkeypatch.chdir(path.parent)
    assert MINMAX.offers["last_adversary"](RunFolder.load(Path(path.name))) == best


def test_start_and_result_are_measured_alike(continued: tuple[Result, Notes]) -> None:
    result, _ = continued
    path = result.run
    assert set(result.metrics) == {name for name in LEGEND if not name.endswith("control")}
    found = metrics(result)
    for ending, stage in ((BEFORE_TRAINING, "00"), ("", "final")):
        attack, plain = summary(path / f"{stage}-exploitability"), summary(path / f"{stage}-plain")
        assert found[MEAN_FRESH + ending] == attack[MEAN_FRESH]
        assert found[MORE + ending] == attack[MORE]
        assert (found[PLAIN_SCORE + ending], found[PLAIN_AGREEMENT + ending]) == (plain["score_target"], plain["agreement"])
    by_stage = {stage: asked_of(path / stage, "seed")["seed"] for stage in START + FINAL}
    for name in ("best", "exploitability", "plain"):
        assert by_stage[f"00-{name}"] == by_stage[f"final-{name}"]
    seeds = set(by_stage.values())
    chose = {asked_of(path / f"0{k}-{name}", "seed")["seed"] for k in (1, 2) for name in ("plain", "exploitability")}
    assert not seeds & chose, "dialogues and adversaries that chose no round"
    lost = [
        (before["points_adversary"] - before["points_target"]) - (after["points_adversary"] - after["points_target"])
        for before, after in zip(rows(path / "00-best"), rows(path / "final-best"), strict=True)
    ]
    assert result.metrics[DROP].value == pytest.approx(sum(lost) / len(lost))


def test_what_was_lost_is_that_of_the_best_adversaries_in_the_same_dialogues(fresh: Result) -> None:
    gained = [exploitability.gains_in(fresh.run / f"{stage}-best") for stage in ("00", "final", "control")]
    before, after, control = ([one[key] for key in sorted(one)] for one in gained)
    assert fresh.metrics[DROP].to_json() == pytest.approx(paired_difference(before, after).to_json())
    assert fresh.metrics[DROP_BEYOND_CONTROL].to_json() == pytest.approx(paired_difference(control, after).to_json())
    assert fresh.metrics[exploitability.NUM_TRAINED].value == 3
    assert set(fresh.metrics) == set(LEGEND)


def test_the_control_is_the_start_trained_as_long_in_ordinary_play_alone(fresh: Result, trainee: Path, partner: Path) -> None:
    path = fresh.run
    control, hardened = (RunFolder.load(path / name) for name in ("control-target", "02-target"))
    roles = {name: control.config[name] for name in ("target", "partner", "opponents")}
    alone = {"sampling": "latest", "pool": 8, "partner_share": 1.0, "weights": []}
    assert roles == {"target": str(trainee), "partner": str(partner), "opponents": alone}
    asked = {**hardened.config["reinforce"], "dialogues": 2 * hardened.config["reinforce"]["dialogues"]}
    assert control.config["reinforce"] == asked, "by the same rule, for as many dialogues as both rounds had"
    assert origin(path / "control-target", "role", "adversaries") == {"role": "target", "adversaries": []}
    for stage in ("exploitability", "plain"):
        measured = [asked_of(path / f"{name}-{stage}", "seed", "dialogues") for name in ("00", "final", "control")]
        assert measured[0] == measured[1] == measured[2]
        assert asked_of(path / f"control-{stage}", "target") == {"target": str(path / "control-target")}
    plain = summary(path / "control-plain")
    assert metrics(fresh)[f"{PLAIN_SCORE}_control"] == plain["score_target"]


def test_tensorboard_shows_the_rounds_and_every_phase(continued: tuple[Result, Notes]) -> None:
    path = continued[0].run
    found = scalars(path)
    assert set(found) == {*ROUND_METRICS, MORE}
    for name, points in found.items():
        events = [event for event in RunFolder.load(path).events() if event["kind"] == ROUND and name in event]
        assert points == [(event["number"], pytest.approx(event[name])) for event in events]
    for phase in ("01-adversary", "02-target", f"01-exploitability/{exploitability.ADVERSARY}"):
        assert [step for step, _ in scalars(path / phase)["reward"]] == [1, 2]


def test_what_to_do_next(root: Path, continued: tuple[Result, Notes]) -> None:
    path = str(continued[0].run)
    report, play, table = map(shlex.split, continued[0].next_commands)
    assert (report, play) == (["parley", "report", path], ["parley", "play", path])
    corpus = {"--corpus", CORPUS, "--data-root", str(root), "--target", path, "--published", "none"}
    assert corpus < {*table}
    published = MINMAX.next_commands(replace(MINMAX.presets["cheng2019"](), judge="runs/negotiator"), Path("runs/minmax"))
    options = "--judge runs/negotiator --target runs/minmax --published hardened --set reinforce.dialogues=12800"
    assert published[-1] == f"parley attack table {options}"


@pytest.mark.slow
def test_a_rounds_matches_are_played_side_by_side(
    continued: tuple[Result, Notes], root: Path, trainee: Path, tmp_path: Path
) -> None:
    notes = Notes()
    path = run(campaign(root, trainee, rounds=1, workers=2), tmp_path / "run", notes).run
    assert "01-before, 01-after, 01-plain side by side" in [title for title, _, _ in notes.stages]
    said = ("item_key", "turns", "points_adversary", "points_target")
    for name in ("01-before", "01-after", "01-plain"):
        side_by_side, alone = ([[row[key] for key in said] for row in rows(one / name)] for one in (path, continued[0].run))
        assert side_by_side == alone
