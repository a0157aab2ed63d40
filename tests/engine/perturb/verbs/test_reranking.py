"""Reranking-RL as a job: what it leaves and shows, what may be trained on, that it goes on exactly, and mistakes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from parley.engine.core.page.content import Run, read_curves
from parley.engine.core.page.page import report_from_run
from parley.engine.core.page.trainings import Trainings
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import BEFORE, RERANKING
from parley.engine.core.verbs.job import Silent
from parley.engine.perturb.verbs.adversarial import TRAIN_ADVERSARIAL, TrainAdversarialConfig
from parley.engine.perturb.verbs.models import RANDOM_SOURCE, provenance
from parley.engine.perturb.verbs.reranking import GAMED, TRAIN_RERANKING, ReplyFigures, TrainRerankingConfig, looks_gamed
from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.corpora.pairs.vocabulary import EOS_ID, PairVocabulary
from parley.policies.core.settings import FitConfig, RerankingSettings
from parley.policies.seq2seq.model import LanguageModel
from parley.policies.seq2seq.scoring import load_seq2seq, save_model
from parley.policies.seq2seq.settings import LanguageModelSizes
from parley.policies.vhred.decoding import save_model as save_vhred
from parley.policies.vhred.model import VHRED
from tests.engine.core.verbs.made_up import Notes, assert_equal_weights, interrupt
from tests.engine.perturb.verbs.robust import save_responder
from tests.policies.vhred.made_up import SIZES

run = TRAIN_RERANKING.run
FIT = FitConfig(learning_rate=0.003, batch_size=16, max_epochs=2, patience=2, decay_epochs=0, precision="float32")
RELEASED = replace(TRAIN_RERANKING.presets["released"]().reranking, weight=0.3)


def asked(model: str, settings: RerankingSettings = RELEASED, **changes: Any) -> TrainRerankingConfig:
    chosen = {"fit": FIT, "limit": 48, "num_watched": 20, **changes}
    return TrainRerankingConfig(model=model, reranking=settings, **chosen)


def epochs(path: Path) -> list[dict[str, Any]]:
    return [event for event in RunFolder.load(path).events() if event["kind"] == "epoch"]


def test_a_training_leaves_a_model_and_says_what_its_replies_look_like(tmp_path: Path, model: str) -> None:
    notes = Notes()
    result = run(asked(model), tmp_path / "run", notes)
    assert list(result.metrics) == list(RERANKING)
    # Several of the 48 contexts are of one dialogue.
    plan = TRAIN_RERANKING.prepare(asked(model), tmp_path / "plan", Silent())
    dialogues = {example.dialogue for example in plan.splits["test"]}
    assert result.metrics["test_nll"].n == len(dialogues) < len(plan.splits["test"]) == 48
    assert result.metrics["specificity"].n == result.metrics["reply_words_recorded"].n <= min(20, len(dialogues))
    assert 0 < result.metrics["rare_words_recorded"].value < 0.5, "48 replies do not hold all words"
    trained = provenance(tmp_path / "run" / "checkpoint")
    assert (trained["role"], trained["weight"], trained["corpus"], trained["base"]) == ("reranking", 0.3, "helpdesk", model)
    assert trained["test_nll"] == result.metrics["test_nll"].value
    assert [event["number"] for event in epochs(tmp_path / "run")] == [0, 1, 2]
    watched = {"mixture", "recorded_nll", "reward", "greedy_reward", "specificity", "reply_ppl", "reply_words"}
    assert all(watched | {"rare_words", "distinct_1", "distinct_2"} <= set(event) for event in epochs(tmp_path / "run"))
    assert any(line.startswith("before, mixture") for line in notes.said)
    last = epochs(tmp_path / "run")[-1]
    assert last["validation_nll"] == pytest.approx(last["mixture"]), "the mixture decides which epoch is best"
    curves = read_curves(Trainings.curves, [Run(name="", heading="run", folder=RunFolder.load(tmp_path / "run"))])
    titles = [curve.title.removeprefix("run: ") for curve in curves]
    assert titles[:3] == ["mixture and likelihood", "reward", "what contexts tell replies"]
    assert titles[3:] == ["perplexity of replies", "length", "variety"]
    assert all(len(points) == 3 for curve in curves for points in curve.series.values())
    assert any("train adversarial" in command for command in result.next_commands)
    assert any("--published niu2018-rl" in command for command in result.next_commands)


def test_without_a_reward_it_is_the_control_that_learns_by_likelihood(tmp_path: Path, model: str) -> None:
    first = run(asked(model, RerankingSettings(weight=0)), tmp_path / "run", Silent())
    plain = TrainAdversarialConfig(model=model, strategies="none", limit=48, fit=FIT)
    TRAIN_ADVERSARIAL.run(plain, tmp_path / "plain", Silent())
    assert_equal_weights(tmp_path / "run", tmp_path / "plain")
    assert first.metrics["test_nll"].value < first.metrics[f"test_nll{BEFORE}"].value


def test_a_killed_training_goes_on_to_the_same_weights(tmp_path: Path, model: str) -> None:
    config = asked(model, RerankingSettings(weight=0.2, baseline="mean", warm_up=4))
    whole = run(config, tmp_path / "whole", Silent())
    interrupt(TRAIN_RERANKING, config, tmp_path / "stopped", "epoch  1")
    assert run(config, tmp_path / "stopped", Silent()).metrics == whole.metrics
    assert_equal_weights(tmp_path / "stopped", tmp_path / "whole")
    assert [event["number"] for event in epochs(tmp_path / "stopped")] == [0, 1, 2]


def test_its_model_is_trained_against_strategies_with_the_mixed_margin(tmp_path: Path, model: str) -> None:
    run(asked(model), tmp_path / "run", Silent())
    config = TrainAdversarialConfig(model=str(tmp_path / "run"), strategies=RANDOM_SOURCE, limit=48, fit=FIT, alpha=2.0)
    result = TRAIN_ADVERSARIAL.run(config, tmp_path / "against", Silent())
    assert all(command.endswith("--published niu2018-rl") for command in result.next_commands)
    about = provenance(tmp_path / "against" / "checkpoint")
    assert about["targets"] == "mixed"
    assert about["alpha"] == pytest.approx(2.0 * 0.7), "times 1 - w"
    plain = TRAIN_ADVERSARIAL.run(replace(config, model=model), tmp_path / "plain", Silent())
    assert not any("--published" in command for command in plain.next_commands)
    about = provenance(tmp_path / "plain" / "checkpoint")
    assert (about["targets"], about["alpha"]) == ("greedy", 2.0)


def test_a_vhred_is_rewarded_too(tmp_path: Path, vocabulary: PairVocabulary) -> None:
    network = VHRED(vocabulary, replace(SIZES, dropout=0.2, word_drop=0.25))
    network.initialise(torch.Generator().manual_seed(1))
    save_vhred(network, tmp_path / "vhred", {"corpus": "helpdesk", "role": "supervised"})
    result = run(asked(str(tmp_path / "vhred"), TrainRerankingConfig().reranking), tmp_path / "run", Silent())
    assert all(result.metrics[name].n for name in ("reward", "specificity"))


def test_what_looks_gamed_is_told(tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parley.engine.perturb.verbs.reranking.MOST_GROWTH", 0.1)
    notes = Notes()
    run(asked(model), tmp_path / "run", notes)
    told = [line for line in notes.said if "the reward may be gamed" in line]
    assert all("reply_ppl" in line for line in told)
    assert not any("reply_words" in line for line in told), "it says fewer words than were recorded"
    assert {event["number"] for event in RunFolder.load(tmp_path / "run").events() if event["kind"] == GAMED} == {1, 2}


def test_what_grows_from_nothing_and_what_grows_long_look_gamed_too() -> None:
    before: dict[str, float | None] = {"reply_ppl": 10.0, "reply_words": 9.0, "rare_words": 0.0, "unknown_words": 0.02}
    same = {"reply_ppl": 19.0, "reply_words": 17.0, "rare_words": 0.004, "unknown_words": 0.04}
    recorded = {"reply_ppl": 90.0, "reply_words": 15.0, "rare_words": 0.05, "unknown_words": 0.0}
    assert looks_gamed(before, same, recorded) == {}
    for name, value in {"reply_ppl": 21.0, "reply_words": 29.0, "rare_words": 0.3, "unknown_words": 0.05}.items():
        assert looks_gamed(before, {**same, name: value}, recorded) == {name: value}
    # Replies without a word have no shares.
    assert looks_gamed({**before, "rare_words": None}, {**same, "rare_words": 0.5}, recorded) == {}
    assert looks_gamed(before, {}, recorded) == {}


def test_replies_that_come_nearer_to_recorded_ones_look_right() -> None:
    before = {"reply_ppl": 10.0, "reply_words": 4.0, "rare_words": 0.001, "unknown_words": 0.0}
    recorded = {"reply_ppl": 90.0, "reply_words": 15.0, "rare_words": 0.05, "unknown_words": 0.0}
    learned = {**before, "reply_words": 13.0, "rare_words": 0.03}
    assert looks_gamed(before, learned, recorded) == {}
    longer = {**learned, "reply_words": 16.0, "rare_words": 0.06}
    assert looks_gamed(before, longer, recorded) == {"reply_words": 16.0, "rare_words": 0.06}


def test_a_model_that_says_nothing_is_trained_and_shown(tmp_path: Path, vocabulary: PairVocabulary) -> None:
    silent = save_responder(tmp_path / "silent", vocabulary)
    network = load_seq2seq(Path(silent))
    with torch.no_grad():
        network.output.bias[EOS_ID] += 60
    save_model(network, Path(silent), provenance(Path(silent)))
    lm = LanguageModel(vocabulary, LanguageModelSizes(embed=6, hidden=8, max_length=6))
    lm.initialise(torch.Generator().manual_seed(1))
    save_model(lm, tmp_path / "judge", {"corpus": "helpdesk"})
    for name, judge in (("trigrams", ""), ("network", str(tmp_path / "judge"))):
        notes = Notes()
        result = run(asked(silent, lm=judge), tmp_path / name, notes)
        assert result.metrics["reply_words"].value == 0
        assert result.metrics["rare_words"].n == 0
        assert result.metrics["rare_words_recorded"].n == result.metrics["reply_words"].n > 1
        assert all("rare_words" not in event for event in epochs(tmp_path / name))
        assert not any("nan" in line for line in notes.said)
        assert "words of a reply" in report_from_run(tmp_path / name).read_text()


def test_replies_are_judged_by_words_that_are_rare_and_by_another_model() -> None:
    recorded = [(("the", "light"),)] * 10 + [(("odd",),)]
    judge = ReplyFigures(recorded)
    usual = judge.figures([(("the", "light"),)] * 4, np.array(list("aabb")))
    odd = judge.figures([(("odd", "light"), ("<unk>",)), ((),)], np.arange(2))
    assert {usual[name].n for name in ("reply_words", "rare_words", "reply_ppl")} == {2}, "dialogues are counted"
    assert (usual["rare_words"].value, odd["rare_words"].value) == (0, pytest.approx(1 / 3))
    assert (usual["unknown_words"].value, odd["unknown_words"].value) == (0, pytest.approx(1 / 3)), "a word unlike any other"
    assert odd["reply_ppl"].value > usual["reply_ppl"].value
    assert usual["distinct_1"].value == pytest.approx(2 / 8)


def test_mistakes_are_named_and_no_run_is_made(tmp_path: Path, model: str, vocabulary: PairVocabulary) -> None:
    for wrong in ({"weight": 1.5}, {"num_others": 0}, {"warm_up": -1}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            RerankingSettings(**wrong)  # type: ignore[arg-type]  # that is the mistake
    with pytest.raises(CheckpointError, match=r"--model(.|\n)*parley train seq2seq"):
        run(asked(str(tmp_path / "nothing")), tmp_path / "run", Silent())
    with pytest.raises(CheckpointError, match=r"--lm(.|\n)*parley train lm"):
        run(asked(model, lm=str(tmp_path / "nothing")), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()
    nameless = save_responder(tmp_path / "nameless", vocabulary, corpus=None)
    with pytest.raises(ConfigError, match="--corpus NAME"):
        run(asked(nameless), tmp_path / "run", Silent())


def test_presets_are_what_they_say() -> None:
    names = ("niu2018", "no-baseline", "released")
    published, plain, released = (TRAIN_RERANKING.presets[name]().reranking for name in names)
    assert (published.others, published.num_others, published.per, published.baseline) == ("corpus", 1, "reply", "greedy")
    assert published.weight == 0.9984
    assert plain == replace(published, weight=0.05, baseline="none")
    assert (released.others, released.num_others, released.per, released.baseline) == ("rotated", 2, "word", "greedy")
