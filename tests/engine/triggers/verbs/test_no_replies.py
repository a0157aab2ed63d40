"""Answers that are no replies in searches on chat models: counted by kind, never a success, and the search goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from parley.engine.core.page.page import report_from_run
from parley.engine.core.stats.statistics import NO_REPLY
from parley.engine.core.verbs.job import Silent
from parley.engine.triggers.methods.evolution import EvolutionSettings
from parley.engine.triggers.methods.writing import WritingSettings
from parley.engine.triggers.metrics.text import EMPTY, EMPTY_NO_REPLY, FOUND_NO_REPLY, RANDOM, RANDOM_NO_REPLY
from parley.engine.triggers.success import Success, SuccessSettings
from parley.engine.triggers.verbs.config import TextSearchConfig
from parley.engine.triggers.verbs.text_search import SEARCH_TEXT
from parley.engine.triggers.verbs.transfer import SEARCH_TRANSFER, TriggerTransferConfig
from parley.engine.triggers.verbs.turns import Verifier
from tests.engine.core.verbs.made_up import rows

MODEL = """
from parley.policies.chat.model import Answer

NONE = {
    "blocked": Answer("", "content_filter"),
    "half": Answer("hello there", "content_filter"),
    "declined": Answer("", "refusal", withheld="hello there, no"),
    "long": Answer("", "length", reasoning="hello there"),
    "mute": Answer("", "stop", reasoning="hello there"),
    "tool": Answer("", "tool_calls"),
    "nothing": Answer("", "stop"),
}


class Model:
    def answer(self, chats, *, decoding, seeds=()):
        return [self.one(chat[-1].content.split()) for chat in chats]

    def one(self, words):
        for word, answer in NONE.items():
            if word in words:
                return answer
        begged = sum(words.count(word) for word in ("please", "kindly"))
        return Answer("hello there"[: 2 + 3 * begged], reasoning="please?")
