"""Adversarial training as a job: what it leaves, what is perturbed and counted, that it goes on exactly, and mistakes."""

from __future__ import annotations

import math
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import AGAINST, BEFORE
from parley.engine.core.verbs.job import Silent
from parley.engine.perturb.strategy import Expectation, OnUtterances, PerturbSettings, Strategy
from parley.engine.perturb.verbs import adversarial
from parley.engine.perturb.verbs.adversarial import PERTURBED, TRAIN_ADVERSARIAL, TrainAdversarialConfig, fine_tuning
from parley.engine.perturb.verbs.models import (
    NONE,
    RANDOM_SOURCE,
    AdversarialSplit,
    RandomSource,
    label_of,
    make_adversarial_split,
    provenance,
)
from parley.engine.responders.seq2seq import TRAIN_SEQ2SEQ, TrainSeq2SeqConfig
from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.corpora.pairs.turns import Example, Utterance
from parley.policies.core.settings import FitConfig
from parley.policies.seq2seq.scoring import load_seq2seq
from parley.policies.seq2seq.settings import Seq2SeqSizes
from tests.engine.core.verbs.made_up import Notes, assert_equal_weights, interrupt

run = TRAIN_ADVERSARIAL.run

FIT = FitConfig(learning_rate=0.02, batch_size=8, max_epochs=3, patience=3, decay_epochs=0)
WORDS = ("red", "green", "blue", "grey", "brown", "pink")
OWN = """
from parley.engine.perturb.strategy import Expectation, OnUtterances

class Turned(OnUtterances):
    expectation = Expectation.{expectation}
    name = "{name}"

    def utterance(self, words, rng):
        return words[::-1]

def build(settings, resources):
    return Turned()
"""


class Turned(OnUtterances):
    """The words of every utterance the other way round."""

    def __init__(self, name: str, expectation: Expectation) -> None:
        self.name, self.expectation = name, expectation

    def utterance(self, words: Utterance, rng: Any) -> Utterance:
        return words[::-1]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Sources of two words, answered by the first of them; some sources say one word twice."""
    folder = tmp_path_factory.mktemp("corpus")
    pairs = [(first, second) for first in WORDS for second in WORDS]
    lines = [f"{first} {second}\t{first}" for first, second in (pairs[place * 5 % len(pairs)] for place in range(len(pairs)))]
    for split, part in (("train", lines[:26]), ("val", lines[26:31]), ("test", lines[31:])):
        (folder / f"{split}.tsv").write_text("\n".join(part) + "\n")
    return str(folder)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, corpus: str) -> Path:
    """A model of it."""
    path = tmp_path_factory.mktemp("base") / "run"
    config = TrainSeq2SeqConfig(
        corpus=corpus, sizes=Seq2SeqSizes(embed=8, hidden=16), fit=replace(FIT, max_epochs=25, patience=25)
    )
    TRAIN_SEQ2SEQ.run(config, path, Silent())
    return path


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> dict[Expectation, str]:
    """Strategies of a user's own, by what they expect."""
    folder, found = tmp_path_factory.mktemp("own"), {}
    for expectation in Expectation:
        file = folder / f"{expectation.name.lower()}.py"
        file.write_text(OWN.format(expectation=expectation.name, name=f"turned-{expectation.value}"))
        found[expectation] = f"{file}:build"
    return found


def asked(base: Path, strategies: str, **changes: Any) -> TrainAdversarialConfig:
    return TrainAdversarialConfig(model=str(base), strategies=strategies, **{"fit": FIT, **changes})


def said(context: str, reply: str, number: int = 0) -> Example:
    return Example(f"train-{number:06d}", ((tuple(context.split()),),), ((reply,),))


EXAMPLES = [
    said(f"{first} {second}", first, number) for number, (first, second) in enumerate(zip("abcdefgh", "abxyzuvw", strict=True))
]
"""The first two read the same both ways."""


def lessons(*strategies: Strategy, seed: int = 1) -> AdversarialSplit:
    return make_adversarial_split(EXAMPLES, strategies, seed, Silent(), "perturbing")


