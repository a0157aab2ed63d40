"""The embedded corpus: the published line format, human-like figures, the same in every process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from parley.envs.core.errors import ConfigError
from parley.envs.negotiation.corpora.dealornodeal import parse_lines, parse_scenarios
from parley.envs.negotiation.domain import Scenario
from parley.envs.negotiation.game import NegotiationGame, Rules, play
from parley.envs.negotiation.scripted.bargainers import NUM_SELFPLAY, Bargainer, dialogue_line, embedded_corpus
from parley.envs.negotiation.scripted.wording import bargainer_vocabulary

SPLITS = ("train", "val", "test")


@cache
def corpus(num_dialogues: int = 600, seed: int = 0) -> dict[str, list[str]]:
    return embedded_corpus(num_dialogues, seed)


def part(line: str, name: str) -> str:
    return line.split(f"<{name}> ")[1].split(f" </{name}>")[0]


def numbers(line: str, name: str) -> list[int]:
    return [int(number) for number in part(line, name).split()]


def first_views() -> list[str]:
    return [line for split in SPLITS for line in corpus()[split][::2]]


def test_lines_are_those_of_the_published_format() -> None:
    lines = corpus()
    assert {split: len(lines[split]) for split in SPLITS} == {"train": 960, "val": 120, "test": 120}
    for split in SPLITS:
        records, broken = parse_lines(lines[split], split)
        assert not broken
        assert len(records) == len(lines[split])
    scenarios, broken = parse_scenarios(lines["selfplay"], "selfplay")
    assert not broken
    assert len(set(scenarios)) > 0.9 * NUM_SELFPLAY


def test_successive_lines_are_the_two_views_of_one_dialogue() -> None:
    exchanged = {"YOU:": "THEM:", "THEM:": "YOU:"}
    for split in SPLITS:
        for first, second in zip(corpus()[split][::2], corpus()[split][1::2], strict=True):
            assert part(first, "input") == part(second, "partner_input")
            assert part(second, "input") == part(first, "partner_input")
            assert [exchanged.get(word, word) for word in part(first, "dialogue").split()] == part(second, "dialogue").split()
            output = part(first, "output").split()
            assert part(second, "output").split() == output[3:] + output[:3]
            Scenario.from_contexts(numbers(first, "input"), numbers(second, "input"))


def test_figures_look_like_those_of_people() -> None:
    outcomes = Counter(part(line, "output").split()[0] for line in first_views())
    total = sum(outcomes.values())
    assert 0.74 < 1 - (outcomes["<no_agreement>"] + outcomes["<disagree>"]) / total < 0.88
    assert 0.06 < outcomes["<no_agreement>"] / total < 0.2
    assert 0.01 < outcomes["<disagree>"] / total < 0.1
    turns = [part(line, "dialogue").split(" <eos> ") for line in first_views()]
    num_turns = np.array([len(dialogue) for dialogue in turns])
    assert 5 < num_turns.mean() < 7
    assert np.percentile(num_turns, 95) <= 12
    num_words = np.array([len(turn.split()) - 1 for dialogue in turns for turn in dialogue[:-1]])
    assert 7 < num_words.mean() < 10.5
    first_word = Counter(line.split("<dialogue> ")[1].split()[0] for line in first_views())
    assert 0.4 < first_word["YOU:"] / total < 0.6


def test_deals_are_worth_more_than_chance() -> None:
    earned = []
    for line in first_views():
        output = part(line, "output").split()
        if output[0].startswith("item"):
            items = [int(token[-1]) for token in output]
            values = numbers(line, "input")[1::2] + numbers(line, "partner_input")[1::2]
            earned.append([np.dot(items[:3], values[:3]), np.dot(items[3:], values[3:])])
    assert (np.mean(earned, axis=0) > 6.5).all()


def test_words_are_those_of_the_bargainers() -> None:
    known = set(bargainer_vocabulary().words)
    assert {word for line in first_views() for word in part(line, "dialogue").split()} <= known


def test_a_larger_corpus_begins_with_the_smaller() -> None:
    smaller, larger = embedded_corpus(40, 0), corpus()
    for split in SPLITS:
        assert larger[split][: len(smaller[split])] == smaller[split]
    assert smaller["selfplay"] == larger["selfplay"]
    assert embedded_corpus(40, 1)["train"] != smaller["train"]


def test_every_process_writes_the_same() -> None:
    script = """
import json
from parley.envs.negotiation.scripted.bargainers import embedded_corpus
print(json.dumps(embedded_corpus(30, 5)))
"""
    root = Path(__file__).parents[4]
    # Another salt for Python's own hashes: nothing may depend on the order of a set.
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": str(root)}
    command = [sys.executable, "-c", script]
    output = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=True).stdout
    assert json.loads(output) == embedded_corpus(30, 5)


def test_clashing_selections_are_disagreement() -> None:
    vocabulary = bargainer_vocabulary()
    agent = Bargainer.named("scripted", vocabulary)
    scenario = Scenario((1, 1, 3), ((1, 6, 1), (4, 3, 1)))
    game = play(NegotiationGame([scenario], [1], vocabulary, Rules()), (agent, agent))
    game.selections[0] = (0, 0)
    assert part(dialogue_line(game, 0, 0), "output").split() == ["<disagree>"] * 6
    game.selections[0] = (len(game.view(0).selections(0)) - 2,) * 2
    assert part(dialogue_line(game, 0, 1), "output").split() == ["<no_agreement>"] * 6


@pytest.mark.parametrize(("num_dialogues", "seed"), [(-1, 0), (1, -1)])
def test_negative_numbers_are_refused(num_dialogues: int, seed: int) -> None:
    with pytest.raises(ConfigError, match="negative"):
        embedded_corpus(num_dialogues, seed)
