from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from parley.engine.core.ray.worker import Shard
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Result, Silent
from parley.engine.triggers.verbs.enumeration import SEARCH_ENUMERATE, BranchWorker, EnumerationConfig, EnumerationTask, Speller
from parley.envs.core.errors import CheckpointError, ConfigError, ParleyError, RunError
from parley.envs.corpora.pairs.vocabulary import EOS_ID, SPECIALS, PairVocabulary
from parley.policies.seq2seq.decoding import greedy
from parley.policies.seq2seq.model import Seq2Seq
from parley.policies.seq2seq.scoring import load_seq2seq, save_model
from parley.policies.seq2seq.settings import Seq2SeqSizes

LETTERS = "abc"


def made(*words: str) -> Seq2Seq:
    sizes = Seq2SeqSizes(embed=6, hidden=8, attention="none", max_source=5, max_reply=6)
    model = Seq2Seq(PairVocabulary((*SPECIALS, *words)), sizes)
    model.initialise(torch.Generator().manual_seed(4))
    for name, parameter in model.named_parameters():
        parameter.data.mul_(1 if "bias" in name else 5 if "embedding" in name else 9)
    return model.eval()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "checkpoint"
    save_model(made(*"abcdef"), folder, {"test_nll": 1.0})
    return folder


@pytest.fixture(scope="module")
def replies(model: Path) -> dict[str, str]:
    """What the model says to every input, decoded one by one, special tokens shown as a mark."""
    found = load_seq2seq(model)
    every = ["".join(letters) for length in range(1, 5) for letters in product(LETTERS, repeat=length)]
    said = [found.vocabulary.decode(greedy(found, [found.vocabulary.encode(words)])[0]) for words in every]
    mark = "\N{REPLACEMENT CHARACTER}"
    return {
        words: "".join(mark if word in SPECIALS else word for word in reply) for words, reply in zip(every, said, strict=True)
    }


@pytest.fixture(scope="module")
def words(replies: dict[str, str]) -> set[str]:
    """Two words that the model says, and one that it does not."""
    return {*sorted(reply for reply in set(replies.values()) if reply.isalpha() and len(reply) > 1)[:2], "fedcb"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, words: set[str]) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "spelled.tsv"
    path.write_text("".join(f"a b\t{' '.join(word)}\n" for word in sorted(words) * 40))
    return path


def asked(model: Path, corpus: Path, **changes: Any) -> EnumerationConfig:
    config = EnumerationConfig(model=str(model), corpus=str(corpus), letters=LETTERS, max_length=4, random_strings=20)
    return replace(config, **{"shard_size": 4, **changes})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, model: Path, corpus: Path) -> Result:
    return SEARCH_ENUMERATE.run(asked(model, corpus), tmp_path_factory.mktemp("runs") / "run", Silent())


def rows(path: Path) -> list[dict[str, Any]]:
    return sorted(RunFolder.load(path).read_rows().to_pylist(), key=lambda row: row["item_key"])


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_CACHE", str(tmp_path / "cache"))


def test_every_input_is_counted_and_every_find_names_an_input_that_says_it(
    finished: Result, replies: dict[str, str], words: set[str]
) -> None:
    said = set(replies.values())
    metrics = finished.metrics
    assert metrics["inputs"].value == len(replies)
    assert metrics["outside"].value == sum(reply not in words for reply in replies.values()) / len(replies)
    assert metrics["said.norm"].value == len(words & said) / len(words) == 2 / 3
    assert metrics["contained.norm"].value == sum(any(word in reply for reply in said) for word in words) / len(words)
    finds = [find for row in rows(finished.run) for find in row["finds"]]
    assert {"norm", "random"} <= {find["list"] for find in finds}
    for find in finds:
        reply = replies[find["input"]]
        assert find["string"] == reply if find["whole"] else find["string"] in reply
    strays = [stray for row in rows(finished.run) for stray in row["strays"]]
    assert strays
    for stray in strays:
        assert replies[stray["input"]] == stray["reply"] not in words


def test_a_result_shows_the_published_figures_of_the_models_kind(finished: Result) -> None:
    (table,) = finished.tables.values()
    assert table.rows[0][3] == "22.30"
    assert finished.metrics["test_ppl"].value == pytest.approx(np.e)
    assert finished.metrics["inputs_per_s"].value > 0


def test_branches_are_rows(finished: Result) -> None:
    keys = [row["item_key"] for row in rows(finished.run)]
    assert keys == sorted(["".join(letters) for length in (1, 2) for letters in product(LETTERS, repeat=length)])
    assert [row["inputs"] for row in rows(finished.run)] == [1, 13, 13, 13] * 3


def test_a_finished_run_is_not_made_again(finished: Result, model: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BranchWorker, "run", lambda *_: pytest.fail("a branch is worked off again"))
    again = SEARCH_ENUMERATE.run(asked(model, corpus, workers=3), finished.run, Silent())
    assert again.metrics == finished.metrics
    assert again.tables == finished.tables
    with pytest.raises(RunError, match="max_length: 4 -> 2"):
        SEARCH_ENUMERATE.run(asked(model, corpus, max_length=2), finished.run, Silent())


