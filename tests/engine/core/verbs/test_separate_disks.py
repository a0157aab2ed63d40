"""Jobs whose models lie on the driver's disk alone: the machines of the cluster get them with the work."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.core.ray.own_cluster import survives

pytestmark = [pytest.mark.ray, pytest.mark.slow]

BEGIN = """
import sys
from pathlib import Path
from parley.engine.core.verbs.job import Silent
from tests.engine.core.ray.own_cluster import add_machine_apart, start_cluster
folder = Path(sys.argv[1])
driver = folder / "driver"
driver.mkdir()
cluster = start_cluster(0)
for name in ("one", "another"):
    add_machine_apart(cluster, driver, folder / name, num_cpus=1)
"""
TRAINS_AND_PLAYS = (
    BEGIN
    + """
from dataclasses import replace
from parley.engine.negotiation.verbs.match import SELFPLAY, MatchConfig
from parley.engine.negotiation.verbs.training import TRAIN_ADVERSARY
from tests.engine.core.verbs.made_up import rows
from tests.engine.negotiation.rl.test_training_lost import assert_equal_results, config
from tests.engine.negotiation.rl.trainings import World
asked = replace(config(World(driver)), address=cluster.address)
TRAIN_ADVERSARY.run(asked, driver / "whole", Silent())
TRAIN_ADVERSARY.run(replace(asked, env_runners=1, remote_learner=True), driver / "apart", Silent())
assert_equal_results(driver / "apart", driver / "whole")
played = MatchConfig(adversary=str(driver / "apart"), target=str(driver / "target"), judge=str(driver / "target"), dialogues=8)
SELFPLAY.run(replace(played, shard_size=2), driver / "here", Silent())
SELFPLAY.run(replace(played, shard_size=2, workers=2, address=cluster.address), driver / "there", Silent())
found = rows(driver / "there")
assert found == rows(driver / "here") and {row["status"] for row in found} == {"ok"}, found
kept = [len([*(folder / name / "cache" / "carried").iterdir()]) for name in ("one", "another")]
assert min(kept) >= 2, kept
cluster.shutdown()
print("survived")
"""
)
TRAINS_SEVERAL = (
    BEGIN.replace("num_cpus=1", "num_cpus=2")
    + """
from dataclasses import replace
from parley.engine.negotiation.verbs.training import TRAIN_ADVERSARY
from parley.engine.core.runs.run_folder import RunFolder
from tests.engine.core.verbs.made_up import Notes
from tests.engine.negotiation.rl.test_training_lost import assert_equal_results, config
from tests.engine.negotiation.rl.trainings import World
asked = replace(config(World(driver)), seeds=2, address=cluster.address)
TRAIN_ADVERSARY.run(asked, driver / "here", Silent())
notes = Notes()
TRAIN_ADVERSARY.run(replace(asked, trainers=2), driver / "there", notes)
for name in ("training-1", "training-2"):
    assert_equal_results(driver / "there" / name, driver / "here" / name)
assert ("trainings", 2, "stages") in notes.stages and not notes.said, (notes.stages, notes.said)
at = [[event["time"] for event in RunFolder.load(driver / "there" / f"training-{number}").events()] for number in (1, 2)]
assert max(times[0] for times in at) < min(times[-1] for times in at), at
# Learners and runners were on both machines: theirs is what is carried.
kept = [len([*(folder / name / "cache" / "carried").iterdir()]) for name in ("one", "another")]
assert min(kept) >= 2, kept
cluster.shutdown()
print("survived")
"""
)
EXPLOITS_AND_IS_KILLED = (
    BEGIN.replace("num_cpus=1", "num_cpus=2")
    + """
