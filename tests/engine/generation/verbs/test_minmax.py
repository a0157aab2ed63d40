"""A generator against a discriminator as a run: what it leaves, that it goes on exactly, and how it ends when it goes wrong."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

from parley.engine.core.page.content import read_curves
from parley.engine.core.page.page import collect_run
from parley.engine.core.rllib.reproducible import DivergenceError
from parley.engine.core.runs.documents import EVENTS
from parley.engine.core.runs.run_folder import RunFolder, append_event, read_events
from parley.engine.core.stats.known import Round, known_of
from parley.engine.core.stats.statistics import clustered_rate, count, has_lost, rate_difference
from parley.engine.core.verbs.export import tables_of_run
from parley.engine.core.verbs.job import Silent
from parley.engine.core.verbs.trainings import FOLDER
from parley.engine.generation.metrics.adversarial import ADVERSUC, RANDOM
from parley.engine.generation.metrics.trained import AGAINST_DISCRIMINATOR, NATS, WATCH, step_figures, variety
from parley.engine.generation.page import TrainedGenerators
from parley.engine.generation.settings import ReplyLearning, RewardSettings
from parley.engine.generation.settings import released as released_rewards
from parley.engine.generation.verbs.config import REWARDS_OF_WORDS, HeldOut, MinMaxRepliesConfig, Watch
from parley.engine.generation.verbs.discriminator import TRAIN_DISCRIMINATOR
from parley.engine.generation.verbs.minmax import (
    ALARM,
    BEST,
    CHECK,
    DISCRIMINATORS,
    GOOD,
    ITERATION,
    MINMAX_REPLIES,
    Alarm,
    CollapseError,
    DiscriminatorShares,
    Watcher,
    lost,
)
from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.corpora.pairs.compiled import load_pairs
from parley.envs.corpora.pairs.vocabulary import EOU_ID
from parley.policies.core.responder import DecoderSettings
from parley.policies.core.settings import FitConfig
from parley.policies.generation.discriminator.settings import DiscriminatorSizes
from parley.policies.seq2seq.scoring import SEQ2SEQ, load_seq2seq
from parley.policies.seq2seq.settings import Seq2SeqSizes
from tests.engine.core.verbs.made_up import Notes, interrupt
from tests.engine.generation.verbs.test_discriminator import asked as discriminator_asked

FIT = FitConfig(learning_rate=0.02, batch_size=8, max_epochs=1, decay_epochs=0, precision="float32")
LEARNING = ReplyLearning(rounds=3, discriminator_steps=1, examples_per_step=20, generator_rate=0.02)


@pytest.fixture(scope="module")
def discriminator(tmp_path_factory: pytest.TempPathFactory, corpus: str, generator: Path) -> Path:
    path = tmp_path_factory.mktemp("discriminator") / "run"
    TRAIN_DISCRIMINATOR.run(discriminator_asked(corpus, generator, fit=FIT, decoder="greedy"), path, Silent())
    return path


def asked(corpus: str, **changes: Any) -> MinMaxRepliesConfig:
    settings: dict[str, Any] = {"corpus": corpus, "learning": LEARNING, "num_rollouts": 2, "min_reply": 4, "save_every": 2}
    fresh = {"discriminator_fit": FIT, "num_final_adversaries": 0}
    return MinMaxRepliesConfig(**{**settings, **fresh, "check_every": 1, **changes})


def events(path: Path, kind: str) -> list[dict[str, Any]]:
    return [event for event in RunFolder.load(path).events() if event["kind"] == kind]


@pytest.mark.ray
def test_it_leaves_the_best_generator_and_goes_on_exactly(
    tmp_path: Path, corpus: str, generator: Path, discriminator: Path, ray_session: object
) -> None:
    config = asked(corpus, start=str(generator), discriminator=str(discriminator))
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    result = MINMAX_REPLIES.run(config, whole, Silent())
    assert list(result.metrics) == [name for name in AGAINST_DISCRIMINATOR if "control" not in name]
    assert [event["number"] for event in events(whole, ITERATION)] == list(range(1, 10))
    checks = {event["number"]: event["adversuc"] for event in events(whole, CHECK)}
    assert list(checks) == [0, 1, 2, 3]
    picked = int(result.metrics["picked_round"].value)
    beside = {event["number"]: event["random"] for event in events(whole, CHECK)}
    assert result.metrics["validation_random"].value == beside[picked], "AdverSuc is never without it"
    assert all(0 <= value <= 1 for value in beside.values())
    nats = {event["number"]: event["validation_nll"] for event in events(whole, CHECK)}
    repetition = {event["number"]: event["repetition"] for event in events(whole, CHECK)}
    playing = [number for number in checks if not number or (nats[number] <= nats[0] + 1 and not has_lost(repetition[number]))]
    assert checks[picked] == max(checks[number] for number in playing) == result.metrics["validation_adversuc"].value
    assert result.metrics["adversuc_gain"].value == pytest.approx(
        result.metrics["test_adversuc"].value - result.metrics["test_adversuc_before"].value
    )
    assert SEQ2SEQ.provenance(whole)["round"] == picked
    assert (whole / FOLDER).is_dir()
    (shown,) = collect_run(whole).found[TrainedGenerators.name]
    curves = {curve.title.rpartition(": ")[2]: curve for curve in read_curves(TrainedGenerators.curves, [shown])}
    assert set(curves) == {
        "reward",
        "discriminator",
        "probability of a person",
        "length",
        "variety",
        "entropy",
        "AdverSuc on the validation split",
    }
    bands = curves["AdverSuc on the validation split"].bands
    assert len(bands["AdverSuc"]) == len(bands["machine-vs-random"]) == 4
    assert set(curves["variety"].series) == {"distinct-1", "distinct-2", "commonest reply"}
    assert set(curves["reward"].series) == {"reward, mean", "reward less baseline, mean size"}
    assert list(shown.metrics) == list(result.metrics)
    (event,) = events(whole, REWARDS_OF_WORDS)
    ((_, items),) = TrainedGenerators().items(shown)
    assert [item.kind for item in items] == ["reward"] * len(event["replies"])
    for each in event["replies"]:
        assert set(each["rewards"]) == {"reinforce", "regs-mc"}
        assert {len(values) for values in each["rewards"].values()} == {len(each["reply"])}
        assert len(set(each["rewards"]["reinforce"])) == 1, "every word earns what the reply does"
        assert each["rewards"]["regs-mc"][-1] == each["rewards"]["reinforce"][-1], "the last one too"

    interrupt(MINMAX_REPLIES, config, parts, done=5)
    notes = Notes()
    MINMAX_REPLIES.run(config, parts, notes)
    assert "resumed after update 4" in notes.said
    shares = {f"round {event['number']}": event["commonest_share"] for event in events(parts, CHECK)}
    lines = [said for said in notes.said if said.startswith("round ") and "AdverSuc" in said]
    assert lines
    assert all(("one reply to" in said) == (shares[said.partition(":")[0]] > 0.5) for said in lines)
    for name in (BEST, "checkpoint"):
        first, second = (load_seq2seq(path / name).state_dict() for path in (whole, parts))
        assert all(torch.equal(value, second[name]) for name, value in first.items())
    assert RunFolder.load(whole).metrics() == RunFolder.load(parts).metrics()


def test_shares_told_right_are_shares_and_count_that_the_linear_judge_is_fitted_anew() -> None:
    def shares(*columns: list[float]) -> DiscriminatorShares:
        sources = {split: [f"s{n}" for n in range(40)] for split in ("val", "test")}
        return DiscriminatorShares(dict.fromkeys(sources, np.stack(columns, axis=1)), ["d", "svm-unigram"], sources)

    always, mostly, coin = [1.0] * 40, [1.0, 1.0, 0.5, 0.0] * 10, [0.5] * 40
    assert lost(shares(always, coin), shares(mostly, coin)) == rate_difference(always, mostly)
    assert lost(shares(always, coin), shares(always, coin)).high > 0, "two shares of 1 are known as far as 40 contexts say"
    linear, other = shares(coin, mostly), shares(mostly, coin)
    assert linear.measured == clustered_rate(mostly, spread=1.5)
    assert other.measured == clustered_rate(mostly)
    assert lost(linear, other).high > lost(other, other).high


@pytest.mark.ray
def test_start_control_and_result_meet_all_known_discriminators(
    tmp_path: Path, corpus: str, generator: Path, discriminator: Path, ray_session: object
) -> None:
    models = {"start": str(generator), "discriminator": str(discriminator)}
    learning = replace(LEARNING, rounds=2)
    config = asked(corpus, **models, learning=learning, checked=12, control=True, num_final_adversaries=1)
    path = tmp_path / "run"
    interrupt(MINMAX_REPLIES, config, path, r"stage \d of \d: control-discriminator")
    result = MINMAX_REPLIES.run(config, path, Silent())
    assert list(result.metrics) == list(AGAINST_DISCRIMINATOR)
    run = RunFolder.load(path)
    known = known_of(run.summary(), DISCRIMINATORS)
    assert known is not None
    assert known.targets == ["before", "control", "after"]
    kept = ["round 0", "round 1", "round 2"]
    assert known.adversaries == [*kept, "result-discriminator", "control-discriminator", "svm-unigram"]
    assert set(known.learned) == {"round 0", "result-discriminator", "control-discriminator"}
    endings = ("_before", "_control", "")
    assert [told.value for told in known.measured] == [result.metrics[f"exploitability{ending}"].value for ending in endings]
    assert all(0 <= told.value <= 1 for told in known.measured)
    drop = result.metrics["exploitability_before"].value - result.metrics["exploitability"].value
    assert result.metrics["exploitability_drop"].value == pytest.approx(drop)
    control = RunFolder.load(path / "control")
    assert (control.config["reward"], control.config["learning"]["rounds"]) == ("constant", 2), "as many steps"
    assert control.config["start"] == config.start
    assert [row[0] for row in result.more["Known adversaries"].rows][-1] == "exploitability"
    assert [*tables_of_run(str(path))] == [result.title, "Known adversaries"], "the metrics, then what is known"


def test_a_generator_that_foretells_people_much_worse_is_no_result() -> None:
    rounds = [Round(number, {NATS: count(nats, 1), "repetition": count(0.0, 1)}) for number, nats in enumerate((2.0, 2.5, 3.5))]
    assert [one.number for one in WATCH.still_playing(rounds, 1.0)] == [0, 1]


@pytest.mark.ray
@pytest.mark.parametrize("keep", ["last", "likelihood"])
def test_the_last_generator_may_be_kept_or_that_of_highest_likelihood(
    keep: Literal["last", "likelihood"],
    tmp_path: Path,
    corpus: str,
    generator: Path,
    discriminator: Path,
    ray_session: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Watch, "max_commonest", 0.0)
    models = {"start": str(generator), "discriminator": str(discriminator)}
    config = asked(corpus, **models, keep=keep, method="reinforce")
    result = MINMAX_REPLIES.run(config, tmp_path / "run", notes := Notes())
    lines = [said for said in notes.said if said.startswith("round ") and "AdverSuc" in said]
    shares = [event["commonest_share"] for event in events(tmp_path / "run", CHECK)]
    assert len(lines) == 4
    assert all(said.endswith(f"one reply to {share:.0%} of contexts") for said, share in zip(lines, shares, strict=True))
    checks = {event["number"]: event["adversuc"] for event in events(tmp_path / "run", CHECK)}
    nats = {event["number"]: event["validation_nll"] for event in events(tmp_path / "run", CHECK)}
    lost = {event["number"] for event in events(tmp_path / "run", CHECK) if event["number"] and has_lost(event["repetition"])}
    playing = [number for number in nats if number not in lost and nats[number] <= nats[0] + 1]
    picked = 3 if keep == "last" else min(playing, key=lambda number: nats[number])
    assert result.metrics["picked_round"].value == SEQ2SEQ.provenance(tmp_path / "run")["round"] == picked
    assert result.metrics["validation_adversuc"].value == checks[picked]
    last, first = (load_seq2seq(path).state_dict() for path in (tmp_path / "run", generator))
    assert all(torch.equal(value, first[name]) for name, value in last.items()) == (picked == 0)


@pytest.mark.ray
@pytest.mark.parametrize("keep", ["last", "best"])
def test_an_alarm_names_the_state_to_keep_from_before_it_began(
    keep: Literal["last", "best"],
    tmp_path: Path,
    corpus: str,
    generator: Path,
    discriminator: Path,
    ray_session: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # After one step the mean of constant rewards is all that they are.
    learning = replace(LEARNING, rounds=5, discriminator_steps=0, teacher_steps=0)
    rewards: dict[str, Any] = {"reward": "constant", "baseline": "mean", "teacher_forcing": "none", "weighted": False}
    models = {"start": str(generator), "discriminator": str(discriminator)}
    for name, limit in {"max_commonest": 1.0, "min_words": 0.0, "min_distinct": 0.0}.items():
        monkeypatch.setattr(Watch, name, limit)
    watch = Watch(patience=3, stop=True)
    config = asked(corpus, keep=keep, learning=learning, watch=watch, **rewards, **models)
    with pytest.raises(CollapseError) as caught:
        MINMAX_REPLIES.run(config, tmp_path / "run", Silent())
    advantages = [event["advantage"] for event in events(tmp_path / "run", ITERATION)]
    assert advantages[0] == 1.0
    assert advantages[1:] == pytest.approx([0.0] * 3)
    assert "no advantage: advantage 0 for 3 steps" in str(caught.value.got)
    kept, latest = (SEQ2SEQ.provenance(tmp_path / "run" / name)["round"] for name in (GOOD, BEST))
    assert f"of round {kept}, is {tmp_path / 'run' / GOOD}" in str(caught.value.fix)
    assert kept <= 1, "rounds 2 and 3 were measured after it began"
    if keep == "last":
        assert (kept, latest) == (1, 3)


@pytest.mark.ray
def test_a_divergence_names_the_rate_to_lower_and_the_generator_to_keep(
    tmp_path: Path,
    corpus: str,
    generator: Path,
    discriminator: Path,
    ray_session: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = asked(corpus, start=str(generator), discriminator=str(discriminator))
    monkeypatch.setattr("parley.engine.generation.rl.reply_modules.forcing_loss", lambda nll_BT, *_: nll_BT.sum() * math.nan)
    with pytest.raises(DivergenceError, match="not finite") as caught:
        MINMAX_REPLIES.run(config, tmp_path / "run", Silent())
    fix = str(caught.value.fix)
    assert "smaller learning.generator_rate (now 0.02)" in fix
    assert f"the generator to keep so far, of round 0, is {tmp_path / 'run' / GOOD}" in fix
    kept, started = (load_seq2seq(path).state_dict() for path in (tmp_path / "run" / GOOD, generator))
    assert all(torch.equal(value, started[name]) for name, value in kept.items())


def die_in_a_check(corpus: str, generator: str, discriminator: str, path: str) -> None:
    """Trains, and is killed while the third check is judged; a process of its own."""
    judged, asked_before = HeldOut.judged, []

    def dies(held: HeldOut, said: Any) -> Any:
        asked_before.append(None)
        if len(asked_before) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return judged(held, said)

    HeldOut.judged = dies  # type: ignore[method-assign]
    MINMAX_REPLIES.run(asked(corpus, start=generator, discriminator=discriminator), Path(path), Silent())


@pytest.mark.slow
@pytest.mark.ray
def test_a_driver_that_is_killed_inside_a_check_goes_on_to_the_same_weights(
    tmp_path: Path, corpus: str, generator: Path, discriminator: Path, ray_session: object
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    config = asked(corpus, start=str(generator), discriminator=str(discriminator))
    MINMAX_REPLIES.run(config, whole, Silent())
    code = f"from {__name__} import die_in_a_check; die_in_a_check(*{[corpus, str(generator), str(discriminator), str(parts)]})"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert [event["number"] for event in events(parts, CHECK)] == [0, 1]
    MINMAX_REPLIES.run(config, parts, Silent())
    for name in (BEST, "checkpoint"):
        first, second = (load_seq2seq(path / name).state_dict() for path in (whole, parts))
        assert all(torch.equal(value, second[name]) for name, value in first.items())
    assert RunFolder.load(whole).metrics() == RunFolder.load(parts).metrics()


@pytest.mark.ray
def test_what_is_not_named_is_trained_and_what_goes_wrong_ends_it(
    tmp_path: Path, corpus: str, ray_session: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Watch, "saturated", 0.0)
    config = asked(
        corpus,
        method="regs-partial",
        reward="constant",
        teacher_forcing="none",
        sizes=Seq2SeqSizes(embed=8, hidden=8, turns=2, max_source=20, max_reply=9),
        fit=FIT,
        discriminator_sizes=DiscriminatorSizes(embed=8, hidden=8),
        discriminator_fit=FIT,
        watch=Watch(patience=2, stop=True),
    )
    with pytest.raises(CollapseError, match=r"gone wrong") as caught:
        MINMAX_REPLIES.run(config, tmp_path / "run", Silent())
    assert caught.value.where == "update 3"
    assert "saturated: discriminator accuracy" in str(caught.value.got)
    assert str(tmp_path / "run" / GOOD) in str(caught.value.fix)
    assert [event["name"] for event in events(tmp_path / "run", ALARM)] == ["saturated"]
    assert {path.parent.name for path in (tmp_path / "run").glob("*/checkpoint")} == {"generator", "discriminator"}
    assert [event["phase"] for event in events(tmp_path / "run", ITERATION)] == ["discriminator", "generator", "discriminator"]


def test_judges_say_of_a_generator_how_often_it_deceives_and_how_far_it_is_from_random_replies(corpus: str) -> None:
    pairs = load_pairs(corpus).splits["train"]
    held = HeldOut(pairs, load_pairs(corpus).vocabulary, DecoderSettings.parse("greedy"), 20, 1)
    people = [reply.tolist() for reply in held.recorded]
    same = held.judged(people)
    assert same[ADVERSUC].adversuc().value >= 0.5, "people's own replies deceive"
    dull = held.judged([people[0]] * len(people))
    assert dull[ADVERSUC].adversuc().value < 0.1, "one reply to everybody is known at once"
    assert dull[RANDOM].accuracy().value > 0.9, "and is no random reply"
    assert set(same) == set(dull) == {ADVERSUC, RANDOM}


def test_a_reply_without_a_word_is_told_by_every_judge(corpus: str) -> None:
    pairs = load_pairs(corpus).splits["train"]
    held = HeldOut(pairs, load_pairs(corpus).vocabulary, DecoderSettings.parse("greedy"), 20, 1)
    people = [reply.tolist() for reply in held.recorded]
    silent = held.judged([[] for _ in people])
    assert silent[ADVERSUC].adversuc().value == 0, "judges that go by words were at odds, and nearly half of all pairs an error"
    assert silent[RANDOM].accuracy().value == 1
    half = held.judged([reply if number % 2 else [] for number, reply in enumerate(people)])
    assert 0.2 < half[ADVERSUC].adversuc().value < 0.6, "people's own replies deceive, those that are there"
    assert len(half[ADVERSUC].labels) == len(silent[ADVERSUC].labels) == 2 * len(people)
    one = held.judged([people[0], *([EOU_ID] for _ in people[1:])])
    undecided = one[ADVERSUC].errors[one[ADVERSUC].scores == 0]
    assert undecided.tolist() == [0.5, 0.5], "there is nothing to fit a judge on"


def test_held_out_contexts_are_answered_in_as_many_words_as_recorded_replies_may_have(corpus: str, generator: Path) -> None:
    model, pairs = load_seq2seq(generator), load_pairs(corpus).splits["val"]
    decoder = DecoderSettings.parse("sample")
    long, short = (HeldOut(pairs, model.vocabulary, decoder, most, 1).replies(model) for most in (20, 3))
    assert max(map(len, long)) > 3
    assert short == [reply[:3] for reply in long]


def test_what_is_trained_first_learns_from_replies_of_the_lengths_that_are_asked_for(corpus: str) -> None:
    config = asked(corpus, sizes=Seq2SeqSizes(embed=8, hidden=8, turns=2, max_reply=9))
    stages = MINMAX_REPLIES.stages(config, Path("run"))
    assert list(stages) == ["generator", "discriminator"]
    assert (stages["generator"][1].min_reply, stages["generator"][1].max_reply) == (4, 8)
    assert stages["discriminator"][1].decoder == "beam:7"
    shorter = MINMAX_REPLIES.stages(replace(config, max_words=6), Path("run"))
    assert (shorter["generator"][1].max_reply, shorter["discriminator"][1].min_reply) == (6, 4)


def test_the_released_preset_rewards_as_the_authors_code_does() -> None:
    config = MINMAX_REPLIES.presets["released"]()
    assert config.rewards == released_rewards() != RewardSettings()
    assert (config.steps.optimiser, config.steps.critic_rate, config.longest) == ("sgd", 5e-4, 40)
    assert config.sizes.max_reply - 1 == config.max_words < config.discriminator_sizes.words
    generator = MINMAX_REPLIES.stages(config, Path("run"))["generator"][1]
    assert (generator.max_reply, generator.sizes.layers) == (40, 2)


def test_the_released_preset_steps_as_the_authors_code_does() -> None:
    config = MINMAX_REPLIES.presets["released"]()
    assert (config.learning.discriminator_rate, config.learning.examples_per_step) == (0.01, 64)
    # Their rate of 1 and norm of 5 are of sums over words divided by the number of replies, ours of means over words.
    assert (config.learning.generator_rate, config.learning.clip) == (config.fit.learning_rate, config.fit.clip) == (10.0, 0.5)
    (_, generator), (_, backward), (_, discriminator) = MINMAX_REPLIES.stages(config, Path("run")).values()
    assert (generator.vocabulary, backward.vocabulary) == (25_000, 25_000)
    assert (generator.sizes.max_source, generator.sizes.dropout, discriminator.sizes.dropout) == (50, 0.2, 0.2)


def test_a_discriminator_that_is_trained_first_learns_from_mmi(corpus: str) -> None:
    published = MINMAX_REPLIES.presets["li2017"]()
    stages = MINMAX_REPLIES.stages(published, Path("run"))
    assert list(stages) == ["generator", "backward", "discriminator"]
    told, back = stages["discriminator"][1], stages["backward"][1]
    assert told.decoder == "mmi:backward=run/backward"
    assert back.backward
    assert (back.min_reply, back.max_reply, back.sizes) == (5, 20, published.sizes)
    named = MINMAX_REPLIES.stages(replace(published, backward="b", start="s", discriminator_decoder="mmi:20"), Path("run"))
    assert list(named) == ["discriminator"]
    assert named["discriminator"][1].decoder == "mmi:20,backward=b"
    assert not MINMAX_REPLIES.stages(replace(published, start="s", discriminator="d"), Path("run"))


def test_alarms_come_once_for_each_streak() -> None:
    watcher = Watcher(Watch(patience=2))
    fine, high, low = ({"discriminator_accuracy": value} for value in (0.7, 0.99, 0.5))
    assert [watcher.see(figures) for figures in (high, {"reply_words": 9.0}, fine, high)] == [[], [], [], []]
    assert watcher.see(high) == [Alarm("saturated", "discriminator_accuracy", 0.99)]
    assert watcher.see(high) == []
    assert [len(watcher.see(low)) for _ in range(3)] == [0, 1, 0]
    assert [len(Watcher(Watch(patience=1)).see({"advantage": size})) for size in (0.0, 0.1)] == [1, 0]
    said = {"reply_words": 1.0, "distinct_1": 0.001, "commonest_share": 0.9, "generator_nats": 0.01}
    assert not watcher.is_calm
    assert watcher.see(fine) == []
    assert watcher.is_calm
    # What an interrupted training has seen counts.
    assert {alarm.figure for alarm in Watcher(Watch(patience=2), [said]).see(said)} == set(said)


def test_accuracy_and_reward_are_told_of_the_first_and_the_last_steps() -> None:
    updates = [{"discriminator_accuracy": 0.5 + number / 100} if number % 2 else {"reward": number} for number in range(40)]
    found = {name: each.value for name, each in step_figures(updates).items()}
    assert found == {
        "discriminator_accuracy": pytest.approx(0.88),
        "discriminator_accuracy_before": pytest.approx(0.52),
        "reward": 37,
        "reward_before": 1,
    }
    assert set(found) < set(AGAINST_DISCRIMINATOR)
    assert step_figures([]) == {}


def test_a_training_goes_on_whose_replies_had_no_word(tmp_path: Path) -> None:
    silent = variety([[], []])
    append_event(tmp_path / EVENTS, ITERATION, {"number": 1, **silent})
    (event,) = read_events(tmp_path / EVENTS)
    undisturbed, resumed = Watcher(Watch(patience=2)), Watcher(Watch(patience=2), [event])
    undisturbed.see(silent)
    assert resumed.see(silent) == undisturbed.see(silent)


def test_mistakes_are_named(tmp_path: Path, corpus: str, generator: Path, discriminator: Path) -> None:
    config = asked(corpus, start=str(generator), discriminator=str(discriminator))
    with pytest.raises(CheckpointError, match="fitted to whole replies"):
        MINMAX_REPLIES.run(replace(config, method="regs-partial"), tmp_path / "run", Silent())
    with pytest.raises(ConfigError, match="needs the generator"):
        MINMAX_REPLIES.run(replace(config, start=""), tmp_path / "run", Silent())
    with pytest.raises(CheckpointError, match="--start"):
        MINMAX_REPLIES.run(replace(config, start=str(tmp_path / "nothing")), tmp_path / "run", Silent())
    for changes in ({"decoder": "gready"}, {"discriminator_decoder": "nmi"}):
        with pytest.raises(ConfigError, match="no decoder is called"):
            MINMAX_REPLIES.run(replace(config, **changes), tmp_path / "run", Silent())
    with pytest.raises(CheckpointError, match="--backward"):
        MINMAX_REPLIES.run(replace(config, backward=str(tmp_path / "nothing")), tmp_path / "run", Silent())
    first = asked(corpus)
    for changes in ({"decoder": "mmi:backward=nothing"}, {"discriminator_decoder": "mmi-antilm:lm=nothing"}):
        with pytest.raises(CheckpointError, match="the decoder's"):
            MINMAX_REPLIES.prepare(replace(first, **changes), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()
