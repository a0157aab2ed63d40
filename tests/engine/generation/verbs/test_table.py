"""Trainings of a generator beside their controls: which runs there are, that they are kept, and what the table says of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.page.page import report_from_run
from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs import recipe_job
from parley.engine.core.verbs.job import Silent
from parley.engine.generation.metrics.adversarial import source_name
from parley.engine.generation.metrics.tables import RELIABILITY
from parley.engine.generation.metrics.trained import COMPARED, DECODED, EMPTY, PEOPLE, TABLE
from parley.engine.generation.settings import ReplyLearning
from parley.engine.generation.verbs.config import TrainedTableConfig
from parley.engine.generation.verbs.table import (
    EVALUATE_GENERATION,
    System,
    judged_shares,
    measured_systems,
    replies_side_by_side,
)
from parley.engine.responders import reply
from parley.engine.responders.reply import MACHINE_FILE
from parley.envs.core.errors import CheckpointError, ConfigError, DataError, OutOfRangeError
from parley.envs.corpora.pairs.compiled import load_pairs, parse_replied, read_replied
from parley.policies.core.responder import DecoderSettings
from parley.policies.generation.discriminator.settings import DiscriminatorSizes
from parley.policies.seq2seq.model import Seq2Seq
from parley.policies.seq2seq.scoring import save_model
from parley.policies.seq2seq.settings import Seq2SeqSizes
from tests.engine.core.verbs.items import require_figures_of
from tests.engine.core.verbs.made_up import Notes
from tests.engine.generation.verbs.test_minmax import FIT


def asked(corpus: str, **changes: Any) -> TrainedTableConfig:
    settings: dict[str, Any] = {
        "corpus": corpus,
        "rows": "greedy,mmi-antilm,sample-0.5,regs-mc,forced",
        "num_rollouts": 1,
        "min_reply": 4,
        "check_every": 1,
        "decoder": "greedy",
        "discriminator_decoder": "greedy",
        "learning": ReplyLearning(rounds=1, discriminator_steps=1, examples_per_step=20, generator_rate=0.02),
        "sizes": Seq2SeqSizes(embed=8, hidden=8, turns=2, max_source=20, max_reply=9),
        "fit": FIT,
        "discriminator_sizes": DiscriminatorSizes(embed=8, hidden=8),
        "discriminator_fit": FIT,
    }
    return TrainedTableConfig(**{**settings, **changes})


@pytest.fixture(scope="module")
def longer(tmp_path_factory: pytest.TempPathFactory, corpus: str) -> str:
    """The corpus with a test split that has sources enough for every fold, and half as many more that stand in train."""
    folder = tmp_path_factory.mktemp("longer")
    train, val = ((Path(corpus) / f"{split}.tsv").read_text() for split in ("train", "val"))
    seen = "".join(train.splitlines(keepends=True)[:40])
    for split, text in (("train", train), ("val", val), ("test", f"{train.replace('my ', 'the ')}{seen}")):
        (folder / f"{split}.tsv").write_text(text)
    return str(folder)


def test_every_row_is_runs_of_its_own(corpus: str) -> None:
    stages = EVALUATE_GENERATION.stages(asked(corpus, start="a,b", rows="sample,regs-partial,shuffled,mmi"), Path("run"))
    decoded = [f"{row}-{number}-{what}" for what in ("replies", "judged") for row in ("sample", "mmi") for number in (1, 2)]
    discriminators = ["discriminator-1", "beginnings-1", "discriminator-2", "beginnings-2"]
    assert list(stages)[:14] == ["backward", "judge-lm", *decoded, *discriminators]
    named = {name: Path(stages[name][1].replies).name for name in discriminators}
    pairs = [("discriminator-1", "beginnings-1"), ("discriminator-2", "beginnings-2")]
    assert named == dict(pairs) | {other: own for own, other in pairs}
    assert list(stages)[14:18] == ["regs-partial-1", "shuffled-1", "regs-partial-2", "shuffled-2"]
    assert set(list(stages)[18:]) == {
        f"{row}-{number}-{what}"
        for row in ("regs-partial", "regs-partial-sampled", "shuffled", "shuffled-sampled")
        for number in (1, 2)
        for what in ("replies", "judged")
    }
    judged = stages["mmi-1-judged"][1]
    assert (judged.human, judged.next_utterances) == ("run/mmi-1-replies/human.tsv", "run/mmi-1-replies/next.tsv")
    partial, shuffled = stages["regs-partial-2"][1], stages["shuffled-2"][1]
    assert (partial.start, partial.discriminator, partial.seed) == ("b", "run/beginnings-2", 2)
    assert (shuffled.discriminator, shuffled.reward, shuffled.method) == ("run/discriminator-2", "shuffled", "regs-mc")


def test_the_start_replies_by_every_decoder(corpus: str) -> None:
    usual = EVALUATE_GENERATION.presets["li2017"]()
    assert set(DECODED) < set(usual.row_names)
    stages = EVALUATE_GENERATION.stages(replace(usual, corpus=corpus, start="a"), Path("run"))
    decoders = {row: DecoderSettings.parse(stages[f"{row}-1-replies"][1].decoder) for row in DECODED}
    assert (decoders["diverse"].beam, decoders["diverse"].rate) == (7, 0.5)
    assert decoders["beam-repeat"] == replace(decoders["beam"], repeat=2.0)


def test_all_trainings_are_asked_the_same_contexts(corpus: str) -> None:
    config = asked(corpus, start="a,b", num_trainings=3, contexts=20, rows="greedy,sample,sample-0.5,regs-mc")
    replies = [
        stage for name, (_, stage) in EVALUATE_GENERATION.stages(config, Path("run")).items() if name.endswith("-replies")
    ]
    assert len(replies) == 3 * 2 + 2 * 3
    assert len({(each.seed, each.limit, each.min_reply, each.max_reply) for each in replies}) == 1, "they draw the contexts"


def test_the_backward_model_finds_what_discriminators_learn_from(corpus: str) -> None:
    config = asked(corpus, rows="regs-mc", discriminator_decoder="mmi")
    stages = EVALUATE_GENERATION.stages(config, Path("run"))
    assert [*stages][:4] == ["start", "backward", "judge-lm", "discriminator-1"]
    assert stages["discriminator-1"][1].decoder == "mmi:backward=run/backward"
    assert stages["regs-mc-1"][1].discriminator_decoder == "beam:7", "its discriminator is there"
    for name in ("start", "backward"):
        assert (stages[name][1].min_reply, stages[name][1].max_reply) == (4, 8)
    assert EVALUATE_GENERATION.presets["li2017"]().discriminator_decoder == "mmi"
    assert "backward" not in EVALUATE_GENERATION.stages(replace(config, rows="greedy"), Path("run"))
    named = EVALUATE_GENERATION.stages(replace(config, backward="b"), Path("run"))
    assert named["discriminator-1"][1].decoder == "mmi:backward=b"


def test_controls_take_as_many_generator_steps(corpus: str) -> None:
    config = asked(corpus, learning=ReplyLearning(rounds=7, discriminator_steps=5))
    cycles = {row: config.training(row, 1)["learning"].cycle for row in ("regs-mc", "forced", "constant", "length", "frozen")}
    assert cycles.pop("regs-mc") == ("discriminator",) * 5 + ("generator", "teacher")
    assert cycles.pop("forced") == ("teacher", "teacher")
    assert set(cycles.values()) == {("generator", "teacher")}
    unforced = replace(config, teacher_forcing="none").training("forced", 1)
    assert unforced["learning"].cycle == ("teacher",)
    assert unforced["teacher_forcing"] == "mle"


def test_teacher_forcing_alone_has_as_many_updates_or_as_many_likelihood_steps_or_stops_by_likelihood(corpus: str) -> None:
    config = asked(corpus, learning=ReplyLearning(rounds=7, generator_steps=3, teacher_steps=2))
    made = {row: config.training(row, 1) for row in ("forced", "forced-half", "forced-early")}
    assert [settings["learning"].cycle.count("teacher") for settings in made.values()] == [5, 2, 5]
    assert all(set(settings["learning"].cycle) == {"teacher"} for settings in made.values())
    assert [settings["keep"] for settings in made.values()] == [config.keep, config.keep, "likelihood"]


def test_trainings_side_by_side_go_to_the_named_cluster(corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = dict[str, Any]()
    monkeypatch.setattr(recipe_job, "run_stages", lambda *_, **given: options.update(given))
    config = asked(corpus, rows="forced", trainers=2, address="there:6379")
    run = RunFolder.open(tmp_path / "run", config, job="evaluate-generation")
    EVALUATE_GENERATION.work(run, EVALUATE_GENERATION.planned(config, run.path), Silent())
    assert (options["address"], options["most"], options["pooled"]) == ("there:6379", 2, [])


@pytest.mark.ray
def test_rows_are_made_once_and_others_join_them(
    tmp_path: Path, longer: str, ray_session: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply, "MOST_ALIKE", 0.01)
    config, notes = asked(longer, rows="greedy,sample-0.5,regs-mc,forced", contexts=0), Notes()
    result = EVALUATE_GENERATION.run(config, tmp_path / "run", notes)
    told = [said for said in notes.said if "one reply to" in said]
    is_trained = [n for n, said in enumerate(notes.said) if "discriminator-1" in said]
    first = [n for n, said in enumerate(notes.said) if "sample-0.5-1-judged" in said]
    assert first < is_trained, "what a start says is seen before anything is trained from it"
    said = [pair.reply for pair in read_replied(tmp_path / "run" / "greedy-1-replies" / MACHINE_FILE, normalise=False)]
    share = max(map(said.count, said)) / len(said)
    assert told[0] == f"greedy-1-replies: one reply to {share:.0%} of contexts"
    names = {name.rpartition(".")[0] for name in result.metrics}
    assert names == {
        "greedy",
        "sample-0.5",
        "regs-mc",
        "regs-mc-sampled",
        "forced",
        "forced-sampled",
        PEOPLE,
        "regs-mc less greedy",
        "regs-mc less forced",
    }
    assert set(result.legend) == set(result.metrics)
    assert "regs-mc.adversuc-svm-unigram" in require_figures_of(tmp_path / "run")
    assert result.metrics["people.overlap"].value <= 1
    less, both = result.metrics["regs-mc less forced.adversuc-svm-unigram"], result.metrics
    assert less.value == pytest.approx(both["regs-mc.adversuc-svm-unigram"].value - both["forced.adversuc-svm-unigram"].value)
    assert {name for name in names if f"{name}.{EMPTY}" in both} == {name for name in names if " less " not in name} - {PEOPLE}
    tables = EVALUATE_GENERATION.tables(RunFolder.load(tmp_path / "run"))
    assert list(tables) == [TABLE, COMPARED, RELIABILITY]
    assert [row[0] for row in tables[RELIABILITY].rows] == ["svm-unigram", "constant (control)"]
    shown = [row[0] for row in tables[TABLE].rows]
    assert shown[:2] == ["the start, greedy", "the start, sampled at 0.5"]

    system, judges = System("greedy", 1, "", "greedy"), ["svm-unigram"]
    said = tmp_path / "run" / system.replies / MACHINE_FILE
    known, answered = judged_shares(tmp_path / "run", system, judges), said.read_text()
    line, *others = answered.splitlines(keepends=True)
    said.write_text("".join(others))
    told, silent = judged_shares(tmp_path / "run", system, judges), source_name(parse_replied(line.rstrip("\n"))[0])
    said.write_text(answered)
    for kind, as_told in (("adversuc", 0), ("random", 1)):
        before, after = (shares[kind, "svm-unigram"] for shares in (known, told))
        assert after.pop(silent) == pytest.approx((before.pop(silent) + as_told) / 2), "told, beside what was judged of it"
        assert after == before

    (first, *_) = side_by_side = replies_side_by_side(tmp_path / "run")
    assert len(side_by_side) == 20
    assert list(first["replies"]) == [
        "people",
        "greedy",
        "sample-0.5",
        "regs-mc",
        "regs-mc-sampled",
        "forced",
        "forced-sampled",
    ]
    page = report_from_run(tmp_path / "run").read_text()
    assert "Trainings beside their controls" in page
    assert "Judges of generated replies" not in page, "its phases are many"

    notes = Notes()
    before = (tmp_path / "run" / "regs-mc-1" / SUMMARY).stat().st_mtime_ns
    more = EVALUATE_GENERATION.run(replace(config, rows="mmi-antilm"), tmp_path / "run", notes)
    assert "mmi-antilm" in {name.rpartition(".")[0] for name in more.metrics}
    shown = [row[0] for row in more.tables[TABLE].rows]
    assert shown[:3] == ["the start, greedy", "the start, MMI - p(t)", "the start, sampled at 0.5"]
    assert {name: more.metrics[name] for name in result.metrics} == dict(result.metrics)
    assert (tmp_path / "run" / "regs-mc-1" / SUMMARY).stat().st_mtime_ns == before


def test_a_row_stands_whose_first_training_was_left_out(tmp_path: Path, corpus: str) -> None:
    config = asked(corpus, rows="greedy,regs-mc,forced", num_trainings=2)
    for name in ("greedy-1", "regs-mc-2", "forced-sampled-1"):
        for folder in ("replies", "judged"):
            (tmp_path / f"{name}-{folder}").mkdir()
            (tmp_path / f"{name}-{folder}" / SUMMARY).touch()
    found = [(each.row, each.number) for each in measured_systems(config, tmp_path)]
    assert found == [("greedy", 1), ("regs-mc", 2), ("forced-sampled", 1)]
    planned = EVALUATE_GENERATION.planned(config, tmp_path / "empty")
    with pytest.raises(DataError, match="every row is left out"):
        EVALUATE_GENERATION.measure(RunFolder.open(tmp_path / "empty", config, job="evaluate-generation"), planned)


def test_a_backward_model_of_other_turns_is_refused_before_anything_is_trained(
    tmp_path: Path, corpus: str, generator: Path
) -> None:
    sizes = Seq2SeqSizes(embed=8, hidden=8, max_source=9, max_reply=20, turns=1, backward=True)
    save_model(Seq2Seq(load_pairs(corpus).vocabulary, sizes), tmp_path / "back", {"role": "made up"})
    for start in ("", str(generator)):
        for changes in ({"backward": str(tmp_path / "back")}, {"decoder": f"mmi:backward={tmp_path / 'back'}"}):
            with pytest.raises(ConfigError, match=r"contexts of other turns(.|\n)*1 turns, the model reads 2"):
                EVALUATE_GENERATION.run(asked(corpus, start=start, **changes), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_mistakes_are_named(tmp_path: Path, corpus: str) -> None:
    with pytest.raises(ConfigError, match=r"no row is called 'regs'"):
        asked(corpus, rows="regs")
    with pytest.raises(OutOfRangeError, match="temperature"):
        asked(corpus, rows="sample-0")
    with pytest.raises(ConfigError, match="--judges names nothing"):
        asked(corpus, judges=" ")
    with pytest.raises(CheckpointError, match="--start"):
        EVALUATE_GENERATION.run(asked(corpus, start=str(tmp_path / "nothing")), tmp_path / "run", Silent())
    for option in ("decoder", "discriminator_decoder"):
        with pytest.raises(CheckpointError, match="the decoder's backward"):
            EVALUATE_GENERATION.run(asked(corpus, **{option: "mmi:backward=nothing"}), tmp_path / "run", Silent())
    with pytest.raises(ConfigError, match=r"longer than --max-words(.|\n)*up to 8 words(.|\n)*sizes.max_reply=6"):
        EVALUATE_GENERATION.run(asked(corpus, max_words=5), tmp_path / "run", Silent())
    with pytest.raises(DataError, match="too few different contexts"):
        EVALUATE_GENERATION.run(asked(corpus, max_words=8), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()
