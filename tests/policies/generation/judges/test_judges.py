"""Judges: what they learn, that they are found by name, and what a user's own must keep to."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from parley.envs.core.errors import CheckpointError, ConfigError, JudgeError
from parley.envs.corpora.pairs.compiled import RepliedPair
from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.policies.generation.judges.judge import (
    CONTROLS,
    Featured,
    Judge,
    JudgeSettings,
    Remembered,
    ThresholdJudge,
    best_threshold,
    judges,
    scores_by,
)
from parley.policies.generation.judges.prompted import judge_maker
from parley.policies.ranking.rankers import load_ranker
from parley.policies.seq2seq.model import Seq2Seq
from parley.policies.seq2seq.scoring import save_model
from parley.policies.seq2seq.settings import Seq2SeqSizes
from tests.engine.perturb.verbs.robust import save_responder
from tests.policies.ranking.folders import cross_encoder

WORDS = [f"w{number}" for number in range(300)]


def task(num: int, seed: int = 1, tell: float = 0.5) -> tuple[list[RepliedPair], np.ndarray]:
    """Pairs of which those of the first side say "indeed" with a probability."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(num) % 2 == 0)
    pairs = [
        RepliedPair(
            (tuple(rng.choice(WORDS, 6)),), (*rng.choice(WORDS, 7), "indeed" if label and rng.random() < tell else "no")
        )
        for label in labels
    ]
    return pairs, labels


def made(name: str, **settings: object) -> Judge:
    return judge_maker(name, JudgeSettings(**settings))()  # type: ignore[arg-type]


def accuracy(judge: Judge, num: int = 400, **of: float) -> float:
    judge.fit(*task(num, 1, **of), seed=1)
    pairs, labels = task(300, 2, **of)
    return float(((scores_by(judge, pairs) > 0) == labels).mean())


@pytest.mark.parametrize("name", ["svm-unigram", "reply-only"])
def test_a_linear_judge_finds_the_word_that_tells(name: str) -> None:
    judge = made(name)
    assert accuracy(judge, tell=1.0) > 0.95
    assert isinstance(judge, Featured)
    features = judge.features(1)
    assert [word for word, weight in features] == ["no", "indeed"]
    assert features[0][1] < 0 < features[1][1]


@pytest.mark.parametrize("name", ["hierarchical", "concatenated", "svm-neural"])
def test_a_network_finds_it_too(name: str) -> None:
    assert accuracy(made(name, embedding=32, hidden=32), num=600, tell=1.0) > 0.8


def test_a_network_is_the_same_from_the_same_seed() -> None:
    judge, again = (made("concatenated", embedding=4, hidden=4) for _ in range(2))
    pairs, _ = task(20, 3)
    for each in (judge, again):
        each.fit(*task(60), seed=1)
    assert scores_by(judge, pairs).tolist() == scores_by(again, pairs).tolist()


def test_a_combined_judge_reads_the_likelihoods_of_models_that_are_given(tmp_path: Path) -> None:
    forward = save_responder(tmp_path / "forward", PairVocabulary.build([WORDS], None))
    model = Seq2Seq(PairVocabulary.build([WORDS], None), Seq2SeqSizes(embed=4, hidden=4).exchanged)
    save_model(model, tmp_path / "backward", {})
    pairs, labels = task(60)
    scores = []
    for models in ({}, {"forward": forward}, {"forward": forward, "backward": str(tmp_path / "backward")}):
        judge = made("svm-neural", embedding=4, hidden=4, **models)
        judge.fit(pairs, labels, 1)
        scores.append(scores_by(judge, pairs).tolist())
    assert scores[0] != scores[1] != scores[2]
    with pytest.raises(CheckpointError, match="no backward model"):
        made("svm-neural", backward=forward)


def test_source_and_reply_are_told_apart_when_they_shall_be() -> None:
    rng = np.random.default_rng(1)
    labels = np.arange(200) % 2 == 0
    both = [("yes", "no") if label else ("no", "yes") for label in labels]
    pairs = [RepliedPair(((said, *rng.choice(WORDS, 2)),), (reply,)) for said, reply in both]
    scores = {}
    for separate in (False, True):
        judge = made("svm-unigram", separate=separate)
        judge.fit(pairs[:150], labels[:150], 1)
        scores[separate] = ((scores_by(judge, pairs[150:]) > 0) == labels[150:]).mean()
    assert scores[True] == 1
    assert scores[False] < 0.75


@pytest.mark.parametrize(
    ("name", "human", "machine"),
    [
        ("length", (("a",), "b c"), (("a",), "b")),
        ("first-word", (("a",), "x c"), (("a",), "y c")),
        ("copy", (("a", "b"), "a b"), (("a", "b"), "c d")),
    ],
)
def test_a_control_knows_one_property(
    name: str, human: tuple[tuple[str, ...], str], machine: tuple[tuple[str, ...], str]
) -> None:
    first, second = (RepliedPair((source,), tuple(reply.split())) for source, reply in (human, machine))
    judge = made(name)
    judge.fit([first, second] * 3, np.array([True, False] * 3), 1)
    scores = scores_by(judge, [first, second, RepliedPair((("z",),), ("q",) * 50)])
    assert scores[0] == -scores[1] == pytest.approx(np.log(4))
    assert name == "copy" or scores[2] == 0