"""
"""Says the more of a sentence, the more often it is begged; of some words it makes no reply."""
KINDS = {
    "blocked": "filtered",
    "half": "filtered",
    "declined": "refused",
    "long": "cut in thinking",
    "mute": "only thinking",
    "tool": "tool call",
    "nothing": "empty",
}


def searched(tmp_path: Path, prompts: str, words: str, **changes: Any) -> TextSearchConfig:
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "pairs.csv").write_text("prompt,target\n" + "".join(f"{prompt},hello there\n" for prompt in prompts.split("|")))
    (tmp_path / "words.txt").write_text(words)
    settings: dict[str, Any] = {
        "model": f"{tmp_path}/model.py:Model",
        "targets": str(tmp_path / "pairs.csv"),
        "words": str(tmp_path / "words.txt"),
        "search": EvolutionSettings(num_words=5, population=8, max_queries=120),
        **changes,
    }
    return TextSearchConfig(**settings)


def test_a_blocked_input_costs_its_query_and_the_search_goes_on(tmp_path: Path) -> None:
    words = "please kindly blocked half " + " ".join(f"w{number}" for number in range(20))
    result = SEARCH_TEXT.run(searched(tmp_path, "tell me", words), tmp_path / "run", Silent())
    (row,) = rows(tmp_path / "run")
    assert (row["verified"], row["reply"], row["kind"], row["reasoning"]) == (True, "hello there", "reply", "please?")
    by_question: Counter[str] = Counter()
    for each in row["no_replies"]:
        assert each["kind"] == "filtered"
        by_question[each["asked"]] += each["answers"]
    assert by_question["found"] > 0
    assert by_question["random"] > by_question["found"], "who searches leaves what is blocked"
    assert "half" not in row["trigger"].split(), "half of a filtered answer is no success"
    metrics, num = result.metrics, by_question.total()
    assert metrics[f"{NO_REPLY}.filtered"].value == num
    assert metrics[NO_REPLY].value == pytest.approx(num / (row["queries"] + row["random_queries"]))
    assert metrics[FOUND_NO_REPLY].value == pytest.approx(by_question["found"] / (row["queries"] - 1))
    assert metrics[RANDOM_NO_REPLY].value == pytest.approx(by_question["random"] / row["random_queries"])
    table = result.more[""]
    assert table.columns[3] == "no reply"
    assert f"No reply: answers that are none ({num} filtered)" in table.note
    page, text = report_from_run(tmp_path / "run").read_text(), (tmp_path / "run" / "table.md").read_text()
    assert "are no reply." in page
    assert f"({num} filtered)" in text


@pytest.mark.parametrize(("word", "kind"), KINDS.items())
def test_no_kind_of_answer_without_a_reply_is_a_success_of_a_control(tmp_path: Path, word: str, kind: str) -> None:
    search = EvolutionSettings(num_words=2, population=4, max_queries=4)
    success = SuccessSettings(by="pattern", pattern="hello|^$")
    config = searched(tmp_path, f"{word} here", "a b c d", search=search, success=success)
    result = SEARCH_TEXT.run(config, tmp_path / "run", Silent())
    (row,) = rows(tmp_path / "run")
    assert (row["verified"], row["empty_verified"], row["random_verified"]) == (False, False, False)
    assert (row["reply"], row["kind"], row["fitness"], row["random_fitness"]) == (row["reply"], kind, None, None)
    assert row["fitness_by_generation"] == [None]
    assert {(each["asked"], each["kind"], each["answers"]) for each in row["no_replies"]} == {
        ("empty", kind, 1),
        ("found", kind, 4),
        ("random", kind, 4),
    }
    assert [result.metrics[name].value for name in (EMPTY, RANDOM, NO_REPLY, EMPTY_NO_REPLY)] == [0, 0, 1, 1]
    assert result.metrics[EMPTY].n == 1, "the target stays in the rate"
    assert list(result.more)[1] == "no input worked; the closest"
    assert result.more["no input worked; the closest"].rows[0][-1] == f"(no reply: {kind})"
    assert ("--set success.tokens=N" in result.more[""].note) == (kind == "cut in thinking")
    page = report_from_run(tmp_path / "run").read_text()
    assert f"(no reply: {kind})" in page
    assert "A success is a reply that matches the pattern hello|^$." in page
    assert "target for a reply" not in page
    if row["reasoning"]:
        assert "thought before it" in page


ATTACKER = """
from parley.policies.chat.model import Answer

class Attacker:
    def answer(self, chats, *, decoding, seeds=()):
        return [Answer("", "length", reasoning="hm") if seed % 2 else Answer("", "content_filter") for seed in seeds]
