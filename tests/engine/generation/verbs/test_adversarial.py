"""Adversarial evaluation: from files of replies to rows, figures and words; what is wrong with files is told first."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyarrow.parquet import read_table

from parley.engine.core.cli.flags import parse_job
from parley.engine.core.cli.main import find_verb
from parley.engine.core.page.page import collect_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.export import write_flat
from parley.engine.core.verbs.job import Result, Silent
from parley.engine.generation.metrics.adversarial import JudgedRows, adversarial_metrics
from parley.engine.generation.page import JudgedSystems
from parley.engine.generation.verbs.adversarial import EVALUATE_ADVERSARIAL, NOTES, PAIRS_FILE, VERDICTS
from parley.engine.generation.verbs.adversarial_config import AdversarialConfig, labels_of, pooled
from parley.envs.core.errors import ConfigError, DataError, RunError
from parley.policies.generation.judges.judge import CONTROLS
from tests.engine.core.verbs.items import require_figures_of
from tests.engine.core.verbs.made_up import Notes, interrupt, rows
from tests.engine.generation.verbs.judging import NUM, asked, own, replies, written

PAGE = Path(__file__).parents[4] / "docs" / "adversarial_evaluation.md"
run = EVALUATE_ADVERSARIAL.run


def test_published_figures_stand_beside_the_published_sample_alone() -> None:
    verb, files = find_verb(["evaluate", "adversarial"]), ["--human", "people.tsv", "--machine", "plain.tsv"]
    assert verb is not None
    shown = [[], ["--judges", "concatenated"], [*files, "--published", "li2017"]]
    assert all(parse_job(verb, EVALUATE_ADVERSARIAL, each).config.shows_published for each in shown)
    left_out = [files, ["li2017", *files], ["--published", "none"]]
    assert not any(parse_job(verb, EVALUATE_ADVERSARIAL, each).config.shows_published for each in left_out)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The evaluation that `asked` asks for, from beginning to end."""
    folder = tmp_path_factory.mktemp("whole")
    return run(asked(folder), folder / "run", Silent())


def test_a_run_tells_systems_from_people_and_says_so(whole: Result) -> None:
    result, path = whole, whole.run
    assert "adversuc.svm-unigram.telling" in require_figures_of(path)
    metrics, found = result.metrics, rows(path)
    assert metrics["adversuc.svm-unigram.telling"].value < 0.05
    assert metrics["random.svm-unigram.telling"].value > 0.95
    low, high = metrics["adversuc.svm-unigram.plain"].low, metrics["adversuc.svm-unigram.plain"].high
    assert low < 0.5 < high
    assert metrics["ahead.svm-unigram.plain.telling"].low > 0.2
    assert (metrics["adversuc.constant.plain"].value, metrics["ere.constant"].value) == (0.5, pytest.approx(0.5 / 3))
    assert metrics["matched.length.telling"].value == metrics["cut.length.telling"].value == 0.5
    assert metrics == adversarial_metrics(JudgedRows(found), ["svm-unigram", *CONTROLS], ["plain", "telling"], 3)
    summary = RunFolder.load(path).summary() or {}
    assert summary[VERDICTS][0].startswith("plain: these judges cannot tell its replies from people's")
    assert summary[VERDICTS][1].startswith("telling: svm-unigram tells its replies from people's")
    assert any(note.startswith("human-next is left out") for note in summary[NOTES])
    assert [table.columns[0] for table in result.tables.values()] == ["judge, system", "judge"]
    assert all(said in list(result.tables.values())[-1].note for said in summary[VERDICTS])
    assert (path / "table.md").read_text().count("machine-vs-random") >= 2
    assert "Adver-REGS" not in (path / "table.md").read_text(), "the published figures are of other files"
    assert {row["item_key"] for row in found if row["features"]} == {
        row["item_key"] for row in found if row["judge"] in ("svm-unigram", "reply-only")
    }
    for row in found:
        assert (len(row["examples"]) == 6) == row["scenario"].startswith("adversuc")
        assert len(row["sources"]) == len(row["labels"]) == len(row["scores"])
        if row["examples"]:
            machine = [score for score, label in zip(row["scores"], row["labels"], strict=True) if not label]
            shown = [each["score"] for each in row["examples"]]
            assert (max(shown), min(shown)) == (max(machine), min(machine))