def test_what_is_saved_is_not_done_again(
    tmp_path: Path, finished: Result, model: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, worked = BranchWorker.run, list[str]()

    def interrupted(worker: BranchWorker, shard: Shard[str]) -> list[dict[str, Any]]:
        if shard.name == "00002":
            raise KeyboardInterrupt
        worked.extend(shard.keys)
        return work(worker, shard)

    with monkeypatch.context() as patch:
        patch.setattr(BranchWorker, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            SEARCH_ENUMERATE.run(asked(model, corpus), tmp_path / "run", Silent())
    assert len(worked) == 8

    def watched(worker: BranchWorker, shard: Shard[str]) -> list[dict[str, Any]]:
        worked.extend(shard.keys)
        return work(worker, shard)

    monkeypatch.setattr(BranchWorker, "run", watched)
    SEARCH_ENUMERATE.run(asked(model, corpus), tmp_path / "run", Silent())
    assert len(worked) == len(set(worked)) == 12
    assert rows(tmp_path / "run") == rows(finished.run)
    (event,) = [event for event in RunFolder.load(tmp_path / "run").events() if event["kind"] == EnumerationTask.event]
    assert event["inputs"] == sum(row["inputs"] for row in rows(tmp_path / "run") if row["item_key"] in worked[8:])


def test_branches_that_failed_are_not_among_the_inputs_that_were_tried(
    tmp_path: Path, finished: Result, model: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, lost = BranchWorker.run, {"00002"}

    def failing(worker: BranchWorker, shard: Shard[str]) -> list[dict[str, Any]]:
        if shard.name in lost:
            raise ValueError("lost")
        return run(worker, shard)

    monkeypatch.setattr(BranchWorker, "run", failing)
    result = SEARCH_ENUMERATE.run(asked(model, corpus), tmp_path / "run", Silent())
    tried = sum(row["inputs"] for row in rows(result.run) if row["status"] == "ok")
    summary, whole = (RunFolder.load(of.run).summary() or {} for of in (result, finished))
    assert summary["description"].startswith(f"{tried} of 120 inputs of 1 to 4 of 3 letters")
    assert whole["description"].startswith("All 120 inputs of 1 to 4 of 3 letters")
    lost |= {"00000", "00001"}
    none = SEARCH_ENUMERATE.run(asked(model, corpus), tmp_path / "none", Silent())
    assert (none.metrics["inputs"].n, none.metrics["outside"].n) == (0, 0)


@pytest.mark.usefixtures("workers_here")
def test_rows_are_equal_for_no_workers_and_for_two(tmp_path: Path, finished: Result, model: Path, corpus: Path) -> None:
    SEARCH_ENUMERATE.run(asked(model, corpus, workers=2), tmp_path / "run", Silent())
    assert rows(tmp_path / "run") == rows(finished.run)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"letters": "abz?"}, ConfigError, r"does not know some letters(.|\n)*z\?(.|\n)*abcdef"),
        ({"max_length": 5}, ConfigError, r"cuts inputs of that length(.|\n)*at most 4"),
        ({"model": "runs/nothing"}, CheckpointError, "runs/nothing"),
    ],
)
def test_a_mistake_is_named_and_no_run_is_made(
    tmp_path: Path, model: Path, corpus: Path, changes: dict[str, Any], error: type[ParleyError], message: str
) -> None:
    with pytest.raises(error, match=message):
        SEARCH_ENUMERATE.run(replace(asked(model, corpus), **changes), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_a_model_of_words_is_refused(tmp_path: Path, corpus: Path) -> None:
    save_model(made("a", "b", "c", "word"), tmp_path / "model", {"test_nll": 1.0})
    with pytest.raises(ConfigError, match=r"a model of characters(.|\n)*'word'"):
        SEARCH_ENUMERATE.run(asked(tmp_path / "model", corpus), tmp_path / "run", Silent())


@pytest.mark.parametrize("letters", ["", "aa"])
def test_letters_stand_once(letters: str) -> None:
    with pytest.raises(ConfigError, match="letters"):
        EnumerationConfig(letters=letters)


def test_strings_end_with_the_end_of_a_sentence_and_show_what_is_no_character() -> None:
    spell = Speller(PairVocabulary((*SPECIALS, *"ab")))
    ids = np.array([[5, 6, EOS_ID, EOS_ID], [EOS_ID] * 4, [6, 0, 5, 5], [5, 5, 5, 6]])
    assert spell(ids).tolist() == ["ab", "", "b\N{REPLACEMENT CHARACTER}aa", "aaab"]


def test_presets_say_how_many_inputs_they_try() -> None:
    for name, num in {"he2018": 12_356_630, "demo": 18_278}.items():
        preset = SEARCH_ENUMERATE.presets[name]
        config = preset()
        assert f"{num:,}" in str(preset.__doc__)
        assert sum(len(config.letters) ** length for length in range(1, config.max_length + 1)) == num


def test_this_process_computes_with_one_thread(
    tmp_path: Path, model: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, found, before = BranchWorker.run, list[int](), torch.get_num_threads()

    def watched(worker: BranchWorker, shard: Shard[str]) -> list[dict[str, Any]]:
        found.append(torch.get_num_threads())
        return work(worker, shard)

    monkeypatch.setattr(BranchWorker, "run", watched)
    torch.set_num_threads(4)
    try:
        SEARCH_ENUMERATE.run(asked(model, corpus, max_length=1), tmp_path / "run", Silent())
        assert torch.get_num_threads() == 4, "as it was found"
    finally:
        torch.set_num_threads(before)
    assert set(found) == {1}