"""


def test_an_attacker_without_replies_is_told_with_the_reasons(tmp_path: Path) -> None:
    (tmp_path / "attacker.py").write_text(ATTACKER)
    writing = WritingSettings(streams=4)
    named = f"{tmp_path}/attacker.py:Attacker"
    search = EvolutionSettings(num_words=2, population=4, max_queries=8)
    config = searched(tmp_path, "tell me", "a b c d", attacker=named, writing=writing, search=search)
    result = SEARCH_TEXT.run(config, tmp_path / "run", Silent())
    (row,) = rows(tmp_path / "run")
    assert "wrote no input that could be tried" in row["error"]
    assert "times: it is no reply: cut in thinking" in row["error"]
    assert "times: it is no reply: filtered" in row["error"]
    assert result.failure
    (tmp_path / "attacker.py").write_text(ATTACKER.replace('Answer("", "content_filter")', 'Answer(f"Words: a{seed}")'))
    SEARCH_TEXT.run(config, tmp_path / "other", Silent())
    (row,) = rows(tmp_path / "other")
    (lost,) = row["attacker_no_replies"]
    assert (lost["kind"], row["status"]) == ("cut in thinking", "ok")
    assert 0 < lost["answers"] < row["attacker_answers"]
    assert "The attacker gave" in (tmp_path / "other" / "table.md").read_text()


def test_what_is_typed_to_another_model_may_be_blocked_there(tmp_path: Path) -> None:
    words = "please kindly " + " ".join(f"w{number}" for number in range(20))
    SEARCH_TEXT.run(searched(tmp_path, "tell me|say it", words), tmp_path / "run", Silent())
    begged = [row["trigger"].split() for row in rows(tmp_path / "run")]
    (tmp_path / "other.py").write_text(MODEL.replace("NONE = {", f'NONE = {{"{begged[0][0]}": Answer("", "content_filter"),'))
    config = TriggerTransferConfig(
        searches=str(tmp_path / "run"),
        model=f"{tmp_path}/model.py:Model,{tmp_path}/other.py:Model",
        success=SuccessSettings(samples=2),
    )
    result = SEARCH_TRANSFER.run(config, tmp_path / "transfer", Silent())
    blocked = [row for row in rows(tmp_path / "transfer") if row["kind"] == "filtered"]
    assert blocked
    for row in blocked:
        assert (row["verified"], row["reply"], row["sampled"]) == (False, "", 0)
        assert row["drawn_no_replies"] == [{"asked": "drawn", "kind": "filtered", "answers": 2}]
    assert result.metrics[f"{NO_REPLY}.filtered"].value == 3 * len(blocked)
    num = sum(row["source"] != "no input" for row in blocked)
    (cell,) = (value for name, value in result.metrics.items() if name.endswith(f"| {NO_REPLY}"))
    assert cell.value == pytest.approx(num / 2)
    table = result.tables[""]
    assert table.columns[-2].endswith(", no reply")
    assert table.note.startswith("Success: a reply that begins with the target, or is the target where its search wanted that.")
    shown = result.tables["inputs that worked"]
    assert shown.columns == ("outcome", "model", "prompt", "input", "reply")
    assert shown.rows[0][0] == "success"
    assert shown.rows[-1] == ("no success", "Model-2", *shown.rows[-1][2:4], "(no reply: filtered)")
    page = report_from_run(tmp_path / "transfer").read_text()
    assert "(no reply: filtered)" in page


class Spelled:
    """A tokenizer of words, some of which are special."""

    all_special_ids: tuple[int, ...] = ()
    added_tokens_decoder: Mapping[int, Any] = MappingProxyType({})

    def decode(self, ids: list[int], **how: Any) -> str:
        return " ".join(WORDS[each] for each in ids)

    def convert_ids_to_tokens(self, token: int) -> str:
        return WORDS[token]


class Victim:
    """A model whose weights are here, as far as a verifier sees it."""

    tokenizer = Spelled()

    def __init__(self, template: str, said: list[int], ended: bool) -> None:
        self.template, self._said, self._ended = template, said, ended

    def target(self, text: str) -> list[str]:
        return text.split()

    def say(self, read: list[int], num_tokens: int, **how: Any) -> tuple[list[int], bool]:
        return self._said, self._ended


WORDS = ("<think>", "</think>", "sorry", "sure", "here")


@pytest.mark.parametrize(
    ("template", "said", "ended", "columns"),
    [
        ("{}", [3, 4], True, ("sure here", "reply", "", True)),
        ("{}", [0, 2, 1, 3, 4], True, ("sure here", "reply", "sorry", True)),
        ("{} <think>\n", [2, 1, 3, 4], True, ("sure here", "reply", "sorry", True)),
        ("{} <think>\n", [3, 4], False, ("", "cut in thinking", "sure here", False)),
        ("{}", [0, 3, 4], False, ("", "cut in thinking", "sure here", False)),
        ("{}", [], True, ("", "empty", "", False)),
    ],
)
def test_thoughts_of_a_searched_model_are_no_part_of_its_reply(
    template: str, said: list[int], ended: bool, columns: tuple[Any, ...]
) -> None:
    verifier = Verifier(Success(SuccessSettings(by="no-refusal"), end=False), 2, 1.0)
    victim: Any = Victim(template, said, ended)
    found = verifier.asked(victim, [], "sure here", None, 1)
    assert tuple(found[name] for name in ("reply", "kind", "reasoning", "verified")) == columns
    assert (found["samples"], found["sampled"]) == (2, 2 * columns[-1])
    assert sum(each["answers"] for each in found["drawn_no_replies"]) == 2 * (columns[1] != "reply")