def test_the_constant_judge_says_nothing() -> None:
    judge = made("constant")
    judge.fit(*task(40), seed=1)
    assert scores_by(judge, task(10, 2)[0]).tolist() == [0.0] * 10


def test_every_control_is_a_judge() -> None:
    assert set(CONTROLS) <= set(judges)


@pytest.mark.parametrize(
    ("scores", "labels", "threshold", "sign"),
    [
        ([1, 2, 3, 4], [0, 0, 1, 1], 2.5, 1),
        ([1, 2, 3, 4], [1, 1, 1, 0], 3.5, -1),
        ([1, 1, 1, 2], [0, 0, 1, 1], 1.5, 1),
        ([5, 5], [0, 1], 4.5, 1),
    ],
)
def test_a_threshold_errs_least(scores: list[float], labels: list[int], threshold: float, sign: float) -> None:
    assert best_threshold(np.array(scores, dtype=float), np.array(labels, dtype=bool)) == (threshold, sign)


def test_a_classifier_is_asked_about_a_pair_once_however_many_judges_share_it() -> None:
    asked: list[RepliedPair] = []

    def numbers(pairs: list[RepliedPair]) -> np.ndarray:
        asked.extend(pairs)
        return np.array([float("indeed" in pair.reply) for pair in pairs])

    shared = Remembered(numbers)  # type: ignore[arg-type]
    for _ in range(2):
        assert accuracy(ThresholdJudge(shared), tell=1.0) == 1
    assert len(asked) == len(set(asked)) == 700


def test_a_classifier_of_hugging_face_judges_by_its_scores_and_a_fitted_threshold(tmp_path: Path) -> None:
    folder = cross_encoder(tmp_path / "model", labels=2)
    pairs = [RepliedPair((("hello",),), tuple(words)) for words in (["my"], ["screen", "is"], ["black"], ["yes", "it", "is"])]
    ranker = load_ranker(f"hf:{folder}")
    told = np.array([ranker.score(pair.context, [pair.reply])[0] for pair in pairs])
    labels = told > np.median(told)
    judge = made(f"hf:{folder}")
    judge.fit(pairs, labels, 1)
    scores = scores_by(judge, pairs)
    assert ((scores > 0) == labels).all()
    assert np.diff(scores) == pytest.approx(np.diff(told))


OWN = """
class Shouting:
    def fit(self, pairs, labels, seed):
        pass

    def score(self, pairs):
        return [1.0 if len(pair.reply) > 3 else -1.0 for pair in pairs]


class Short(Shouting):
    def score(self, pairs):
        return [1.0]


class Lost(Shouting):
    def score(self, pairs):
        return [float("nan")] * len(pairs)


class NoJudge:
    pass
"""


def test_a_judge_of_ones_own_is_found_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    pairs, _ = task(5)
    assert scores_by(made(f"{tmp_path}/mine.py:Shouting"), pairs).tolist() == [1.0] * 5
    for name in ("Short", "Lost"):
        with pytest.raises(JudgeError, match="one score for each pair"):
            scores_by(made(f"{tmp_path}/mine.py:{name}"), pairs)
    with pytest.raises(ConfigError, match="makes no judge"):
        made(f"{tmp_path}/mine.py:NoJudge")
    with pytest.raises(ConfigError, match="did you mean 'hierarchical'"):
        made("hierarchial")


def zipf_task(num: int) -> tuple[list[RepliedPair], np.ndarray]:
    """Pairs of two turns and 5 to 20 words, of 25,000 that are as frequent as words are; "indeed" tells a third of one side."""
    rng = np.random.default_rng(1)
    frequencies = 1 / np.arange(1, 25_001)
    words = np.array([f"w{number}" for number in range(25_000)])
    said = words[rng.choice(len(words), (num, 40), p=frequencies / frequencies.sum())].tolist()
    labels, lengths = rng.permutation(np.arange(num) % 2 == 0), rng.integers(5, 21, num).tolist()
    tells = labels & (rng.random(num) < 0.3)
    pairs = [
        RepliedPair((tuple(own[:10]), tuple(own[10:20])), (*own[20 : 19 + length], "indeed" if tell else "no"))
        for own, length, tell in zip(said, lengths, tells.tolist(), strict=True)
    ]
    return pairs, labels


@pytest.mark.slow
def test_ten_thousand_pairs_of_either_side_are_judged_in_ten_seconds_of_a_core() -> None:
    """Half of what is asked for in half of the time: it grows with the number of pairs (10 s for the whole, when measured)."""
    accuracy(made("svm-unigram"), num=50)
    pairs, labels = zipf_task(20_000)
    assert len({word for pair in pairs for said in (*pair.context, pair.reply) for word in said}) > 20_000
    folds, began = np.arange(len(pairs)) % 5, time.process_time()
    for fold in range(5):
        judge = made("svm-unigram")
        seen, unseen = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        judge.fit([pairs[place] for place in seen], labels[seen], 1)
        scores_by(judge, [pairs[place] for place in unseen])
    assert time.process_time() - began < 10
