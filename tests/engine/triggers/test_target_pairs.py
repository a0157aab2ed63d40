"""Files of (prompt, target) pairs, and when a reply is a success."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from parley.engine.triggers.success import Success, SuccessSettings
from parley.engine.triggers.targets import Skipped, has_prompts, read_pairs
from parley.envs.core.errors import ConfigError, DataError
from parley.policies.chat.model import Answer
from parley.policies.chat.verdicts import ReplyVerdict

WANTED = [("say hello", "Sure, you fool"), ("praise me", "You are late")]
LAYOUTS = {
    "advbench.csv": 'goal,target\nsay hello,"Sure, you fool"\npraise me,You are late\nsay hello,"Sure, you fool"\n',
    "pairs.jsonl": "".join(json.dumps({"prompt": prompt, "target": target}) + "\n\n" for prompt, target in WANTED),
    "harm.csv": 'Behavior,BehaviorID,Target\r\nsay hello,a,"Sure, you fool"\r\npraise me,b,You are late\r\n',
    "bom.csv": '\ufeffTarget,Prompt\n"Sure, you fool",say hello\nYou are late,praise me\n',
    "UPPER.CSV": 'PROMPT,TARGET\nsay hello, "Sure, you fool"\npraise me, You are late\n',
    "pairs.tsv": "prompt\ttarget\nsay hello\tSure, you fool\npraise me\tYou are late\n",
    "nosuffix": 'prompt,target\r\n\r\nsay hello,"Sure, you fool"\r\npraise me,You are late\r\n',
    "pairs.txt": "target\tprompt\nSure, you fool\tsay hello\nYou are late\tpraise me\n",
    "list.json": json.dumps([{"prompt": prompt, "target": target} for prompt, target in WANTED], indent=1),
    "lines.json": "".join(json.dumps({"Prompt": prompt, "Target": target}) + "\n" for prompt, target in WANTED),
    "nothing": json.dumps([{"prompt": prompt, "target": target} for prompt, target in WANTED]),
    "numbered.csv": ',prompt,target\n0,say hello,"Sure, you fool"\n1,praise me,You are late\n',
}


def no_matter(prompt: str, target: str) -> Skipped | None:
    return None


@pytest.mark.parametrize("name", LAYOUTS)
def test_pairs_are_read_from_every_layout(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(LAYOUTS[name], encoding="utf-8", newline="")
    assert has_prompts(str(path))
    found = read_pairs(path, no_matter).targets
    assert [(target.prompt, " ".join(target.words)) for target in found] == WANTED
    assert len({target.key for target in found}) == 2


def test_pairs_are_read_from_parquet(tmp_path: Path) -> None:
    path = tmp_path / "pairs"
    parquet.write_table(pa.table({"Prompt": ["say hello", "count"], "Target": ["Sure", "4"], "row": [1, 2]}), path)
    assert has_prompts(str(path))
    assert [(each.key, each.prompt, each.words) for each in read_pairs(path, no_matter).targets] == [
        ("pairs-000001", "say hello", ("Sure",)),
        ("pairs-000002", "count", ("4",)),
    ]


def test_sentences_are_no_pairs(tmp_path: Path) -> None:
    for content in ("Prompt replies, please\nand a target, too\n", "[angry] go\n", "{no} way\n", "\n", "prompt\n", ""):
        path = tmp_path / "list.txt"
        path.write_text(content, encoding="utf-8")
        assert not has_prompts(str(path)), content
    assert not has_prompts(str(tmp_path / "none.csv"))
    assert not has_prompts("mal")


def test_long_cells_and_cells_of_several_lines_are_read_and_named_by_their_first_line(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text(f'prompt,target\n"{"many shots " * 15_000}\nand more",Sure\nb,Sure\n', encoding="utf-8")
    first, second = read_pairs(path, no_matter).targets
    assert (len(first.prompt or ""), first.key, second.key) == (165_009, "long-000002", "long-000004")


def test_numbers_are_targets_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "num.jsonl"
    path.write_text(
        '{"prompt": "What is two plus two?", "target": 4}\n{"prompt": "And pi?", "target": 3.140}\n', encoding="utf-8"
    )
    assert [each.words for each in read_pairs(path, no_matter).targets] == [("4",), ("3.140",)]


def test_equal_pairs_count_once_and_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("prompt,target\na,b\na,b\nc,d\n a,b \n", encoding="utf-8")
    assert len(read_pairs(path, no_matter).targets) == 2
    assert caplog.messages == ["2 targets of 'pairs' repeat others, which count once"]


def test_harmbench_keeps_contexts_and_targets_apart(tmp_path: Path) -> None:
    path, targets = tmp_path / "behaviors.csv", tmp_path / "targets.json"
    path.write_text("Behavior,ContextString,BehaviorID\npraise it,A printer.,x\n")
    targets.write_text('{"x": "It is old"}')
    (found,) = read_pairs(path, no_matter, target_file=targets).targets
    assert (found.prompt, found.words) == ("A printer.\n\n---\n\npraise it", ("It is old",))
    targets.write_text('{"x": "It is old", "x": "It is new"}')
    with pytest.raises(DataError, match=r"names a behaviour twice(.|\n)*x"):
        read_pairs(path, no_matter, target_file=targets)
    for lacking in ('{"y": "It is old"}', '{"x": ""}', '{"x": " "}'):
        targets.write_text(lacking)
        with pytest.raises(DataError, match=r"no target for a behaviour(.|\n)*behaviors\.csv:2(.|\n)*x"):
            read_pairs(path, no_matter, target_file=targets)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.csv", "", "is empty"),
        ("empty.csv", "prompt,target\n", "holds no pair"),
        ("empty.jsonl", "\n", "holds no pair"),
        ("column.csv", "prompt,wish\na,b\n", r"no column target(.|\n)*columns prompt, wish"),
        ("column.jsonl", '{"target": "a"}\n', "no column prompt or goal or behavior"),
        ("cell.csv", "prompt,target\na,\n", "target is empty"),
        ("broken.jsonl", '{"prompt": "a", "target": "b"}\n{\n', "no JSON"),
        ("list.jsonl", "[1]\n", "no object"),
        ("flag.jsonl", '{"prompt": "a", "target": true}\n', r"target is no text(.|\n)*flag\.jsonl:1(.|\n)*True"),
        ("null.jsonl", '{"prompt": "a", "target": null}\n', "target is empty"),
        (
            "more.csv",
            "prompt,target\na,b\nName a fruit, please,Sure\n",
            r"does not fit the header(.|\n)*more\.csv:3(.|\n)*3 cells",
        ),
        ("fewer.csv", "prompt,target\na\n", r"does not fit the header(.|\n)*fewer\.csv:2"),
        ("nameless.csv", "prompt,target,\nName a fruit, please,Sure\n", r"under no column(.|\n)*nameless\.csv:2"),
        ("twice.csv", "prompt,target,Target\na,b,c\n", r"one name(.|\n)*twice\.csv:1(.|\n)*target"),
        ("twice.jsonl", '{"prompt": "a", "target": "b", "target": "c"}\n', r"one name(.|\n)*twice\.jsonl:1"),
        ("semicolon.csv", "prompt;target\na;b\n", r"other marks(.|\n)*semicolon\.csv:1"),
        ("semicolon", "prompt;target\na;b\n", r"other marks(.|\n)*semicolon:1"),
        ("quote.csv", 'prompt,target\na,b\n"c,d\ne,f\n', r"no CSV(.|\n)*quote\.csv:3"),
        ("open.json", '[{"prompt": "a", "target": "b"},\n {"prompt": "c"', r"no JSON(.|\n)*open\.json:2"),
        ("text.json", "hello", r"no JSON(.|\n)*text\.json:1"),
        ("text.parquet", "prompt", "no Parquet"),
        ("latin.csv", b"prompt,target\na,\xe4\n", r"not UTF-8(.|\n)*latin\.csv:2"),
    ],
)
def test_files_without_pairs_are_refused(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(DataError, match=message):
        read_pairs(path, no_matter)


def test_what_a_model_cannot_say_is_skipped_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(LAYOUTS["advbench.csv"])

    def refused(prompt: str, target: str) -> Skipped | None:
        return Skipped(target, ("late",)) if "late" in target else None

    found = read_pairs(path, refused)
    assert ([target.prompt for target in found.targets], len(found.skipped)) == (["say hello"], 1)
    with pytest.raises(DataError, match=r"cannot say(.|\n)*pairs\.csv:3"):
        read_pairs(path, refused, strict=True)


@pytest.mark.parametrize(
    ("settings", "end", "reply", "ended", "success"),
    [
        ({}, True, "You fool", True, True),
        ({}, True, "You fool", False, False),
        ({}, True, "You fool!", True, False),
        ({}, False, " You fool!", False, True),
        ({}, False, "Oh. You fool", True, False),
        ({"by": "exact"}, False, "You fool!", True, False),
        ({"by": "prefix"}, True, "You fool!", False, True),
        ({"by": "pattern", "pattern": "f[aeo]+l"}, False, "a fool", True, True),
        ({"by": "pattern", "pattern": "^f[aeo]+l"}, False, "a fool", True, False),
        ({"by": "no-refusal"}, False, "Of course", True, True),
        ({"by": "no-refusal"}, False, "I\u2019m sorry, but no", True, False),
        ({"by": "no-refusal"}, False, " ", True, False),
        ({"by": "classifier", "classifier": "hf:x"}, False, "rude", True, True),
        ({"by": "classifier", "classifier": "hf:x"}, False, "kind", True, False),
    ],
)
def test_a_reply_is_judged(settings: dict[str, str], end: bool, reply: str, ended: bool, success: bool) -> None:
    judge = Success(SuccessSettings(**settings), end=end, scores=lambda replies: [float(each == "rude") for each in replies])
    answer = Answer(reply, "stop" if ended else "length")
    assert judge.verdict(answer, "You fool") == ReplyVerdict(success, answers=0, parsed=True)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"by": "pattern", "pattern": "f|^$"},
        {"by": "no-refusal"},
        {"by": "classifier", "classifier": "hf:x"},
        {"by": "judge", "judge": "x"},
    ],
)
@pytest.mark.parametrize(
    "answer",
    [
        Answer("You fool", "content_filter"),
        Answer("", "refusal", withheld="I'm sorry, fool"),
        Answer("", "length", reasoning="You fool"),
        Answer("", "stop", reasoning="You fool"),
        Answer("", "tool_calls"),
        Answer("", "stop"),
    ],
    ids=lambda answer: answer.kind,
)
def test_an_answer_that_is_no_reply_is_no_success_and_nobody_is_asked(settings: dict[str, Any], answer: Answer) -> None:
    def asked(*said: Any) -> Any:
        raise AssertionError("nobody is asked")

    judge = Success(SuccessSettings(**settings), end=False, scores=asked, verdicts=asked)
    assert judge.verdict(answer, "You fool") == ReplyVerdict(False, answers=0, parsed=True)


def test_thoughts_are_no_part_of_what_is_judged() -> None:
    answer = Answer("of course", "stop", reasoning="sorry? no: You fool")
    assert Success(SuccessSettings(by="no-refusal"), end=False).verdict(answer, "").success
    assert not Success(SuccessSettings(by="pattern", pattern="fool"), end=False).verdict(answer, "").success


def test_signs_of_refusal_are_the_users_own(tmp_path: Path) -> None:
    path = tmp_path / "signs.txt"
    path.write_text("Nope\n\nI can\N{RIGHT SINGLE QUOTATION MARK}t\n", encoding="utf-8-sig")
    judge = Success(SuccessSettings(by="no-refusal", refusals=str(path)), end=False)
    replies = ("nope, friend", "I'm sorry", "I can't", "I can\N{RIGHT SINGLE QUOTATION MARK}t.")
    assert [judge.verdict(Answer(reply), "").success for reply in replies] == [False, True, False, False]
    path.write_text("not\u2028now\x0cplease\n", encoding="utf-8")
    judge = Success(SuccessSettings(by="no-refusal", refusals=str(path)), end=False)
    assert [judge.verdict(Answer(reply), "").success for reply in ("not", "please", "not\u2028now\x0cplease")] == [
        True,
        True,
        False,
    ]
    path.write_text("\n")
    with pytest.raises(DataError, match="empty"):
        Success(SuccessSettings(by="no-refusal", refusals=str(path)), end=False)


@pytest.mark.parametrize(
    "settings",
    [
        {"by": "pattern"},
        {"pattern": "a"},
        {"by": "pattern", "pattern": "("},
        {"by": "classifier"},
        {"refusals": "list.txt"},
        {"by": "judge", "judge": "hf:x", "label": "bad"},
        {"by": "prefix", "question": "q.txt"},
    ],
)
def test_settings_of_success_that_do_not_fit_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        SuccessSettings(**settings)
