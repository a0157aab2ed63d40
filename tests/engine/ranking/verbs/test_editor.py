"""Training of editing policies as a run: that they learn, go on exactly, and are methods of attacks and adversaries."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from parley.engine.core.page.page import collect_run
from parley.engine.core.rllib import reproducible as state
from parley.engine.core.rllib.reproducible import CHOOSER, ActionReinforceConfig, rewards_to_go
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.checkpoints import weights_digests
from parley.engine.core.verbs.job import Silent
from parley.engine.core.verbs.supervised import UPDATE
from parley.engine.perturb.replies.settings import ReplySettings
from parley.engine.perturb.replies.shapes import RuleResources
from parley.engine.ranking.attacks.catalogue import attack_names
from parley.engine.ranking.metrics.ranks import EDITING, SUCCESS
from parley.engine.ranking.rl import EditorModule, EditorRunner
from parley.engine.ranking.verbs import editor
from parley.engine.ranking.verbs.attack import ATTACK_RANKING
from parley.engine.ranking.verbs.config import RankingAttackConfig
from parley.engine.ranking.verbs.editor import TRAIN_EDITOR, TrainEditorConfig, training_env
from parley.engine.ranking.verbs.prepared import NUM_CONTEXTS, UNREAD, evaluated_name, training_names, training_rules
from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.ranking.edit_game import EditRules
from parley.envs.ranking.groups import CandidateOptions
from parley.policies.core.settings import ChoiceLearning, ChoiceSizes
from parley.policies.ranking.editor import FORMAT, new_editor
from tests.engine.core.page.pages import page_of
from tests.engine.core.verbs.made_up import Notes, assert_equal_weights, interrupt
from tests.engine.ranking.fakes import Toy
from tests.engine.ranking.verbs.rankings import save_matcher

pytestmark = pytest.mark.ray

NOUNS = ("disk", "cable", "screen", "mouse", "printer", "battery", "router", "keyboard")
CORPUS_LINES = [
    f"my {first} and the {second} stopped this {day} , and my {first} hums\tthe {first} of the box is slow today"
    for first in NOUNS
    for second in NOUNS
    for day in ("morning", "evening")
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Complaints about two things, of which the right reply names one: two words of another reply may name both."""
    folder = tmp_path_factory.mktemp("corpus")
    lines = [CORPUS_LINES[place * 5 % len(CORPUS_LINES)] for place in range(len(CORPUS_LINES))]
    lines = sorted(set(lines), key=lines.index)
    for split, part in (("train", lines[:76]), ("val", lines[76:100]), ("test", lines[100:])):
        (folder / f"{split}.tsv").write_text("\n".join(part) + "\n")
    return str(folder)


def asked(corpus: str, **changes: Any) -> TrainEditorConfig:
    settings: dict[str, Any] = {
        "corpus": corpus,
        "lexicon": "built-in",
        "candidates": CandidateOptions(size=4, train_size=4),
        "game": EditRules(edits=2, num_places=10, num_proposals=4),
        "learning": ChoiceLearning(updates=6, examples_per_update=16, learning_rate=0.05),
        "save_every": 2,
    }
    return TrainEditorConfig(**{**settings, **changes})


@pytest.mark.parametrize("prefix", ["seq2seq:", "lm:", "response-only:", "response-only:seq2seq:"])
def test_a_run_knows_the_weights_of_its_ranker_however_that_ranks(prefix: str, tmp_path: Path) -> None:
    folder = save_matcher(tmp_path / "model")
    digests = [weights_digests(TRAIN_EDITOR.models(TrainEditorConfig(model=name))) for name in (folder, f"{prefix}{folder}")]
    assert digests[0]["model"]
    assert digests[1] == digests[0]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, corpus: str, ray_session: object) -> Path:
    path = tmp_path_factory.mktemp("editor") / "run"
    TRAIN_EDITOR.run(asked(corpus, learning=replace(asked(corpus).learning, updates=30)), path, Silent())
    return path


def test_a_policy_learns_what_misleads_and_is_measured_beside_random_edits(trained: Path) -> None:
    metrics = RunFolder.load(trained).metrics()
    assert list(metrics) == list(EDITING)
    assert metrics[SUCCESS].value > metrics["success_random"].value
    assert metrics["gain_over_random"].value == pytest.approx(metrics[SUCCESS].value - metrics["success_random"].value)
    assert metrics["words_changed"].value <= 2
    updates = [event for event in RunFolder.load(trained).events() if event["kind"] == UPDATE]
    assert [event["number"] for event in updates] == list(range(1, 31))
    early, late = (np.mean([event["reward"] for event in part]) for part in (updates[:5], updates[-5:]))
    assert late > early


