"""Reader of DailyDialog++ on lines written for the test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parley.envs.ranking.compiled import CandidateCorpus, open_candidates
from parley.envs.ranking.corpora import FILES, find_candidates, read_dailydialog
from parley.envs.ranking.groups import CandidateKind, CandidateOptions
from tests.envs.corpora.pairs.made_up import write_lines
from tests.envs.ranking.made_up import listed


def line(number: int, *, wrong: bool = True, **other: Any) -> str:
    record: dict[str, Any] = {"context": ["Hello.", f"Question {number}?"], "positive_responses": [f"Yes {number}", "Sure!"]}
    if wrong:
        record["adversarial_negative_responses"] = [f"My question was {number}."]
        record["random_negative_responses"] = [f"Red {number}", "sure !"]
    return json.dumps(record | other)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "dailydialog_pp"
    write_lines(folder / FILES["train"], *(line(number, wrong=False) for number in range(20)))
    write_lines(folder / FILES["val"], line(30))
    write_lines(folder / FILES["test"], line(40), line(41))
    return folder


def opened(folder: Path) -> CandidateCorpus:
    options = CandidateOptions(file_order=True)
    return open_candidates(find_candidates("dailydialog_pp"), folder.parent, options=options, cache=folder.parent / "cache")


def test_groups_hold_the_listed_replies_and_training_draws_its_wrong_ones(folder: Path) -> None:
    corpus = opened(folder)
    first = corpus.splits["test"][0]
    assert listed(first) == (
        ["hello .", "question 40 ?"],
        {"yes 40": True, "sure !": True, "my question was 40 .": False, "red 40": False},
    )
    assert first.kinds == (CandidateKind.POSITIVE, CandidateKind.POSITIVE, CandidateKind.ADVERSARIAL, CandidateKind.RANDOM)
    assert corpus.num_mended == 3
    train = corpus.splits["train"]
    assert len(train) == 40
    for group in train:
        (right, wrong), number = group.candidates, group.context[1][1]
        assert group.labels == (True, False)
        assert right in (("yes", number), ("sure", "!"))
        assert wrong not in (("yes", number), ("sure", "!"))


@pytest.mark.parametrize(
    ("broken", "what"),
    [
        ("{", "a line is a JSON object"),
        ("[1]", 'a line has a list of texts as "context"'),
        (line(1, context=[]), 'a line has a list of texts as "context"'),
        (line(1, wrong=False), 'a line has a list of texts as "adversarial_negative_responses"'),
        (line(1, positive_responses=["a", 3]), 'a line has a list of texts as "positive_responses"'),
        (line(1, positive_responses=["a", " "]), 'each text of "positive_responses" has a word'),
    ],
)
def test_broken_lines_are_named(broken: str, what: str, folder: Path) -> None:
    path = write_lines(folder / FILES["test"], line(40), broken)
    text = read_dailydialog(folder)
    assert [str(error.where) for error in text.broken] == [f"{path}:2"]
    assert what in text.broken[0].what
    assert len(text.splits["test"]) == 1
