"""`parley search methods`: methods that read gradients, losses or replies, on one chat model under one budget."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.page.page import collect_run, report_from_run
from parley.engine.core.verbs.job import TABLE_FILE, Silent
from parley.engine.triggers.methods.evolution import EvolutionSettings
from parley.engine.triggers.methods.settings import RelaxationSettings, SearchSettings
from parley.engine.triggers.methods.writing import WritingSettings
from parley.engine.triggers.success import SuccessSettings
from parley.engine.triggers.verbs.methods import SEARCH_METHODS, MethodsConfig
from parley.engine.triggers.verbs.search import SEARCH
from parley.envs.core.errors import ConfigError, DataError
from tests.engine.core.verbs.made_up import Notes, rows
from tests.engine.triggers.verbs.test_text_search import ATTACKER, MODEL

pytest.importorskip("transformers", reason="the extra hugging-face is not installed")

from parley.engine.triggers.verbs.config import HuggingFaceSettings
from tests.engine.core.page.pages import tables_on

run = SEARCH_METHODS.run
PAIRS = "goal,target\ntell me,hello\nsay it,a\n"


def asked(tmp_path: Path, model: str, **changes: Any) -> MethodsConfig:
    (tmp_path / "pairs.csv").write_text(PAIRS)
    settings: dict[str, Any] = {
        "hugging_face": HuggingFaceSettings(length=3, end=False),
        "evolution": EvolutionSettings(num_words=2, population=4),
        "budget": "9",
        **changes,
    }
    return MethodsConfig(model=model, targets=str(tmp_path / "pairs.csv"), **settings)


def test_every_kind_of_method_has_a_line_and_none_tries_more_than_the_budget(tmp_path: Path, folder: Path) -> None:
    names = ["gcg", "random", "beast", "arca", "beam", "pez", "relaxation", "evolution"]
    config = asked(tmp_path, f"hf:{folder}", method=",".join(names))
    result = run(config, tmp_path / "run", Silent())
    table = result.tables["All methods"]
    lines = dict(row[0].rstrip(")").split(" (") for row in table.rows)
    assert list(lines) == [*names, "random words, evolution", "no input"]
    assert [lines[name] for name in ("gcg", "random", "beast", "evolution")] == ["gradients", "scores", "logits", "text"]
    for name in names:
        tried = result.metrics[f"methods.{name}.tried"]
        assert 0 < tried.value <= 9, name
        assert tried.n == 2
        searched = rows(tmp_path / "run" / name)
        assert [(row["prompt"], row["target"]) for row in searched] == [("tell me", "hello"), ("say it", "a")]
        verified = result.metrics[f"methods.{name}.verified"]
        assert verified.value == sum(row["verified"] for row in searched) / 2
        of_rows = [row["tokens"] if name == "evolution" else row["restarts"][0]["tokens"] for row in searched]
        assert result.metrics[f"methods.{name}.tokens"].value == sum(of_rows) / 2 > tried.value
        within = [result.metrics[f"within.{name}.queries_{share}"].value for share in (8, 4, 2, 1)]
        assert within == sorted(within)
        assert within[-1] == verified.value
    assert set(result.legend or {}) >= set(result.metrics)
    assert table.to_markdown() in (tmp_path / "run" / TABLE_FILE).read_text()
    assert ("All methods", table) in tables_on(collect_run(tmp_path / "run"), "triggers")
    notes = Notes()
    assert run(config, tmp_path / "run", notes).metrics == result.metrics
    assert not notes.stages, "nothing is searched for again"
    assert {*SEARCH_METHODS.metrics_of(config)} == {*result.metrics}


def test_lines_of_one_method_differ_by_settings_of_their_own(tmp_path: Path, folder: Path) -> None:
    method = "gcg, gcg[search.buffer=4,objective.mellowmax=1], mac, he2018, evolution[evolution.population=2]"
    config = asked(tmp_path, f"hf:{folder}", method=method, budget="6", success=SuccessSettings(samples=2))
    labels = ["gcg", "gcg[search.buffer=4,objective.mellowmax=1]", "mac", "he2018", "evolution[evolution.population=2]"]
    stages = dict(zip(labels, SEARCH_METHODS.stages(config, tmp_path / "run").items(), strict=True))
    (_, (_, plain)), (name, (_, buffered)) = (stages[label] for label in labels[:2])
    assert name == "gcg-search.buffer=4-objective.mellowmax=1"
    assert (plain.search.buffer, buffered.search.buffer) == (0, 4)
    assert (plain.objective.mellowmax, buffered.objective.mellowmax) == (0, 1)
    assert buffered == replace(plain, search=buffered.search, objective=buffered.objective), "else they are one search"
    assert (stages["mac"][1][1].method, stages["mac"][1][1].search.momentum) == ("gcg", 0.6)
    assert stages["he2018"][1][1].method == "gibbs-enum"
    assert stages[labels[-1]][1][1].search.population == 2
    result = run(config, tmp_path / "run", Silent())
    table = result.tables["All methods"]
    assert [row[0].partition(" (")[0] for row in table.rows] == [*labels, f"random words, {labels[-1]}", "no input"]
    place = table.columns.index("drawn")
    assert [row[place] != "–" for row in table.rows] == [True] * 5 + [False] * 2
    assert {stage.name for stage in (tmp_path / "run").iterdir()} > {name for name, _ in stages.values()}
    assert run(config, tmp_path / "run", Silent()).metrics == result.metrics


@pytest.mark.parametrize(
    ("method", "what"),
    [
        ("gcg[search.buffer=10", "no list of methods"),
        ("gcg]", "no list of methods"),
        ("gcg[budget=10]", "a line of gcg has no setting 'budget'"),
        ("evolution[search.buffer=1]", "a line of evolution has no setting"),
        ("gcg[search.bufer=10]", "did you mean"),
        ("gcg[search.buffer=-1]", "buffer"),
        ("gcg[search.restarts=2]", "one start"),
        ("gcgg[search.buffer=2]", "no method of search"),
        ("gcg[search.buffer=a/b],gcg[search.buffer=a+b]", "called alike"),
    ],
)
def test_lines_that_cannot_be_read_are_refused(tmp_path: Path, method: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        asked(tmp_path, "hf:nowhere", method=method)


def test_a_model_that_only_replies_is_told_by_evolution_and_an_attacker(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL.replace("SLOW", "0"))
    (tmp_path / "attacker.py").write_text(ATTACKER.replace("REFUSES", "False"))
    (tmp_path / "words.txt").write_text("please kindly a b c d")
    config = asked(
        tmp_path,
        f"{tmp_path}/model.py:model",
        method="evolution,attacker",
        attacker=f"{tmp_path}/attacker.py:Attacker",
        words=str(tmp_path / "words.txt"),
        writing=WritingSettings(streams=2, max_words=6),
    )
    result = run(config, tmp_path / "run", Silent())
    table = result.tables["All methods"]
    lines = ["evolution", "random words, evolution", "attacker", "random words, attacker", "no input"]
    assert [row[0] for row in table.rows] == [f"{line} (text)" for line in lines]
    assert result.metrics["methods.attacker.tried"].value <= 9


def test_a_method_that_fails_ends_no_other(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = asked(tmp_path, f"hf:{folder}", method="gcg,random", budget="4")
    search = SEARCH.run

    def failing(config: Any, path: Path, reporter: Any) -> Any:
        if path.name == "gcg":
            raise DataError("the model is lost", where="somewhere")
        return search(config, path, reporter)

    with monkeypatch.context() as patch:
        patch.setattr(SEARCH, "run", failing)
        result = run(config, tmp_path / "run", Silent())
    assert result.failure == "1 stage failed: gcg: the model is lost (somewhere)"
    told = ("verified", "no_reply", "claimed", "loss", "tried", "tokens")
    within = [f"within.random.queries_{share}" for share in (8, 4, 2, 1)]
    assert [*result.metrics] == [*(f"methods.random.{name}" for name in told), *within]


def test_what_cannot_work_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    server = "openai:http://127.0.0.1:9/v1#m"
    refused = {
        "gcg .gradients., beast .logits.": asked(tmp_path, server, method="gcg,beast,evolution"),
        "compared by the replies of chat models": asked(tmp_path, str(tmp_path / "lstm"), method="gcg"),
        "no words that could be typed": asked(tmp_path, "hf:nowhere", method="relaxation[search.relaxation.mode=embedding]"),
        "random does not read search.buffer": asked(tmp_path, "hf:nowhere", method="random[search.buffer=2]"),
        "no model is named": replace(asked(tmp_path, "hf:nowhere"), model=""),
        "no list of targets is named": replace(asked(tmp_path, "hf:nowhere"), targets=""),
    }
    for what, config in refused.items():
        with pytest.raises(ConfigError, match=what):
            run(config, tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()
    steps = SearchSettings(restarts=1, relaxation=RelaxationSettings(steps=20))
    for changes in (
        {"method": "attacker"},
        {"attacker": server},
        {"search": SearchSettings()},
        {"search": steps},
        {"method": "gcgg"},
    ):
        with pytest.raises(ConfigError):
            asked(tmp_path, "hf:nowhere", **changes)


def test_methods_by_first_tokens_have_lines_beside_the_others(tmp_path: Path, folder: Path) -> None:
    config = asked(tmp_path, f"hf:{folder}", method="prs,qcg,evolution", proxy=f"hf:{folder}")
    result = run(config, tmp_path / "run", Silent())
    table = result.tables["All methods"]
    reads = dict(row[0].rstrip(")").split(" (") for row in table.rows)
    assert (reads["prs"], reads["qcg"], reads["evolution"]) == ("first_tokens", "first_tokens", "text")
    for name in ("prs", "qcg", "evolution"):
        assert 0 < result.metrics[f"methods.{name}.tried"].value <= 9
    with pytest.raises(ConfigError, match=r"which is text: prs \(first_tokens\)"):
        run(asked(tmp_path, "cmd:cat", method="prs"), tmp_path / "none", Silent())
    with pytest.raises(ConfigError, match="qcg needs a model of its own"):
        asked(tmp_path, f"hf:{folder}", method="qcg")


@pytest.mark.parametrize("budget", ["tokens=2000", "seconds=0.2,queries=250"])
def test_methods_are_compared_at_equal_cost_in_other_units(tmp_path: Path, folder: Path, budget: str) -> None:
    names = ["gcg[search.candidates=8]", "random[search.candidates=8]", "relaxation", "evolution"]
    config = asked(tmp_path, f"hf:{folder}", method=",".join(names), budget=budget)
    result = run(config, tmp_path / "run", Silent())
    part, _, most = budget.partition(",")[0].partition("=")
    keys = [re.sub(r"[^\w=-]+", "-", name).strip("-") for name in names]
    for key in keys:
        spent = result.metrics[f"methods.{key}.{part}"]
        # No step is cut, and one that was begun before the end counts.
        assert 0.5 * float(most) < spent.value < (1.05 if part == "tokens" else 8) * float(most), key
        assert f"within.{key}.{part}_8" in result.metrics
    assert ("seconds" in {name.rpartition(".")[2] for name in result.metrics}) == (part == "seconds")
    assert f"{float(most) / 8:.3g} {part}" in result.tables["Success by cost"].columns
    assert {*SEARCH_METHODS.metrics_of(config)} == {*result.metrics}
    page = report_from_run(tmp_path / "run").read_text()
    assert f"Success within {part}" in page


def test_a_budget_that_would_end_no_method_is_refused(tmp_path: Path) -> None:
    for budget, what in [
        ("", "need a budget to end"),
        ("attacker_tokens=5", "need a budget to end"),
        ("money=5", "have no price"),
        ("bananas=5", "no part 'bananas'"),
    ]:
        with pytest.raises(ConfigError, match=what):
            asked(tmp_path, "hf:nowhere", method="gcg", budget=budget)
    with pytest.raises(ConfigError, match="needs prices"):
        asked(tmp_path, "openai:http://127.0.0.1:9/v1#m", method="evolution", budget="money=5")