def test_each_pair_is_judged_once_by_a_judge_that_never_saw_its_source(tmp_path: Path) -> None:
    config = asked(tmp_path, judges=f"{own(tmp_path)}:Telltale")
    run(config, tmp_path / "run", Silent())
    found = [row for row in rows(tmp_path / "run") if row["judge"] == "Telltale"]
    assert all(row["status"] == "ok" for row in found)
    sources = [source for row in found if row["scenario"] == "adversuc.telling" for source in row["sources"]]
    assert len(sources) == 2 * len(set(sources)) == 2 * NUM
    assert {row["fold"] for row in found} == {0, 1, 2}


def test_each_score_has_its_texts_where_a_source_has_several_replies(tmp_path: Path) -> None:
    config = asked(tmp_path, judges=f"{own(tmp_path)}:Telltale", machine=str(tmp_path / "telling.tsv"))
    for name in ("people", "telling"):
        written(tmp_path / f"{name}.tsv", replies(name, tell="indeed" * (name == "telling")) + replies(f"more {name}"))
    run(config, tmp_path / "run", Silent())
    texts = {
        (each["scenario"], each["fold"], each["place"]): each for each in read_table(tmp_path / "run" / PAIRS_FILE).to_pylist()
    }
    num_joined = 0
    for row in (row for row in rows(tmp_path / "run") if row["judge"] == "Telltale"):
        for place, (source, label, score) in enumerate(zip(row["sources"], row["labels"], row["scores"], strict=True)):
            pair = texts[row["scenario"], row["fold"], place]
            assert (pair["source"], pair["label"]) == (source, label)
            assert score == (-1.0 if "indeed" in pair["reply"].split() else 1.0)
            assert pair["context"][0].startswith("what about topic")
            num_joined += 1
    assert num_joined == len(texts) > 2 * NUM


def test_a_pair_by_a_judge_is_a_line_of_the_flat_file_and_figures_follow_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = asked(tmp_path, judges=f"{own(tmp_path)}:Telltale,{own(tmp_path)}:Dead")
    result = run(config, tmp_path / "run", Silent())
    written = write_flat(str(tmp_path / "run"), str(tmp_path / "judged.parquet"), Silent())
    lines, stored = read_table(tmp_path / "judged.parquet").to_pylist(), rows(tmp_path / "run")
    failed = [line for line in lines if line["status"] == "error"]
    assert len(failed) == written.num_failed == sum(row["judge"] is None for row in stored) > 0
    assert all("out of memory" in line["error"] and line["score"] is None for line in failed)
    assert len(lines) == len(failed) + sum(len(row["scores"] or ()) for row in stored)
    for judge in ("Telltale", "length", "constant"):
        for system in ("plain", "telling"):
            of = [line for line in lines if (line["scenario"], line["judge"]) == (f"adversuc.{system}", judge)]
            assert {line["system"] for line in of} == {system}
            errors = [0.5 if line["score"] == 0 else float((line["score"] > 0) != line["label"]) for line in of]
            assert sum(errors) / len(errors) == result.metrics[f"adversuc.{judge}.{system}"].value
    for line in lines:
        if line["judge"] == "Telltale":
            assert line["score"] == (-1.0 if "indeed" in line["reply"].split() else 1.0)
    assert {line["system"] for line in lines if line["scenario"] == "human-random"} == {None}
    monkeypatch.chdir(tmp_path)
    code, *_ = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    exec(code, names := {})
    found = names["fooled"].groupby([names["pairs"]["judge"], names["pairs"]["system"]]).mean().to_dict()
    assert {judge for judge, _ in found} == {"Telltale", *CONTROLS}
    for (judge, system), value in found.items():
        assert value == pytest.approx(result.metrics[f"adversuc.{judge}.{system}"].value, abs=1e-12)