import shlex
from dataclasses import replace
from parley.engine.negotiation.verbs.exploitability import ADVERSARY, ATTACK, EVALUATE_EXPLOITABILITY
from parley.engine.core.verbs.repeated import nth_name
from tests.engine.core.verbs.made_up import (
    REINFORCE, Notes, assert_equal_weights, corpus_vocabulary, data_root, iterations, kill_when, metrics, rows,
    save_negotiator, start_parley,
)
from tests.engine.negotiation.verbs.test_exploitability import exploiting
(driver / "data").mkdir()
root = data_root(driver / "data")
target = save_negotiator(driver / "target", seed=3, vocabulary=corpus_vocabulary(root))
rule = replace(REINFORCE, dialogues=360)
asked = exploiting(root, target, seeds=2, save_every=3, reinforce=rule, address=cluster.address)
whole = EVALUATE_EXPLOITABILITY.run(asked, driver / "here", Silent())
there, asked = driver / "there", replace(asked, trainers=2)
adversaries = [nth_name(ADVERSARY, number) for number in (1, 2)]
logs = [there / name / "events.jsonl" for name in adversaries]
process = start_parley(*shlex.split(EVALUATE_EXPLOITABILITY.command(asked, there))[1:], folder=driver)
kill_when(process, lambda: all(log.exists() and log.read_text().count('"iteration"') >= 5 for log in logs))
assert not any((there / name / "summary.json").exists() for name in adversaries), "they were killed too late"
notes = Notes()
again = EVALUATE_EXPLOITABILITY.run(asked, there, notes)
assert metrics(again) == metrics(whole)
for number, name in enumerate(adversaries, start=1):
    assert_equal_weights(there / name, driver / "here" / name)
    made = iterations(there / name)
    assert len(made) - len({*made}) < 3, made
    assert any(line.startswith(f"{name}: resumed after update ") for line in notes.said), notes.said
    attack = nth_name(ATTACK, number)
    assert rows(there / attack) == rows(driver / "here" / attack)
cluster.shutdown()
print("survived")
"""
)
HARDENS = (
    BEGIN
    + """
from parley.engine.negotiation.verbs.minmax import MINMAX
from tests.engine.core.verbs.made_up import assert_equal_weights, campaign, corpus_vocabulary, data_root, save_negotiator
(driver / "data").mkdir()
root = data_root(driver / "data")
trainee = save_negotiator(driver / "trainee", seed=3, vocabulary=corpus_vocabulary(root))
whole = MINMAX.run(campaign(root, trainee, rounds=1, address=cluster.address), driver / "whole", Silent())
asked = campaign(root, trainee, rounds=1, env_runners=2, workers=2, address=cluster.address)
found = MINMAX.run(asked, driver / "apart", Silent())
assert {name: estimate.value for name, estimate in found.metrics.items()} == {
    name: estimate.value for name, estimate in whole.metrics.items()
}
assert_equal_weights(driver / "apart", driver / "whole")
cluster.shutdown()
print("survived")
"""
)
FILLS_A_MATRIX = (
    BEGIN
    + """
from dataclasses import replace
from parley.engine.negotiation.verbs.population import EVALUATE_POPULATION, PopulationConfig
from tests.engine.core.verbs.made_up import rows, save_negotiator
targets = [str(save_negotiator(driver / f"target-{seed}", seed=seed)) for seed in (1, 2)]
adversary = str(save_negotiator(driver / "adversary", seed=3))
asked = PopulationConfig(targets=",".join(targets), adversaries=f"{adversary},scripted", dialogues=4, shard_size=2)
EVALUATE_POPULATION.run(asked, driver / "here", Silent())
EVALUATE_POPULATION.run(replace(asked, workers=2, address=cluster.address), driver / "there", Silent())
found = rows(driver / "there")
assert found == rows(driver / "here") and {row["status"] for row in found} == {"ok"}, found
kept = [len([*(folder / name / "cache" / "carried").iterdir()]) for name in ("one", "another")]
assert kept == [3, 3], kept
cluster.shutdown()
print("survived")
"""
)
PLACES = {
    "train and selfplay": TRAINS_AND_PLAYS,
    "several trainings": TRAINS_SEVERAL,
    "several that are killed": EXPLOITS_AND_IS_KILLED,
    "minmax": HARDENS,
    "population": FILLS_A_MATRIX,
}


@pytest.mark.timeout(1300)
@pytest.mark.parametrize("script", PLACES.values(), ids=PLACES)
def test_machines_that_do_not_see_the_drivers_disk_give_the_same(script: str, tmp_path: Path) -> None:
    survives(script, tmp_path, timeout_s=1200)
