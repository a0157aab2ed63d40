"""Defended targets in matches, attacks and the table of attacks: whom they meet, what rows say, and what a page shows."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parley.engine.core.page.page import collect_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import TABLE_FILE, Silent
from parley.engine.negotiation.attacks.settings import DefenceConfig, SearchConfig
from parley.engine.negotiation.metrics.dialogues import defence_metrics
from parley.engine.negotiation.page import dialogue
from parley.engine.negotiation.verbs.defended import chosen_limit, perplexity_filter, sentence_perplexities
from parley.engine.negotiation.verbs.match import SELFPLAY, MatchConfig
from parley.engine.negotiation.verbs.table import ATTACK_TABLE, TableConfig
from parley.envs.core.errors import ConfigError
from parley.envs.negotiation.corpora.catalogue import load_corpus
from tests.engine.core.page.pages import tables_on
from tests.engine.core.verbs.made_up import CORPUS, Notes, corpus_vocabulary, rows
from tests.engine.negotiation.verbs.whitebox import asked, attack, save_hasty, save_speaker

SEARCH = SearchConfig(proposals="random", candidates=4, max_replacements=1, replies=2, screening_replies=1, finalists=2)


def test_the_limit_stops_the_stated_share_of_plain_talk(trainee: Path, root: Path) -> None:
    found = chosen_limit(str(trainee), CORPUS, root, 0.2)
    train = load_corpus(CORPUS, root).splits["train"]
    heard = sentence_perplexities(perplexity_filter(str(trainee), 1.0, corpus_vocabulary(root)), train)
    assert len(heard) == sum(
        int(((train.tokens(i)[:-1] == 5) & (train.tokens(i)[1:] != 2)).sum()) for i in range(len(train))
    ), "every sentence of the other side, ends of the talk left out"
    assert found.stopped["training"] == pytest.approx(0.2, abs=0.03)
    assert found.stopped["training"] == (heard > found.max_perplexity).mean()
    assert chosen_limit(str(trainee), CORPUS, root, 0.5).max_perplexity < found.max_perplexity
    assert str(found).startswith(f"the filter stops sentences of perplexity above {found.max_perplexity:g}: ")


def test_a_table_has_each_attack_against_the_defended_target(trainee: Path, root: Path, tmp_path: Path) -> None:
    config = TableConfig(
        target=str(trainee), rows="none,reactive", defences="filter,own-demand", false_alarms=0.3, search=SEARCH, dialogues=4,
        corpus=CORPUS, data_root=root,
    )  # fmt: skip
    notes = Notes()
    result = ATTACK_TABLE.run(config, tmp_path, notes)
    limit = chosen_limit(str(trainee), CORPUS, root, 0.3)
    assert str(limit) in notes.said
    by_target, shown = result.tables["By target"], result.tables["All attacks"]
    assert by_target.columns == ("attack", "target", "perplexity filter", "own demand", "n")
    assert [row[0] for row in shown.rows] == [
        "plain play, both choose", "plain play, both choose, perplexity filter", "plain play, both choose, own demand",
        "no attack", "no attack, perplexity filter", "no attack, own demand",
        "reactive", "reactive, perplexity filter", "reactive, filter known to the attack", "reactive, own demand",
    ]  # fmt: skip
    text = (tmp_path / TABLE_FILE).read_text()
    assert str(limit) in text
    assert "a search respects the filter's limit" in text
    names = ("reactive", "reactive+filter", "reactive+filter-known")
    configs = {name: RunFolder.load(tmp_path / name).config for name in names}
    assert [configs[name]["search"]["max_perplexity"] for name in configs] == [0, 0, limit.max_perplexity]
    assert [configs[name]["defence"]["max_perplexity"] for name in configs] == [0, limit.max_perplexity, limit.max_perplexity]
    assert "attacks.reactive.forced_advantage" in result.metrics
    assert "attacks.reactive+filter.forced_advantage" not in result.metrics, "nobody forces a defended target"
    assert (
        result.metrics["attacks.none+filter.stopped_share"].value == 0 or result.metrics["attacks.none+filter.stopped_share"].n
    )
    assert set(result.metrics) <= set(result.legend)
    pages = dict(tables_on(collect_run(tmp_path), "negotiation"))
    assert list(pages) == ["By target", "All attacks"]
    assert all(page.to_markdown() in text for page in pages.values())
    again = Notes()
    more = ATTACK_TABLE.run(dataclasses.replace(config, defences=""), tmp_path, again)
    assert more.tables == result.tables, "what was measured stays"
    with pytest.raises(ConfigError, match=r"'filtre', did you mean 'filter'\?"):
        dataclasses.replace(config, defences="filtre")


def test_a_search_that_minds_the_filter_says_nothing_that_is_stopped(tmp_path: Path) -> None:
    who = save_hasty(tmp_path / "target"), save_speaker(tmp_path / "speaker")
    limit, settings = 60.0, {"proposals": "exhaustive", "dialogues": 12}
    defence = DefenceConfig(max_perplexity=limit)
    blind = attack("reactive", asked("reactive", *who, **settings, defence=defence), tmp_path / "blind")
    minds = attack("reactive", asked("reactive", *who, **settings, defence=defence, max_perplexity=limit), tmp_path / "minds")

    def stopped(found: list[dict[str, Any]]) -> list[bool]:
        return [attempt["turn"] in row["stopped"] for row in found for attempt in row["attempts"] if attempt["replaced"]]

    assert any(stopped(blind)), "an attack that does not know the filter runs into it"
    assert set(stopped(minds)) == {False}
    assert sum(row["kept_out"] for row in minds) > 0
    assert {row["kept_out"] for row in blind} == {None}
    assert all(row["forced_points_adversary"] == row["points_adversary"] for row in blind)
    found = defence_metrics(blind)
    said = sum(turn["side"] == 0 and turn["words"] != "<selection>" for row in blind for turn in row["turns"])
    assert found["stopped_share"].value == sum(len(row["stopped"]) for row in blind) / said
    assert "kept_out" not in found
    assert defence_metrics(minds)["kept_out"].value > 0
    row = next(row for row in blind if row["stopped"])
    turns = str(dialogue(row).body).split("<li")[1:]
    assert [place for place, turn in enumerate(turns) if "the filter stopped it" in turn] == row["stopped"]


WORDY = """
from parley.policies.chat.model import ReplyScore
from tests.engine.core.page.pages import tables_on
class Wordy:
    def reply(self, messages): return "hello"
    def score(self, chats, replies):
        return [ReplyScore(-float(len(reply)), len(reply.split())) for reply in replies]