def test_the_flat_file_of_a_run_that_was_broken_off_has_texts_and_lines_are_those_of_the_whole_run(tmp_path: Path) -> None:
    config = asked(tmp_path)
    interrupt(EVALUATE_ADVERSARIAL, config, tmp_path / "run", done=60)
    first = write_flat(str(tmp_path / "run"), str(tmp_path / "part.parquet"), Silent())
    run(config, tmp_path / "run", Silent())
    second = write_flat(str(tmp_path / "run"), str(tmp_path / "whole.parquet"), Silent())
    assert (first.num_rows, first.finished, second.finished) == (60, False, True)
    part, whole = (
        {(each["item_key"], each["place"]): each for each in read_table(tmp_path / name).to_pylist()}
        for name in ("part.parquet", "whole.parquet")
    )
    assert len(part) == first.num_lines < len(whole) == second.num_lines
    assert all(whole[key] == each for key, each in part.items())
    assert all(each["reply"] for each in part.values())
    (tmp_path / "run" / PAIRS_FILE).write_bytes(b"PAR1")
    with pytest.raises(RunError, match=f"damaged(.|\n)*{PAIRS_FILE}"):
        write_flat(str(tmp_path / "run"), str(tmp_path / "again.parquet"), Silent())


def test_rows_depend_neither_on_the_order_of_lines_nor_on_shards(tmp_path: Path, whole: Result) -> None:
    config = asked(tmp_path)
    for name in ("people", "plain", "telling"):
        lines = (tmp_path / f"{name}.tsv").read_text().splitlines()
        written(tmp_path / f"{name}.tsv", lines[::-1])
    run(replace(config, shard_size=7), tmp_path / "turned", Silent())
    assert rows(tmp_path / "turned") == rows(whole.run)


@pytest.mark.usefixtures("workers_here")
def test_two_workers_write_the_rows_of_none(tmp_path: Path, whole: Result) -> None:
    run(replace(asked(tmp_path), workers=2), tmp_path / "two", Silent())
    assert rows(tmp_path / "two") == rows(whole.run)


def test_an_interrupted_run_goes_on_where_it_was_and_only_with_the_same_files(tmp_path: Path, whole: Result) -> None:
    config = asked(tmp_path)
    interrupt(EVALUATE_ADVERSARIAL, config, tmp_path / "run", done=60)
    notes = Notes()
    people = (tmp_path / "people.tsv").read_text()
    written(tmp_path / "people.tsv", replies("others"))
    with pytest.raises(RunError, match=r"a file other contents(.|\n)*human: \w{12} -> \w{12}"):
        run(config, tmp_path / "run", Silent())
    (tmp_path / "people.tsv").write_text(people)
    assert run(config, tmp_path / "run", notes).metrics == whole.metrics
    assert notes.steps[0] >= 60, "what is saved is not done again"
    assert rows(tmp_path / "run") == rows(whole.run)


def test_a_judge_that_fails_costs_no_other_its_rows(tmp_path: Path) -> None:
    config = asked(tmp_path, judges=f"svm-unigram,{own(tmp_path)}:Dead")
    result = run(config, tmp_path / "run", Silent())
    errors = {row["error"] for row in rows(tmp_path / "run") if row["status"] != "ok"}
    assert errors == {"Dead: RuntimeError: out of memory"}
    assert result.metrics["adversuc.svm-unigram.telling"].n == NUM
    assert "adversuc.Dead.telling" not in result.metrics
    assert "36 fits failed: Dead: RuntimeError: out of memory." in (tmp_path / "run" / "table.md").read_text()


def test_systems_of_identical_replies_cannot_be_told(tmp_path: Path) -> None:
    config = asked(tmp_path, machine=str(written(tmp_path / "same.tsv", replies("people"))))
    metrics = run(config, tmp_path / "run", Silent()).metrics
    for judge in ("svm-unigram", *CONTROLS):
        assert metrics[f"adversuc.{judge}.same"].value == 0.5
    (told,) = [note for note in pooled(config).notes if "people" in note]
    assert told.startswith("same: 100% of its replies are those of people to the same sources")
    equal = [f"{line.split(chr(9))[0]}\tyes" for line in replies("a")]
    config = asked(tmp_path, machine=str(written(tmp_path / "yes.tsv", equal)))
    written(tmp_path / "people.tsv", equal)
    metrics = run(config, tmp_path / "equal", Silent()).metrics
    assert {round(estimate.value, 6) for name, estimate in metrics.items() if name.startswith("adversuc.")} == {0.5}