def test_what_should_not_change_the_answer_is_learned_and_what_should_is_contrasted() -> None:
    kept = lessons(Turned("kept", Expectation.SHOULD_NOT_CHANGE))
    assert kept.retained == [example.key for example in EXAMPLES], "each is its own dialogue"
    of_two = [replace(example, dialogue=number // 4) for number, example in enumerate(EXAMPLES)]
    strategies = [Turned("kept", Expectation.SHOULD_NOT_CHANGE)]
    assert make_adversarial_split(of_two, strategies, 1, Silent(), "perturbing").retained == ["0"] * 4 + ["1"] * 4
    assert [lesson.context for lesson in kept.examples] == [((each.context[0][0][::-1],),) for each in EXAMPLES]
    assert [lesson.reply for lesson in kept.examples] == [each.reply for each in EXAMPLES]
    assert all(lesson.contrast is None for lesson in kept.examples)
    changed = lessons(Turned("changed", Expectation.SHOULD_CHANGE))
    assert [lesson.context for lesson in changed.examples] == [each.context for each in EXAMPLES]
    assert [lesson.contrast for lesson in changed.examples][2:] == [lesson.context for lesson in kept.examples][2:]
    assert [lesson.contrast for lesson in changed.examples][:2] == [None, None], "nothing to tell apart"
    assert kept.unchanged == {"kept": 2}
    assert changed.unchanged == {"changed": 2}


def test_margins_of_a_dialogue_are_one_unit() -> None:
    examples = [replace(example, dialogue=number // 4) for number, example in enumerate(EXAMPLES)]
    changed = Turned("changed", Expectation.SHOULD_CHANGE)
    assert make_adversarial_split(examples, [changed], 1, Silent(), "perturbing").contrasted == ["0", "0", "1", "1", "1", "1"]
    assert lessons(changed).contrasted == [example.key for example in EXAMPLES[2:]], "each of its own where none is known"


def test_each_example_meets_one_strategy_that_its_key_draws() -> None:
    both = Turned("kept", Expectation.SHOULD_NOT_CHANGE), Turned("changed", Expectation.SHOULD_CHANGE)
    made = lessons(*both)
    assert made.met.total() == len(made.examples) == len(EXAMPLES)
    assert sorted(lesson.reply for lesson in made.examples) == sorted(each.reply for each in EXAMPLES)
    assert set(made.met) == {"kept", "changed"}
    assert made == lessons(*both)
    assert made != lessons(*both, seed=2)
    fewer = make_adversarial_split(EXAMPLES[3:], both, 1, Silent(), "perturbing")
    assert set(fewer.should_change) < set(made.should_change) | set(fewer.should_change)
    assert all(lesson in made.examples for lesson in fewer.examples), "an example's draws do not depend on the others"


def test_random_sources_are_contexts_of_the_split() -> None:
    contexts = [each.context for each in EXAMPLES]
    drawn = RandomSource(contexts).perturb(contexts, list(range(len(contexts))))
    assert set(drawn) <= set(contexts)
    assert len(set(drawn)) > 2
    assert drawn == RandomSource(contexts).perturb(contexts, list(range(len(contexts))))


def test_what_should_not_change_the_answer_teaches_to_keep_it(tmp_path: Path, base: Path, own: dict[Expectation, str]) -> None:
    notes = Notes()
    result = run(asked(base, own[Expectation.SHOULD_NOT_CHANGE]), tmp_path / "run", notes)
    assert set(result.metrics) == {name for name in AGAINST if not name.startswith("margin")}
    assert list(result.metrics) == [name for name in AGAINST if name in result.metrics]
    for split in ("test", "validation"):
        perturbed = result.metrics[f"{split}_nll_perturbed"]
        assert perturbed.value < result.metrics[f"{split}_nll_perturbed{BEFORE}"].value
        assert perturbed.n == 5
    about = provenance(base / "checkpoint")
    assert result.metrics[f"test_nll{BEFORE}"].value == pytest.approx(about["test_nll"])
    trained = provenance(tmp_path / "run" / "checkpoint")
    assert trained["role"] == "adversarial"
    assert trained["base"] == str(base)
    assert label_of(trained["strategies"]) == "turned-should-not-change"
    assert trained["corpus"] == about["corpus"]
    assert trained["test_nll"] == result.metrics["test_nll"].value
    assert load_seq2seq(tmp_path / "run").vocabulary.digest == load_seq2seq(base).vocabulary.digest
    counted = [event for event in RunFolder.load(tmp_path / "run").events() if event["kind"] == PERTURBED]
    assert [event["split"] for event in counted] == ["train", "validation", "test"]
    # Five of red red, green green, ... are there; they read the same the other way round.
    assert counted[0]["strategies"] == {"turned-should-not-change": {"met": 26, "untouched": 5}}
    assert any("26 (5 untouched)" in line for line in notes.said)
    assert notes.stages[:4] == [
        *(
            (f"perturbing the {split} split", size, "examples")
            for split, size in (("train", 26), ("validation", 5), ("test", 5))
        ),
        ("epoch 1", 4, "batches"),
    ]
    assert all(path.exists() for path in result.files)
    assert result.next_commands[0].startswith("parley evaluate robustness ")
    assert f"--model {base} --trained {tmp_path / 'run'}" in result.next_commands[0]


def test_the_next_command_perturbs_as_the_training_did() -> None:
    perturb = PerturbSettings(lexicon="built-in", rule="released")
    asked = TrainAdversarialConfig(strategies="none, antonym,random-source", corpus="mine.tsv", perturb=perturb)
    (command,) = TRAIN_ADVERSARIAL.next_commands(asked, Path("runs/against"))
    words = shlex.split(command)
    assert words[words.index("--strategies") + 1] == "antonym", "an evaluation knows no controls"
    assert words[words.index("--corpus") + 1] == "mine.tsv"
    assert {'perturb.lexicon="built-in"', 'perturb.rule="released"'} <= set(words)
    (control,) = TRAIN_ADVERSARIAL.next_commands(replace(asked, strategies=NONE), Path("runs/longer"))
    assert "--strategies" not in control


@pytest.mark.parametrize("targets", ["greedy", "truth"])
def test_what_should_change_the_answer_teaches_a_margin(
    tmp_path: Path, base: Path, own: dict[Expectation, str], targets: str
) -> None:
    config = asked(base, own[Expectation.SHOULD_CHANGE], targets=targets, margin=1.0, alpha=5.0)
    metrics = run(config, tmp_path / "run", Silent()).metrics
    assert set(metrics) == {name for name in AGAINST if "perturbed" not in name}
    assert metrics["margin"].value > metrics[f"margin{BEFORE}"].value
    assert metrics["margin"].n == metrics["margin_met"].n == 4
    assert provenance(tmp_path / "run" / "checkpoint")["targets"] == targets


def test_strategies_of_both_kinds_are_trained_together(tmp_path: Path, base: Path, own: dict[Expectation, str]) -> None:
    result = run(asked(base, f"{','.join(own.values())},{RANDOM_SOURCE}"), tmp_path / "run", Silent())
    assert all(math.isfinite(result.metrics[name].value) for name in AGAINST)
    strategies = provenance(tmp_path / "run" / "checkpoint")["strategies"]
    assert strategies == ["turned-should-not-change", "turned-should-change", RANDOM_SOURCE]


def test_the_control_learns_as_many_steps_from_contexts_as_they_are(tmp_path: Path, base: Path) -> None:
    run(asked(base, NONE), tmp_path / "run", Silent())
    (counts,) = [
        event["strategies"]
        for event in RunFolder.load(tmp_path / "run").events()
        if event["kind"] == "perturbed" and event["split"] == "train"
    ]
    assert counts[NONE]["met"] == counts[NONE]["untouched"] > 0
    assert provenance(tmp_path / "run" / "checkpoint")["strategies"] == [NONE]


def test_an_interrupted_training_resumes_to_the_same_weights(tmp_path: Path, base: Path, own: dict[Expectation, str]) -> None:
    config = asked(base, ",".join(own.values()))
    whole = run(config, tmp_path / "whole", Silent())
    interrupt(TRAIN_ADVERSARIAL, config, tmp_path / "stopped", "epoch  2")
    notes = Notes()
    resumed = run(config, tmp_path / "stopped", notes)
    assert "resumed after epoch 2, batch 0" in notes.said
    assert resumed.metrics == whole.metrics
    assert_equal_weights(tmp_path / "stopped", tmp_path / "whole")
    again = Notes()
    assert run(config, tmp_path / "whole", again).metrics == whole.metrics
    assert again.said == [f"{tmp_path / 'whole'} is finished: nothing is left to do"]


def test_a_training_that_only_harms_keeps_what_it_began_with_and_says_so(
    tmp_path: Path, base: Path, own: dict[Expectation, str]
) -> None:
    notes = Notes()
    config = asked(base, own[Expectation.SHOULD_CHANGE], alpha=0.0, fit=replace(FIT, learning_rate=2.0))
    metrics = run(config, tmp_path / "run", notes).metrics
    assert any("no epoch was better" in line for line in notes.said)
    assert metrics["test_nll"] == metrics[f"test_nll{BEFORE}"]


def test_mistakes_are_named_and_no_run_is_made(tmp_path: Path, base: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'random-swap'"):
        asked(base, "random-swp")
    with pytest.raises(CheckpointError, match=r"--model(.|\n)*parley train seq2seq"):
        run(asked(tmp_path / "nothing", "random-swap"), tmp_path / "run", Silent())
    with pytest.raises(ConfigError, match="did you mean 'helpdesk'"):
        run(asked(base, "random-swap", corpus="helpdsk"), tmp_path / "run", Silent())
    with pytest.raises(ConfigError, match=r"--device(.|\n)*warp"):
        run(asked(base, "random-swap", device="warp"), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("wrong", [{"alpha": -1.0}, {"margin": 0.0}, {"seed": -1}, {"threads": 0}], ids=str)
def test_settings_out_of_range_are_named(base: Path, wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        asked(base, "random-swap", **wrong)


def test_presets_are_what_they_say() -> None:
    published, demo = (TRAIN_ADVERSARIAL.presets[name]() for name in ("niu2018", "demo"))
    assert published == adversarial.niu2018()
    assert (published.alpha, published.margin, published.targets, published.perturb.rule) == (1.0, 0.1, "greedy", "paper")
    assert published.fit == fine_tuning()
    assert demo.perturb.lexicon == "built-in", "the demonstration needs no data"
