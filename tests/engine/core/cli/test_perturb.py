"""`parley perturb`: lines in, lines out, what changed marked and counted; no line is too strange."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from parley.engine.perturb import perturb_text
from parley.engine.perturb.verbs.perturb import CHUNK
from parley.envs.corpora.pairs.vocabulary import SPECIALS, PairVocabulary
from tests.engine.core.cli.conftest import Parley
from tests.engine.core.verbs.made_up import ROOT

BUILT_IN = "--set perturb.lexicon=built-in"
LINE = "How do I start it <eou> I tried twice today <eot> open the old file on the disk"


@pytest.fixture
def typed(parley: Parley, monkeypatch: pytest.MonkeyPatch) -> Parley:
    """Runs a command with bytes on standard input: the command, then the bytes."""

    def run(command: str, content: bytes) -> object:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        return parley(command)

    return run  # type: ignore[return-value]


def records(out: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.splitlines()]


def test_changed_words_are_marked_before_and_after(typed: Parley) -> None:
    outcome = typed(f"perturb antonym {BUILT_IN}", f"{LINE}\nok\n".encode())
    assert outcome.status == 0
    before, after, same = outcome.out.splitlines()
    assert before.split() == ["1", "antonym", "-", *before.split()[3:]]
    assert "[old]" in before or "[open]" in before
    assert after.split()[0] == "+"
    assert after.count("<eou>") == after.count("<eot>") == 1
    assert same.split() == ["2", "antonym", "=", "ok"]


@pytest.mark.parametrize("colours", [True, False])
def test_what_a_terminal_would_obey_in_a_line_is_spelled(typed: Parley, monkeypatch: pytest.MonkeyPatch, colours: bool) -> None:
    if colours:
        monkeypatch.setenv("FORCE_COLOR", "1")
    outcome = typed(f"perturb antonym,random-swap {BUILT_IN}", "the old \x1b]0;mine\x07 disk \x9b2J is open now\n".encode())
    assert outcome.status == 0
    assert r"\u001b" in outcome.out
    assert r"\u009b" in outcome.out
    assert not {"\x9b", "\x07"} & set(outcome.out)
    assert "\x1b]" not in outcome.out.replace(" ", "")


def test_what_was_done_is_counted_on_standard_error(typed: Parley) -> None:
    outcome = typed(f"perturb random-swap,antonym {BUILT_IN}", f"{LINE}\nok\n\n\xff".encode("latin-1"))
    rows = [line.split() for line in outcome.err.splitlines()]
    assert ["random-swap", "1", "3"] in rows
    assert ["antonym", "1", "3"] in rows
    assert "lines without a word, untouched: 1" in outcome.err
    assert "not UTF-8, read as U+FFFD: 1" in outcome.err
    assert "built-in lexicon" in outcome.err


def test_json_has_one_object_for_each_line_and_strategy(typed: Parley) -> None:
    outcome = typed(f"perturb random-swap,stopword-dropout --json --seed 5 {BUILT_IN}", f"{LINE}\nok\n".encode())
    found = records(outcome.out)
    assert [(record["line"], record["strategy"]) for record in found] == [
        (1, "random-swap"),
        (1, "stopword-dropout"),
        (2, "random-swap"),
        (2, "stopword-dropout"),
    ]
    assert found[0]["after"] == perturb_text(LINE, "random-swap", seed=5)
    assert found[0]["before"] == LINE
    assert found[0]["untouched"] is False
    assert found[2] == {"line": 2, "strategy": "random-swap", "before": "ok", "after": "ok", "changed": 0, "untouched": True}


def test_a_byte_order_mark_is_no_part_of_a_line(typed: Parley) -> None:
    commands = [typed("perturb random-swap --json", start + LINE.encode()) for start in (b"\xef\xbb\xbf", b"")]
    marked, plain = (records(outcome.out) for outcome in commands)
    assert marked == plain
    assert "\ufeff" not in commands[0].out


def test_a_line_becomes_the_same_wherever_it_stands(typed: Parley, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a word of ours\n" * CHUNK + LINE)
    many = records(typed("perturb random-swap --json --input in.txt", b"").out)
    (one,) = records(typed("perturb random-swap --json", LINE.encode()).out)
    assert len(many) == CHUNK + 1
    assert many[-1] == {**one, "line": CHUNK + 1}


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", b"\xff\xfe\x00", "\N{GRINNING FACE} ünïcødé \u2028 \u202e中文\r\n".encode(), b"<eot><eou>\n"]
)
def test_no_line_is_too_strange(typed: Parley, content: bytes) -> None:
    outcome = typed(f"perturb should-change,random-swap,stopword-dropout --json {BUILT_IN}", content)
    assert outcome.status == 0
    assert len(records(outcome.out)) == 4 * len(content.splitlines())


def test_what_only_looks_strange_is_untouched(typed: Parley) -> None:
    lines = ["cafe\u0301", "\u200bok\u200d", "\u0939\u093f\u0928\u094d\u0926\u0940 <eou> \ufeff"]
    outcome = typed(f"perturb random-swap,antonym --json {BUILT_IN}", "\n".join(lines).encode())
    found = records(outcome.out)
    assert all(record["untouched"] and record["changed"] == 0 for record in found)
    assert [record["after"] for record in found[::2]] == lines


def test_only_the_words_of_a_model_enter(typed: Parley, tmp_path: Path) -> None:
    folder = tmp_path / "run" / "checkpoint"
    folder.mkdir(parents=True)
    (folder / "weights.safetensors").touch()
    PairVocabulary((*SPECIALS, "x", "y")).save(folder / "vocabulary.json")
    (found,) = records(typed("perturb random-inputs --json --model run", b"three other words").out)
    assert set(str(found["after"]).split()) <= {"x", "y"}
    (found,) = records(typed(f"perturb add-negation --json --model run {BUILT_IN}", b"i know it").out)
    assert found["untouched"] is True


def test_a_model_that_is_not_there_or_of_another_kind_is_an_error(typed: Parley, tmp_path: Path) -> None:
    assert "--model needs a checkpoint" in typed("perturb random-swap --model run", b"").err
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "weights.safetensors").touch()
    for content in ("no json", '["a"]'):
        (tmp_path / "run" / "vocabulary.json").write_text(content)
        outcome = typed("perturb random-swap --model run", b"")
        assert outcome.status == 2
        assert "the words of --model cannot be read" in outcome.err


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("perturb random-swop", "did you mean 'random-swap'"),
        ("perturb confusing-entity", "--set perturb.entities=FILE"),
        ("perturb random-swap --input nowhere.txt", "nowhere.txt"),
        ("perturb random-swap --set perturb.swap_evry=2", "did you mean 'swap_every'"),
        ("perturb random-swap --set perturb.swap_every=0", "at least 1"),
        ("perturb random-swap --seed -1", "at least 0"),
    ],
)
def test_a_mistake_is_told_and_nothing_is_written(typed: Parley, command: str, said: str) -> None:
    outcome = typed(command, b"a b c d\n")
    assert (outcome.status, outcome.out) == (2, "")
    assert said in outcome.err


def test_settings_come_from_a_file_and_single_ones_go_before(typed: Parley, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("perturb:\n  swap_every: 100\n")
    (found,) = records(typed("perturb random-swap --json --config own.yaml", b"a b c d e f").out)
    assert found["untouched"] is True
    command = "perturb random-swap --json --config own.yaml --set perturb.swap_every=2"
    (found,) = records(typed(command, b"a b c d e f").out)
    assert found["untouched"] is False


def test_missing_words_of_nltk_name_the_command_that_brings_them(typed: Parley, monkeypatch: pytest.MonkeyPatch) -> None:
    import nltk

    monkeypatch.setattr(nltk.data, "path", [])
    outcome = typed("perturb antonym", b"an old disk\n")
    assert (outcome.status, outcome.out) == (2, "")
    assert "parley data get nltk" in outcome.err


def test_who_has_read_enough_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text(f"{LINE}\n" * 20_000)
    command = [sys.executable, "-m", "parley", "perturb", "random-swap", "--input", str(tmp_path / "in.txt")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"random-swap" in process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_a_strategy_of_ones_own_is_counted_by_its_name(typed: Parley, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from parley.engine.perturb.strategies.swap import RandomSwap\n\n\n"
        "def mine(settings, resources):\n    return RandomSwap(every=2)\n"
    )
    outcome = typed(f"perturb {tmp_path / 'mine.py'}:mine", b"one two three four\n")
    assert outcome.status == 0
    assert "random-swap" in outcome.err


def test_a_group_leaves_out_what_needs_a_network(typed: Parley) -> None:
    outcome = typed("perturb should-not-change --set perturb.lexicon=built-in", b"one two three four\n")
    assert outcome.status == 0
    assert "generative-paraphrase is left out" in outcome.err
    assert typed("perturb generative-paraphrase", b"one two\n").status == 2