def test_people_are_told_from_their_shuffled_replies_where_replies_name_what_was_asked(tmp_path: Path) -> None:
    people = [f"{line} topic{number}" for number, line in enumerate(replies("people"))]
    columns = [line.split("\t") for line in people]
    turned = [f"{source}\t{reply}" for (source, _), (_, reply) in zip(columns, [*columns[7:], *columns[:7]], strict=True)]
    config = asked(tmp_path, machine=f"{written(tmp_path / 'shuffled.tsv', turned)},{tmp_path / 'plain.tsv'}")
    written(tmp_path / "people.tsv", people)
    notes = Notes()
    metrics = run(config, tmp_path / "run", notes).metrics
    assert metrics["adversuc.copy.shuffled"].value < 0.05
    assert metrics["human-random.copy"].value < 0.05
    (told,) = [note for note in notes.said if "replies are those of people to other sources" in note]
    assert told.startswith("shuffled: 100% of its replies")
    summary = RunFolder.load(tmp_path / "run").summary() or {}
    assert summary[VERDICTS]
    assert not any("shuffled" in sentence for sentence in summary[VERDICTS])
    report = collect_run(tmp_path / "run")
    verdict = JudgedSystems().verdict(report.found[JudgedSystems.name])
    assert verdict is not None
    assert verdict.number == metrics["adversuc.svm-unigram.plain"]
    assert "shuffled repeats people's replies to other sources: do not read its AdverSuc." in verdict.warnings


def test_how_files_are_spelled_decides_nothing_unless_it_shall(tmp_path: Path) -> None:
    shouted = [line.upper().replace("ALPHA", "UNK") for line in replies("plain")]
    config = asked(tmp_path, machine=str(written(tmp_path / "loud.tsv", shouted)))
    human = [line.replace("ABOUT", "about") for line in replies("people")]
    written(tmp_path / "people.tsv", human)
    pooled = run(config, tmp_path / "run", Silent()).metrics["adversuc.svm-unigram.loud"]
    assert pooled.low < 0.5 < pooled.high
    raw = [line.split("\t")[0] + "\t" + line.split("\t")[1].upper() for line in replies("plain")]
    written(tmp_path / "loud.tsv", raw)
    spelled = run(replace(config, normalise=False), tmp_path / "raw", Silent()).metrics["adversuc.svm-unigram.loud"]
    assert spelled.value < 0.05


def test_a_stray_unknown_word_of_people_decides_nothing(tmp_path: Path) -> None:
    """People know rare words; the system's are written UNK, and what is otherwise said is alike."""
    people = [f"{line} name{number}" for number, line in enumerate(replies("people", 150))]
    machine = written(tmp_path / "closed.tsv", [f"{line} UNK" for line in replies("plain", 150)])
    config = asked(tmp_path, machine=str(machine))
    found = {}
    for kind, lines in (("clean", people), ("stray", [*people[:-1], f"{people[-1]} UNK"])):
        written(tmp_path / "people.tsv", lines)
        notes = Notes()
        found[kind] = run(config, tmp_path / kind, notes).metrics["adversuc.svm-unigram.closed"]
        assert any(note.startswith("human beside closed: words that do not stand there became <unk>") for note in notes.said)
    assert 0.4 < found["clean"].value < 0.6
    assert found["stray"].value == pytest.approx(found["clean"].value, abs=0.03)


def test_each_system_meets_people_in_its_own_vocabulary(tmp_path: Path) -> None:
    """A small vocabulary takes no words from the people that a larger one is compared with; sources are the same ones."""
    people = [f"{line} name{number % 7}" for number, line in enumerate(replies("people"))]
    small = written(tmp_path / "small.tsv", [line.replace("topic", "UNK topic") + " UNK" for line in replies("plain")])
    large = written(tmp_path / "large.tsv", [f"{line} name{number % 7}" for number, line in enumerate(replies("large"))])
    config = asked(tmp_path, machine=f"{small},{large}")
    written(tmp_path / "people.tsv", [line.replace("topic", "zoe topic") for line in people])
    written(large, [line.replace("topic", "zoe topic") for line in large.read_text().splitlines()])
    found = pooled(config)
    said = {
        name: {word for each in found.scenarios[f"adversuc.{name}"].pairs if each.label for word in each.pair.reply}
        for name in ("small", "large")
    }
    assert "<unk>" in said["small"]
    assert "<unk>" not in said["large"]
    assert {f"name{number}" for number in range(7)} <= said["large"]
    assert not {f"name{number}" for number in range(7)} & said["small"]
    (one, other) = ({each.source for each in found.scenarios[f"adversuc.{name}"].pairs} for name in ("small", "large"))
    assert one == other, "so that systems are compared on the same sources"
    assert all("small" in note for note in found.notes if "<unk>" in note)