def test_it_goes_on_exactly_where_it_was(
    tmp_path: Path, corpus: str, ray_session: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, whole, parts = asked(corpus), tmp_path / "whole", tmp_path / "parts"
    TRAIN_EDITOR.run(config, whole, Silent())

    interrupt(TRAIN_EDITOR, config, parts, done=3)
    notes = Notes()
    TRAIN_EDITOR.run(config, parts, notes)
    assert "resumed after update 2" in notes.said
    assert_equal_weights(parts, whole)
    assert RunFolder.load(whole).metrics() == RunFolder.load(parts).metrics()


def test_what_the_ranker_does_not_read_is_counted_and_told(tmp_path: Path, corpus: str, ray_session: object) -> None:
    # It reads eleven words of a turn.
    name, once = save_matcher(tmp_path / "smn"), ChoiceLearning(updates=1, examples_per_update=2)
    TRAIN_EDITOR.run(asked(corpus, model=name, learning=once, limit=2), tmp_path / "run", notes := Notes())
    summary = RunFolder.load(tmp_path / "run").summary() or {}
    num = summary[NUM_CONTEXTS]
    assert num > 76, "training and test split"
    assert summary[UNREAD] == {name: [num, 0]}
    told = f"did not read all of {num:,} contexts and 0 replies."
    assert any(told in said for said in notes.said)
    assert told in page_of(collect_run(tmp_path / "run"))


def test_a_schedule_of_rates_goes_on_to_the_digit(tmp_path: Path, corpus: str, ray_session: object) -> None:
    config = asked(corpus)
    groups = training_env(config).groups
    FORMAT.save(new_editor([group.context for group in groups], ChoiceSizes(), 1), tmp_path / "start", {})
    size = config.learning.examples_per_update

    def built() -> Any:
        settings = ActionReinforceConfig().choosing(
            learning=config.learning,
            make_env=partial(training_env, config),
            runner=EditorRunner,
            module=EditorModule,
            checkpoint=str(tmp_path / "start"),
            seed=3,
        )
        return settings.training(lr=[[0, 0.5], [size, 1e-3], [3 * size, 1e-2]]).build_algo()

    whole, first, second = built(), built(), built()
    for _ in range(4):
        whole.train()
    for _ in range(2):
        first.train()
    state.save(first, tmp_path / "state")
    state.restore(second, tmp_path / "state")
    for _ in range(2):
        second.train()
    expected = state.learned_weights(whole)
    assert all(value.equal(expected[name]) for name, value in state.learned_weights(second).items())
    for algorithm in (whole, first, second):
        algorithm.stop()


def test_what_an_example_is_depends_on_its_index_alone(tmp_path: Path, corpus: str) -> None:
    config = asked(corpus)
    env = training_env(config)
    FORMAT.save(new_editor([group.context for group in env.groups], ChoiceSizes(), 1), tmp_path / "start", {})
    settings = ActionReinforceConfig().choosing(
        learning=config.learning,
        make_env=lambda: env,
        runner=EditorRunner,
        module=EditorModule,
        checkpoint=str(tmp_path / "start"),
        seed=3,
    )
    runner = EditorRunner(config=settings)
    both = runner.sample(indices=[5, 90])
    for number, index in enumerate((5, 90)):
        alone, rows = runner.sample(indices=[index]), both["example"] == number
        assert np.array_equal(alone["actions"], both["actions"][rows])
        assert np.array_equal(alone["taken"], both["taken"][rows])
        assert alone["rewards"].tolist() == both["rewards"][rows].tolist()
    assert all(both["action_mask"][step, action] for step, action in enumerate(both["taken"].tolist()))
    module = runner.module[CHOOSER]
    observation, _ = env.reset(seed=1)
    batch = {"obs": {name: torch.as_tensor(value)[None] for name, value in observation.items()}}
    scores = module.forward_inference(batch)["action_dist_inputs"][0].softmax(0)
    assert scores[torch.as_tensor(observation["action_mask"]) == 0].sum() == 0


def test_returns_are_what_an_example_earns_from_a_step_on() -> None:
    assert rewards_to_go(np.array([0.5, 0.25, 1.0, -0.5]), np.array([0, 1, 0, 0])).tolist() == [1.0, 0.25, 0.5, -0.5]


def test_a_trained_policy_is_a_method_of_attacks(tmp_path: Path, trained: Path, corpus: str) -> None:
    config = RankingAttackConfig(
        model="tfidf",
        method=f"editor:{trained}",
        rules="none",
        corpus=corpus,
        lexicon="built-in",
        edits=2,
        candidates=CandidateOptions(size=4),
        known_words=False,
    )
    result = ATTACK_RANKING.run(config, tmp_path / "attack", Silent())
    rows = RunFolder.load(tmp_path / "attack").read_rows().to_pylist()
    assert {each["method"] for row in rows for each in row["searches"]} == {"run", "random"}
    assert result.metrics["success@500.tfidf.run"].value > RunFolder.load(trained).metrics()["success_random"].value
    with pytest.raises(CheckpointError):
        ATTACK_RANKING.run(replace(config, method=f"editor:{tmp_path / 'nothing'}"), tmp_path / "none", Silent())
    assert attack_names("greedy,editor:runs/e") == ("greedy", "editor:runs/e")


def test_a_trained_policy_is_an_adversary_in_training(trained: Path, corpus: str) -> None:
    name = f"editor:{trained}"
    assert training_names(f"{name}, iiw") == ("iiw-training", name)
    with pytest.raises(ConfigError, match="no reply rule is called 'iww'"):
        training_names(f"{name},iww")
    groups = training_env(asked(corpus)).groups
    contexts = [group.context for group in groups]
    resources = RuleResources(ReplySettings(), None, "en", {"training": contexts})  # type: ignore[arg-type]
    resources.__dict__["language"] = Toy()
    (rule,) = training_rules((name,), resources, groups[0])
    assert (evaluated_name(rule), rule.attacks, rule.keeps_labels) == (name, "negatives", True)
    attacked = rule.apply(groups[:10], list(range(10)))
    assert sum(any(each.changed) for each in attacked) > 3
    for group, each in zip(groups, attacked, strict=False):
        kept = [place for place, num in enumerate(each.changed) if not num]
        assert [each.group.candidates[place] for place in kept] == [group.candidates[place] for place in kept]
        assert all(not group.labels[place] for place, num in enumerate(each.changed) if num)


def test_mistakes_are_named(tmp_path: Path, corpus: str) -> None:
    with pytest.raises(CheckpointError):
        TRAIN_EDITOR.run(asked(corpus, start=str(tmp_path / "nothing")), tmp_path / "run", Silent())
    with pytest.raises(ConfigError):
        TRAIN_EDITOR.run(asked(corpus, model="tfid"), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()
    assert editor.helpdesk().game.edits == 1