class Alone(Wordy):
    def score(self, chats, replies):
        assert {tuple(message.content for message in chat) for chat in chats} == {("You speak first.",)}
        return super().score(chats, replies)
"""
"""Perplexed by long words."""


def test_a_chat_model_judges_sentences_as_texts_behind_one_beginning(tmp_path: Path, trainee: Path, root: Path) -> None:
    (tmp_path / "wordy.py").write_text(WORDY)
    judge, words = f"{tmp_path}/wordy.py:Alone", corpus_vocabulary(root)
    found = chosen_limit(judge, CORPUS, root, 0.2)
    train = load_corpus(CORPUS, root).splits["train"]
    heard = sentence_perplexities(perplexity_filter(judge, 1.0, words), train)
    assert len(heard) == len(sentence_perplexities(perplexity_filter(str(trainee), 1.0, words), train))
    assert found.stopped["training"] == (heard > found.max_perplexity).mean() <= 0.2
    said = words.encode(["i", "want", "book", "<eos>"])
    text = " ".join(words.words[word] for word in said[:-1])
    (row,) = perplexity_filter(judge, 1.0, words).perplexities(
        np.zeros((1, 6), dtype=np.int64), np.array([[0, *said]]), np.array([1]), np.array([5])
    )
    assert row == pytest.approx(np.exp(len(text) / 3))
    with pytest.raises(ConfigError, match="a server does not"):
        chosen_limit("openai:http://127.0.0.1:9/v1#m", CORPUS, root, 0.2)


def test_a_search_minds_a_chat_judge_of_whole_sentences(tmp_path: Path) -> None:
    (tmp_path / "wordy.py").write_text(WORDY)
    who = save_hasty(tmp_path / "target"), save_speaker(tmp_path / "speaker")
    limit = float(np.exp(4.0))
    how = {"proposals": "exhaustive", "dialogues": 12, "defence": DefenceConfig(max_perplexity=limit), "max_perplexity": limit}
    made = dataclasses.replace(asked("reactive", *who, **how), judge=f"{tmp_path}/wordy.py:Wordy")
    minds = attack("reactive", made, tmp_path / "minds")
    assert sum(row["kept_out"] for row in minds) > 0
    assert not any(at["turn"] in row["stopped"] for row in minds for at in row["attempts"] if at["replaced"])
    assert any(at["replaced"] for row in minds for at in row["attempts"])


def test_rows_do_not_depend_on_who_is_played_beside(tmp_path: Path) -> None:
    who = save_hasty(tmp_path / "target"), save_speaker(tmp_path / "speaker")
    match = MatchConfig(
        adversary=str(who[1]), target=str(who[0]), dialogues=12, defence=DefenceConfig(max_perplexity=60.0, own_demand=True)
    )
    found = []
    for size in (4, 12):
        SELFPLAY.run(dataclasses.replace(match, shard_size=size), tmp_path / str(size), Silent())
        found.append([{**row, "nll_adversary": 0, "nll_target": 0} for row in rows(tmp_path / str(size))])
    assert found[0] == found[1]
    assert any(row["stopped"] for row in found[0])


def test_a_filter_needs_somebody_who_judges() -> None:
    match = MatchConfig(adversary="scripted", target="scripted-tough", dialogues=2, defence=DefenceConfig(max_perplexity=9.0))
    with pytest.raises(ConfigError, match=r"needs a judge(.|\n)*--judge"):
        SELFPLAY.run(match, Path("nowhere"), Silent())
    assert not Path("nowhere").exists()


def test_a_scripted_target_refuses_too(tmp_path: Path) -> None:
    match = MatchConfig(adversary="scripted-tough", target="scripted", dialogues=40, defence=DefenceConfig(own_demand=True))
    result = SELFPLAY.run(match, tmp_path, Silent())
    assert [row["stopped"] for row in rows(tmp_path)] == [None] * 40
    assert result.metrics["refused_share"].n == 40
    for row in rows(tmp_path):
        for turn in row["refused"]:
            assert row["turns"][turn]["side"] == 1
            assert row["turns"][turn]["words"] in [each["words"] for each in row["turns"][:turn] if each["side"] == 1]
