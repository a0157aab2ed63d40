"""Lists, thresholds and judges of Hugging Face models, against what the models say by themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from parley.engine.core.verbs.job import Silent
from parley.engine.triggers.methods.settings import SearchSettings
from parley.engine.triggers.verbs.config import HuggingFaceSettings, TriggerConfig
from parley.engine.triggers.verbs.models import LONGEST_NORMAL, NUM_PAIRS, open_models, test_texts
from parley.engine.triggers.verbs.search import SEARCH
from parley.engine.triggers.verbs.table import SEARCH_TABLE, SearchTableConfig
from tests.engine.core.verbs.made_up import rows
from tests.engine.triggers.verbs.searches import search

pytest.importorskip("transformers", reason="the extra hugging-face is not installed")

from parley.envs.corpora.pairs.compiled import load_pairs
from parley.envs.corpora.pairs.turns import detokenise
from parley.policies.hugging_face.judges import HuggingFaceInputModel, frequent_words, reply_nats
from parley.policies.hugging_face.models import load_hugging_face
from tests.policies.byte_pairs import END_ID, TURN_ID, byte_model

EFFORT = SearchSettings(candidates=6, max_sweeps=1, restarts=1)
ASKED = HuggingFaceSettings(length=3)
test_texts.__test__ = False  # type: ignore[attr-defined]  # it is no test


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("judged")
    for part in byte_model(1, ends=1.5):
        part.save_pretrained(path)
    return path


def asked(folder: Path, corpus: Path, targets: str, **changes: Any) -> TriggerConfig:
    settings: dict[str, Any] = {"hugging_face": ASKED, "search": EFFORT, "limit": 3, "corpus": str(corpus), **changes}
    return search(f"hf:{folder}", targets, **settings)


def asked_in_chat(tokenizer: Any, text: str) -> list[int]:
    messages = [{"role": "user", "content": text}]
    ids: list[int] = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
    return ids


def test_thresholds_are_the_models_own_loss_on_test_pairs(folder: Path, corpus: Path) -> None:
    config = asked(folder, corpus, "mal", lm=f"hf:{folder}")
    victim = load_hugging_face(folder, 3)
    replies: list[float] = []
    sources: list[float] = []
    for source, reply in list(test_texts(config))[:NUM_PAIRS]:
        before = asked_in_chat(victim.tokenizer, source)
        said = [*victim.tokenizer(reply).input_ids, TURN_ID]
        with torch.no_grad():
            log_TV = victim.model(input_ids=torch.tensor([[*before, *said]])).logits[0, len(before) - 1 : -1].log_softmax(-1)
            own = [END_ID, *victim.tokenizer(source).input_ids, END_ID]
            log_NV = victim.model(input_ids=torch.tensor([own])).logits[0, :-1].log_softmax(-1)
        replies += log_TV.gather(1, torch.tensor(said)[:, None])[:, 0].tolist()
        sources += log_NV.gather(1, torch.tensor(own[1:])[:, None])[:, 0].tolist()
    words = load_pairs(config.corpus, config.data_root, every_word=True)
    filed = [
        detokenise(words.vocabulary.decode(words.splits["test"].utterances[int(pair[1])]))
        for pair in words.splits["test"].pairs
    ]
    drawn = [reply for _, reply in test_texts(config)]
    assert drawn != filed, "a corpus may be sorted"
    assert sorted(drawn) == sorted(filed)
    found = open_models(config).thresholds
    assert (found.t_out, found.t_in) == (pytest.approx(np.mean(replies), abs=2e-3), pytest.approx(np.mean(sources), abs=2e-3))


def test_normal_targets_are_what_the_model_generates(tmp_path: Path, folder: Path, corpus: Path) -> None:
    run = asked(folder, corpus, "normal", hit="o-greedy", limit=2)
    victim = load_hugging_face(folder, 3)
    said = []
    for source, _ in test_texts(run):
        read = asked_in_chat(victim.tokenizer, source)
        found = victim.model.generate(torch.tensor([read]), do_sample=False, max_new_tokens=LONGEST_NORMAL)
        ids = found[0, len(read) :].tolist()
        if ids[-1] in (END_ID, TURN_ID) and ids[:-1]:
            said.append(victim.tokenizer.decode(ids[:-1]))
    SEARCH.run(run, tmp_path / "run", Silent())
    targets = [row["target"] for row in rows(tmp_path / "run")]
    assert len(targets) == 2
    assert set(targets) <= {text.strip() for text in said}


def test_sampled_targets_are_drawn_of_tokens_above_t_out(tmp_path: Path, folder: Path) -> None:
    corpus = tmp_path / "many.tsv"  # of which many end, whatever is drawn
    corpus.write_text("".join(f"hello number {number}\tgood bye\n" for number in range(800)))
    victim, lists = load_hugging_face(folder, 3), {}
    for name, seed in {"one": 1, "again": 1, "two": 2}.items():
        config = asked(folder, corpus, "normal-sampled", hit="o-sample-min-k1", limit=2, seed=seed)
        SEARCH.run(config, tmp_path / name, Silent())
        lists[name] = [row["target"] for row in rows(tmp_path / name)]
    assert len(lists["one"]) == 2
    assert lists["one"] == lists["again"] != lists["two"], "the seed draws"
    t_out = open_models(config).thresholds.t_out
    assert t_out is not None
    for said in lists["one"]:
        least = [max(reply_nats(victim, source, said)) for source, _ in test_texts(config)]
        assert min(least) < -t_out, "to the source that it replies to, every token is likelier than a usual one"
    assert lists["one"] != [row["target"] for row in _greedy(tmp_path, folder, corpus)]


def _greedy(tmp_path: Path, folder: Path, corpus: Path) -> list[Any]:
    SEARCH.run(asked(folder, corpus, "normal", hit="o-greedy", limit=2), tmp_path / "greedy", Silent())
    return rows(tmp_path / "greedy")


def test_a_judge_reads_inputs_as_texts_and_draws_them(folder: Path) -> None:
    victim = load_hugging_face(folder, 3)
    judge = HuggingFaceInputModel(victim.model, victim.tokenizer)
    drawn = judge.draw([1, 1, 2, 3, 4], 6, victim.searchable_V)
    assert drawn.shape == (5, 6)
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert bool(victim.searchable_V[drawn].all())
    uniform = victim.searchable_V.nonzero()[:, 0][torch.arange(30).view(5, 6)]

    def nats(words_BN: torch.Tensor) -> float:
        log_BNV = judge.word_logits(judge.embedding_VE[words_BN]).log_softmax(-1)[:, :-1]
        return -float(log_BNV.gather(-1, words_BN[..., None]).mean())

    assert nats(drawn) < nats(uniform)
    words = frequent_words(victim.tokenizer, len(victim.embedding_VE), 5)
    assert words == ["he", "the", "prin", "hello", "printer"], "tokens that go on with a word are none"


def test_every_list_of_a_table_is_searched(tmp_path: Path, folder: Path, corpus: Path) -> None:
    config = SearchTableConfig(
        model=f"hf:{folder}",
        lm="own",
        lists="mal,mal-io,random",
        limit=2,
        corpus=str(corpus),
        search=EFFORT,
        hugging_face=ASKED,
        published="ubuntu",
    )
    result = SEARCH_TABLE.run(config, tmp_path / "table", Silent())
    label = folder.name
    for listed in ("mal", "mal-io", "random"):
        assert result.metrics[f"searches.{label}-{listed}.targets"].value == 2
        assert f"searches.{label}-{listed}.verified" in result.metrics
    shown = result.tables["All searches"]
    assert {"verified", "refused"} <= {*shown.columns}
    assert not {"drawn", "no verdict"} & {*shown.columns}, "columns that no search has are left out"
    assert not any("has not measured" in table.note for table in result.tables.values())
    assert not any("published" in column for table in result.tables.values() for column in table.columns), (
        "another kind of model"
    )
    judged = rows(tmp_path / "table" / f"{label}-mal-io")
    assert all(row["input_log_probability"] < 0 for row in judged)
    assert f"{label}.mal-io-io-sample-min-k1.hits" in result.metrics
