"""The embedded corpus of pairs: the same at every call, of the promised size, and worth learning."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from parley.envs.corpora.pairs.compiled import PairCorpus, load_pairs
from parley.envs.corpora.pairs.helpdesk.dialogues import TOPICS, dialogue, helpdesk_pairs
from parley.envs.corpora.pairs.vocabulary import UNK_ID
from tests.envs.corpora.pairs.made_up import pairs_of


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PairCorpus:
    return load_pairs("helpdesk", cache=tmp_path_factory.mktemp("cache"))


def test_it_has_some_six_thousand_pairs_of_a_few_hundred_words(corpus: PairCorpus) -> None:
    assert 5_000 < len(corpus.splits["train"]) < 6_500
    assert all(len(corpus.splits[name]) > 200 for name in ("val", "test"))
    assert 500 < len(corpus.vocabulary) < 700
    assert not (corpus.splits["train"].utterances.values == UNK_ID).any()
    assert all((split.utterances.values == UNK_ID).mean() < 0.002 for split in corpus.splits.values())


def test_it_is_the_same_at_every_call_and_a_larger_one_begins_with_it(tmp_path: Path, corpus: PairCorpus) -> None:
    again = load_pairs("helpdesk", cache=tmp_path)
    assert again.folder.name == corpus.folder.name
    assert (again.folder / "manifest.json").read_text() == (corpus.folder / "manifest.json").read_text()
    small, large = (pairs_of(helpdesk_pairs(num).splits["train"]) for num in (10, 30))
    assert large[: len(small)] == small
    assert dialogue(3, seed=1) != dialogue(3, seed=0)


def test_no_pair_of_a_held_out_split_stands_in_train(corpus: PairCorpus) -> None:
    text = helpdesk_pairs()
    train = set(pairs_of(text.splits["train"]))
    for name in ("val", "test"):
        held_out = pairs_of(text.splits[name])
        assert held_out
        assert train.isdisjoint(held_out)


def test_the_reply_depends_on_the_source_and_replies_are_many(corpus: PairCorpus) -> None:
    pairs = pairs_of(helpdesk_pairs().splits["train"])
    replies: dict[str, list[str]] = defaultdict(list)
    for source, reply in pairs:
        replies[source].append(reply)
    # The best guess without the source is right once in a hundred cases, with it far more often.
    blind = max(sum(reply == each for _, reply in pairs) for each in {reply for _, reply in pairs[:500]}) / len(pairs)
    informed = sum(max(map(given.count, set(given))) for given in replies.values()) / len(pairs)
    assert informed > 10 * blind
    best = {max(set(given), key=given.count) for given in replies.values()}
    assert len(best) > 500


def test_every_phrase_can_be_filled() -> None:
    assert len(TOPICS) >= 10
    assert not any(mark in utterance for i in range(300) for utterance in dialogue(i) for mark in "[]{}|")