def test_where_both_write_unknown_words_their_shares_are_told(tmp_path: Path) -> None:
    machine = written(tmp_path / "closed.tsv", [f"{line} UNK" for line in replies("plain")])
    config = asked(tmp_path, machine=str(machine))
    written(tmp_path / "people.tsv", [f"{line} UNK UNK" for line in replies("people")])
    (note,) = [note for note in pooled(config).notes if "<unk>" in note]
    assert re.fullmatch(r"closed: both sides write <unk>, 1\d\.\d\d% of the words of human and \d\.\d\d% of closed\.", note)
    assert not [note for note in pooled(replace(config, normalise=False)).notes if "<unk>" in note]


def test_replies_as_long_as_the_longest_are_told_where_there_are_many(tmp_path: Path) -> None:
    longer = [f"{line} {'on ' * (20 - len(line.split()))}" for line in replies("long", 15)]
    config = asked(tmp_path, machine=str(written(tmp_path / "cut.tsv", longer + replies("plain")[15:])))
    written(tmp_path / "people.tsv", [*replies("people")[1:], f"{replies('people')[0]} {'and ' * 30}"])
    told = [note for note in pooled(config).notes if "as the longest one" in note]
    assert told == ["cut: 25% of the replies have 16 words, as the longest one."]


def test_one_source_a_thousand_times_weighs_no_more_than_ten(tmp_path: Path) -> None:
    many = [f"hello\treply {number}" for number in range(1000)]
    config = asked(tmp_path, machine=str(written(tmp_path / "many.tsv", [*many, *replies("plain")])))
    written(tmp_path / "people.tsv", [*replies("people"), *(f"hello\tanswer {number}" for number in range(1200))])
    notes = Notes()
    run(config, tmp_path / "run", notes)
    assert "human: 1,190 replies left out, more than 10 of one source." in notes.said
    (fold,) = {
        row["fold"]
        for row in rows(tmp_path / "run")
        if row["scenario"] == "adversuc.many" and max(map(row["sources"].count, set(row["sources"]))) == 20
    }
    assert fold in range(3)


def test_the_next_utterance_is_read_from_dialogues_or_from_a_file(tmp_path: Path) -> None:
    config = asked(tmp_path)
    turns = [f"turn{number} of a talk" for number in range(60)]
    written(tmp_path / "people.tsv", [f"{one}\t{other}" for one, other in pairwise(turns)])
    machine = written(tmp_path / "plain.tsv", [f"{one}\tso it is" for one in turns])
    found = run(replace(config, machine=str(machine)), tmp_path / "dialogue", Silent()).metrics
    assert found["human-next.svm-unigram"].n == 58
    assert found["ere.constant"].value == 0.25
    config = asked(tmp_path)
    following = written(tmp_path / "next.tsv", [line.replace("\t", "\tafterwards ") for line in replies("next")])
    found = run(replace(config, next_utterances=str(following)), tmp_path / "file", Silent()).metrics
    assert found["human-next.svm-unigram"].value < 0.1
    assert found["ere.constant"].value == 0.25
    # Of a corpus that knows of none there is a file without a line.
    found = run(replace(config, next_utterances=str(written(tmp_path / "none.tsv", []))), tmp_path / "none", Silent()).metrics
    assert found["ere.constant"].value == pytest.approx(1 / 6)


def test_more_human_than_machine_lines_are_balanced(tmp_path: Path) -> None:
    config = asked(tmp_path, machine=str(written(tmp_path / "few.tsv", replies("plain", 20))))
    notes = Notes()
    metrics = run(config, tmp_path / "run", notes).metrics
    assert metrics["adversuc.svm-unigram.few"].n == 20
    assert metrics["chance.adversuc.few"].n == 40
    assert f"few: {NUM - 20} sources left out, which one side alone answers." in notes.said


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"human": "FOLDER/nothing.tsv"}, DataError, "no such file"),
        ({"machine": "FOLDER/plain.tsv,FOLDER/../FOLDER_NAME/plain.tsv"}, DataError, "named twice"),
        ({"machine": "FOLDER/people.tsv"}, DataError, "named twice"),
        ({"machine": " , "}, ConfigError, "--machine names nothing"),
        ({"judges": "length"}, ConfigError, "--judges names nothing"),
        ({"judges": "svm-unigran"}, ConfigError, "did you mean 'svm-unigram'"),
        ({"forward": "runs/seq2seq"}, ConfigError, "--forward is read by the judge svm-neural alone"),
        ({"folds": 16}, DataError, "too few sources stand in the human file and in plain"),
        ({"machine": "FOLDER/other.tsv"}, DataError, "too few sources"),
        ({"machine": "FOLDER/broken.tsv"}, DataError, "a tab belongs between source and reply"),
    ],
)
def test_what_is_wrong_is_told_before_there_is_a_run(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception], said: str
) -> None:
    asked(tmp_path)
    written(tmp_path / "other.tsv", [line.replace("topic", "subject") for line in replies("plain")])
    written(tmp_path / "broken.tsv", [*replies("plain"), "no tab"])
    named = {
        name: value.replace("FOLDER_NAME", tmp_path.name).replace("FOLDER", str(tmp_path)) if isinstance(value, str) else value
        for name, value in changes.items()
    }
    with pytest.raises(error, match=said) as caught:
        run(asked(tmp_path, **named), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()
    if "folds" in changes:
        assert "give 64 shared sources at least" in str(caught.value)


def test_a_flag_of_files_may_be_given_several_times() -> None:
    verb = find_verb(["evaluate", "adversarial"])
    assert verb is not None
    line = ["--machine", "b.tsv", "--folds", "4", "--machine=c.tsv,d.tsv", "--human", "a.tsv"]
    config: AdversarialConfig = parse_job(verb, EVALUATE_ADVERSARIAL, line).config
    assert (config.human, config.machine_names, config.folds) == ("a.tsv", ("b.tsv", "c.tsv", "d.tsv"), 4)


def test_a_label_names_one_file_or_judge() -> None:
    names = ("out/beam.tsv", "old/beam.tsv", "a.b.tsv", "opensubtitles_sample:random", "hf:x/y", "m.py:Judge")
    assert [*labels_of(names).values()] == ["beam", "beam-2", "a_b", "random", "y", "Judge"]


def test_files_of_records_are_judged_as_lines_are(tmp_path: Path) -> None:
    config = asked(tmp_path)
    rows = [line.split("\t") for line in replies("plain")]
    objects = [{"asked": source, "said": reply} for source, reply in rows]
    (tmp_path / "mine.jsonl").write_text("".join(f"{json.dumps(entry)}\n" for entry in objects))
    lines = written(tmp_path / "lines.tsv", replies("plain"))
    named = f"{tmp_path}/mine.jsonl#context=asked,reply=said"
    found = pooled(replace(config, machine=f"{named},{lines}"))
    assert found.systems == ["mine", "lines"]
    first, second = ([each.pair for each in found.scenarios[f"adversuc.{name}"].pairs] for name in found.systems)
    assert sorted(first) == sorted(second)
    assert EVALUATE_ADVERSARIAL.models(replace(config, machine=named))[f"machine {named}"] == f"{tmp_path}/mine.jsonl"
    with pytest.raises(DataError, match="named twice"):
        pooled(replace(config, machine=f"{named},{tmp_path}/mine.jsonl#context=said,reply=asked"))


def test_files_of_systems_may_be_called_as_those_of_people_and_as_each_other(tmp_path: Path) -> None:
    config = asked(tmp_path)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    files = [tmp_path / name for name in ("a/human.tsv", "a/next.tsv", "a/beam.tsv", "b/beam.tsv", "beam-2.tsv")]
    for file in files:
        written(file, replies(str(file.relative_to(tmp_path))))
    followed = str(written(tmp_path / "followed.tsv", replies("followed")))
    found = pooled(replace(config, machine=",".join(map(str, files)), next_utterances=followed))
    assert found.systems == ["human-2", "next-2", "beam", "beam-2", "beam-2-2"]
    said = {system: [each.pair.reply for each in found.scenarios[f"adversuc.{system}"].pairs] for system in found.systems}
    assert len({tuple(replied) for replied in said.values()}) == len(files), "each is judged by its own replies"
