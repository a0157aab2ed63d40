"""`parley search text`: a model of which nothing but replies is seen; queries are counted, and none is asked twice."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.page.page import report_from_run
from parley.engine.core.runs.documents import changed_weights
from parley.engine.core.stats.statistics import NO_REPLY, NO_REPLY_METRICS, rate
from parley.engine.core.tables.table import with_interval
from parley.engine.core.verbs.job import Silent
from parley.engine.triggers.methods.evolution import EvolutionSettings
from parley.engine.triggers.methods.writing import WritingSettings
from parley.engine.triggers.metrics.text import EMPTY, NUM_QUERIES, OVER, RANDOM
from parley.engine.triggers.success import TOKENS, FitnessSettings, SuccessSettings
from parley.engine.triggers.targets import Target, TargetList
from parley.engine.triggers.verbs.config import TextSearchConfig, TextSearchPlan
from parley.engine.triggers.verbs.text_search import SEARCH_TEXT, num_tokens
from parley.envs.core.errors import ConfigError, DataError
from parley.policies.chat.answers import ChatAnswers
from parley.policies.chat.settings import ChatAsking
from parley.policies.seq2seq.scoring import save_model
from tests.engine.core.verbs.items import require_figures_of
from tests.engine.core.verbs.made_up import Listening, kill_when, rows, start_parley
from tests.policies.chat.fake_server import Said, serving
from tests.policies.chat.test_logprobs import letters
from tests.policies.seq2seq.made_up import seq2seq

run = SEARCH_TEXT.run
MODEL = """
import time
from pathlib import Path

ANSWERS = Path(__file__).with_name("run") / "answers" / "answers.jsonl"
TARGET = "hello there"


def model(messages):
    with Path(__file__).with_suffix(".asked").open("a") as file:
        file.write("asked\\n")
    while Path(__file__).with_suffix(".halt").exists() and ANSWERS.is_file() and ANSWERS.read_text().count("\\n") > 20:
        time.sleep(0.1)
    words = messages[-1]["content"].split()
    if "never" in words:
        return "no"
    return TARGET[: 2 + 3 * sum(words.count(word) for word in ("please", "kindly"))]
"""
"""Says the more of a sentence, the more often it is begged; where it is to halt, no more than some things in a run."""
PAIRS = "prompt,target\ntell me,hello there\nnever,hello there\n"


def asked(tmp_path: Path, **changes: Any) -> TextSearchConfig:
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "pairs.csv").write_text(PAIRS)
    (tmp_path / "words.txt").write_text("please kindly " + " ".join(f"w{number}" for number in range(30)))
    settings: dict[str, Any] = {
        "model": f"{tmp_path}/model.py:model",
        "targets": str(tmp_path / "pairs.csv"),
        "words": str(tmp_path / "words.txt"),
        "search": EvolutionSettings(num_words=5, population=8, max_queries=200),
        **changes,
    }
    return TextSearchConfig(**settings)


def num_asked(tmp_path: Path) -> int:
    return (tmp_path / "model.asked").read_text().count("asked")


@pytest.mark.usefixtures("workers_here")
def test_two_workers_write_the_rows_of_none(tmp_path: Path) -> None:
    for workers in (0, 2):
        run(asked(tmp_path, shard_size=1, workers=workers), tmp_path / str(workers), Silent())
    assert rows(tmp_path / "2") == rows(tmp_path / "0")


def test_replies_alone_lead_to_an_input_that_works(tmp_path: Path) -> None:
    result = run(asked(tmp_path, success=SuccessSettings(samples=2)), tmp_path / "run", Silent())
    require_figures_of(tmp_path / "run")
    begged, never = rows(tmp_path / "run")
    assert (begged["verified"], begged["reply"], begged["sampled"]) == (True, "hello there", 2)
    assert begged["trigger"] == begged["typed"][0]
    assert sum(map(begged["trigger"].split().count, ("please", "kindly"))) >= 3
    assert (never["verified"], never["queries"]) == (False, 203), "the budget, no input, and two draws"
    assert begged["queries"] < 203
    assert result.metrics["verified"].value == 0.5
    assert result.metrics[EMPTY].value == result.metrics[RANDOM].value == 0
    assert (begged["random_verified"], never["random_verified"]) == (False, False)
    assert begged["random_queries"] == never["random_queries"] == 200, "as many tries as evolving has"
    assert 0 < begged["random_fitness"] < begged["fitness"]
    assert result.metrics[OVER].value == 0.5
    assert result.metrics[OVER].low < 0 < 0.5 < result.metrics[OVER].high, "one of two targets proves nothing"
    table, shown = result.more.values()
    assert table.columns == ("input", "success", "drawn", "queries", "no reply", "targets")
    assert [row[2] for row in table.rows] == [with_interval(rate(1, 2)), "–", "–"]
    tried = (begged["queries"] + never["queries"]) / 2 - 3
    assert [row[3].split()[0] for row in table.rows] == [f"{tried:.2f}", "200.00", "1"], "the same limit holds for both"
    assert table.note.startswith("Success: a reply that begins with the target.")
    assert list(result.more)[1] == "inputs that worked"
    assert shown.rows == (
        ("success", "tell me", begged["trigger"], "hello there"),
        ("no success", "never", never["trigger"], "no"),
    ), "successes first"
    queries = sum(row["queries"] + row["random_queries"] for row in (begged, never))
    asked_twice = queries - num_asked(tmp_path)
    assert result.metrics[NUM_QUERIES].value == queries
    assert 0 <= asked_twice < 5, "an input that both come upon is known"
    assert set(SEARCH_TEXT.legend) - set(result.metrics) == {name for name in NO_REPLY_METRICS if name != NO_REPLY}
    page = report_from_run(tmp_path / "run").read_text()
    assert "with what the search found" in page
    assert "evolution: num_words=5, population=8, max_queries=200, mutation=0.15, reads text" in page


def test_targets_of_harmbench_stand_in_a_file_of_their_own(tmp_path: Path) -> None:
    config = asked(tmp_path, search=EvolutionSettings(num_words=5, population=8, max_queries=8))
    (tmp_path / "pairs.csv").write_text('Behavior,ContextString,BehaviorID\nbeg,"A cat, a dog.",x\n')
    with pytest.raises(DataError, match="no column target"):
        run(config, tmp_path / "none", Silent())
    (tmp_path / "targets.json").write_text('{"x": "hello there"}')
    run(replace(config, target_file=str(tmp_path / "targets.json")), tmp_path / "run", Silent())
    assert [(row["prompt"], row["target"]) for row in rows(tmp_path / "run")] == [
        ("A cat, a dog.\n\n---\n\nbeg", "hello there")
    ]


@pytest.mark.parametrize("setting", ["target_file", "template", "words", "chat.tokenizer"])
def test_a_run_whose_own_files_have_changed_is_refused(tmp_path: Path, setting: str) -> None:
    path = tmp_path / "own.json"
    path.write_text("one")
    chat = ChatAsking(tokenizer=f"gguf:{path}" if setting == "chat.tokenizer" else "")
    config = replace(asked(tmp_path), chat=chat, **({} if "." in setting else {setting: str(path)}))
    before = SEARCH_TEXT.weights(config)
    path.write_text("other")
    assert changed_weights(before, SEARCH_TEXT.weights(config)) == [
        f"{setting}: {before[setting]} -> {SEARCH_TEXT.weights(config)[setting]}"
    ]


def test_inputs_start_from_given_words_and_hold_nothing_forbidden(tmp_path: Path) -> None:
    settings = EvolutionSettings(num_words=3, max_queries=1)
    config = asked(tmp_path, search=settings, start="Kindly w1 please", forbidden="w2, E KIND")
    run(config, tmp_path / "run", Silent())
    words = json.loads((tmp_path / "run" / "words.json").read_text())["words"]
    assert set((tmp_path / "words.txt").read_text().split()) - set(words) == {"w2", *(f"w{number}" for number in range(20, 30))}
    assert {row["trigger"] for row in rows(tmp_path / "run")} == {"Kindly w1 please"}, "the first of one query"
    for wrong in ({"start": "w1 w1"}, {"start": "please kindly w1"}, {"start": "w1 w1 w1", "attacker": "hf:x"}):
        with pytest.raises(ConfigError, match="--start"):
            replace(config, **wrong)  # type: ignore[arg-type]  # mypy reads one type of all
    lower = replace(config, forbidden="w2, E KIND", start="", alphabet="[a-z]*1?", search=replace(settings, max_queries=8))
    run(lower, tmp_path / "lower", Silent())
    words = json.loads((tmp_path / "lower" / "words.json").read_text())["words"]
    assert (
        set(words)
        == {"please", "kindly", "w1"}
        >= {each for row in rows(tmp_path / "lower") for each in row["trigger"].split()}
    )
    with pytest.raises(ConfigError, match="start from is forbidden"):
        replace(config, alphabet="lower")
    with pytest.raises(ConfigError, match="no such alphabet"):
        replace(config, alphabet="[a")
    with pytest.raises(ConfigError, match="no word may stand in an input"):
        run(replace(config, start="", forbidden="w,e,i"), tmp_path / "none", Silent())


def test_random_inputs_that_work_as_well_are_told(tmp_path: Path) -> None:
    config = asked(tmp_path)
    (tmp_path / "words.txt").write_text("please kindly w1")
    run(config, tmp_path / "run", Silent())
    begged, _ = rows(tmp_path / "run")
    assert begged["verified"]
    assert begged["random_verified"], "of three words two beg"
    assert begged["random_queries"] < 200, "a success ends it"


ATTACKER = """
import json, re
from pathlib import Path
from parley.policies.chat.model import Access, Answer

class Attacker:
    name, access = "attacker", Access.TEXT
    def answer(self, chats, *, decoding, seeds=()):
        with Path(__file__).with_suffix(".asked").open("a") as file:
            for chat, seed in zip(chats, seeds):
                file.write(json.dumps([[message.content for message in chat], seed]) + "\\n")
        return [self.one(chat[-1].content, seed) for chat, seed in zip(chats, seeds)]
    def one(self, asked, seed):
        if REFUSES: return Answer("I'm sorry, but I can't help with that.", "stop", 10, 9)
        scores = re.findall(r"score (\\d+) of 100\\nwords: (.*)", asked)
        if not scores: return Answer(f"**Words:** please w{seed % 7}", "stop", 20, 4)
        best = max(scores, key=lambda each: int(each[0]))[1]
        return Answer(f"Words: {best} kindly", "stop", 30, 5)
"""
"""Begs once more than the best that it has tried: whoever reads scores wins."""


def attacked(tmp_path: Path, refuses: bool = False, **changes: Any) -> TextSearchConfig:
    (tmp_path / "attacker.py").write_text(ATTACKER.replace("REFUSES", str(refuses)))
    writing = WritingSettings(streams=2, max_words=6, memory=2)
    return asked(tmp_path, attacker=f"{tmp_path}/attacker.py:Attacker", writing=writing, **changes)


def test_an_attacker_that_reads_replies_writes_what_works_in_few_queries(tmp_path: Path) -> None:
    config = attacked(tmp_path, search=EvolutionSettings(num_words=5, population=8, max_queries=20))
    metrics = run(config, tmp_path / "run", Silent()).metrics
    begged, never = rows(tmp_path / "run")
    assert (begged["verified"], begged["reply"], begged["random_verified"]) == (True, "hello there", False)
    assert begged["trigger"].split()[:1] == ["please"]
    assert begged["trigger"].split().count("kindly") == 2
    assert begged["queries"] == 1 + 3 * 2, "no input, and three rounds of two streams"
    assert begged["attacker_answers"] == 6
    assert (never["verified"], never["random_queries"]) == (False, 20)
    assert never["attacker_answers"] == 20
    assert never["queries"] < 21, "what was tried before is not tried again"
    assert metrics["verified"].value == 0.5
    first, *_, last = [json.loads(line) for line in (tmp_path / "attacker.asked").read_text().splitlines()]
    assert "[WORDS]" in first[0][0]
    assert "hello there" in first[0][0]
    assert "reply: no" in last[0][1], "it reads what was replied"
    # Nobody is asked twice, and the rows are the same.
    num, calls = num_asked(tmp_path), (tmp_path / "attacker.asked").read_text()
    next((tmp_path / "run" / "rows").glob("*.parquet")).unlink()
    run(config, tmp_path / "run", Silent())
    assert rows(tmp_path / "run") == [begged, never]
    assert (num_asked(tmp_path), (tmp_path / "attacker.asked").read_text()) == (num, calls)


JUDGE = """
class Judge:
    def answer(self, chats, *, decoding, seeds=()):
        return [self.one(chat) for chat in chats]
    def one(self, chat):
        said = chat[0].content.partition("Said: ")[2].partition("\\n")[0]
        return "so so" if len(chat) == 1 and said == "he" else str(min(100, 10 * len(said)))
"""
"""Rates replies by their lengths; what it says first of the shortest is no number."""


def test_what_is_fit_may_be_a_judges_rating(tmp_path: Path) -> None:
    (tmp_path / "judge.py").write_text(JUDGE)
    fitness = FitnessSettings(by="rating", judge=f"{tmp_path}/judge.py:Judge")
    config = asked(tmp_path, fitness=fitness, search=EvolutionSettings(num_words=5, population=8, max_queries=40))
    run(config, tmp_path / "run", Silent())
    begged, never = rows(tmp_path / "run")
    assert begged["status"] == never["status"] == "ok", begged["error"]
    assert begged["fitness"] == min(100, 10 * len(begged["reply"])) / 100 + begged["verified"]
    assert begged["judge_unparsable"] == 0
    assert never["fitness"] == 0.2, "the length of no"
    # Each reply but the one to no input is rated, the shortest twice.
    assert begged["judge_answers"] > begged["queries"] - 1 + begged["random_queries"]
    assert never["judge_answers"] == never["queries"] - 1 + never["random_queries"]


@pytest.mark.parametrize(("reads", "unread"), [("no", 1), ("perhaps", 2)])
def test_a_judge_that_cannot_be_read_is_told_below_the_table(tmp_path: Path, reads: str, unread: int) -> None:
    (tmp_path / "judge.py").write_text(f"def judge(messages):\n    return '{reads}' if 'tell me' in str(messages) else '?'\n")
    judged = SuccessSettings(by="judge", judge=f"{tmp_path}/judge.py:judge")
    config = asked(tmp_path, success=judged, search=EvolutionSettings(num_words=5, population=2, max_queries=3))
    result = run(config, tmp_path / "run", Silent())
    # No input, three that evolve and three at random.
    assert f"Of {7 * unread} replies the judge gave no verdict" in result.more[""].note
    assert f"Of {7 * unread} replies" in (tmp_path / "run" / "table.md").read_text()
    assert bool(result.failure) == (unread == 2), "what is read of nothing is no rate"


def test_what_is_fit_may_be_an_encoders_similarity(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="the extra hugging-face is not installed")
    from parley.policies.ranking.encoders import load_hugging_face_ranker
    from tests.policies.ranking.folders import bi_encoder

    folder = bi_encoder(tmp_path / "encoder")
    fitness = FitnessSettings(by="similarity", encoder=f"hf:{folder}")
    config = asked(tmp_path, fitness=fitness, search=EvolutionSettings(num_words=5, population=8, max_queries=16))
    run(config, tmp_path / "run", Silent())
    encoder = load_hugging_face_ranker(folder)
    for row in rows(tmp_path / "run"):
        assert row["status"] == "ok", row["error"]
        (cosine,) = encoder.cosines("hello there", [row["reply"]])  # type: ignore[union-attr]  # it is a bi-encoder
        assert row["fitness"] == pytest.approx((1 + cosine) / 2 + row["verified"])


def test_fluency_weighs_against_what_a_reply_is_worth(tmp_path: Path, folder: Path) -> None:
    pytest.importorskip("transformers", reason="the extra hugging-face is not installed")
    from parley.engine.triggers.methods.evolution import closeness
    from parley.policies.hugging_face.judges import HuggingFaceInputModel
    from parley.policies.hugging_face.models import read_model

    tokenizer, model = read_model(f"hf:{folder}")
    nats = HuggingFaceInputModel(model, tokenizer).nats
    settings, mean = EvolutionSettings(num_words=5, population=8, max_queries=80), {}
    for weight in (0.0, 2.0):
        fitness = FitnessSettings(lm=f"hf:{folder}" if weight else "", lm_weight=weight)
        run(asked(tmp_path, fitness=fitness, search=settings), path := tmp_path / f"run-{weight}", Silent())
        begged, never = rows(path)
        mean[weight] = {row["item_key"]: sum(words := nats(row["trigger"])) / len(words) for row in (begged, never)}
        for row in (begged, never):
            cost = weight * mean[weight][row["item_key"]]
            assert row["fitness"] == pytest.approx(closeness(row["reply"], "hello there") + row["verified"] - cost, abs=1e-5)
            assert not row["verified"] or row["reply"] == "hello there", "a success goes before what is fluent"
    assert mean[2.0][never["item_key"]] < mean[0.0][never["item_key"]], "nothing else tells its inputs apart"


def test_a_fitness_needs_its_model_and_no_other(tmp_path: Path) -> None:
    for wrong in (
        {"by": "rating"},
        {"judge": "hf:x"},
        {"by": "similarity"},
        {"by": "similarity", "encoder": "x"},
        {"lm": "hf:x"},
        {"lm_weight": 1.0},
    ):
        with pytest.raises(ConfigError):
            FitnessSettings(**wrong)  # type: ignore[arg-type]  # a wrong one


def test_a_run_of_a_response_model_is_searched_judges_and_rates(tmp_path: Path) -> None:
    save_model(seq2seq(), tmp_path / "said" / "checkpoint", {})
    victim = str(tmp_path / "said")
    found = asked(
        tmp_path,
        model=victim,
        search=EvolutionSettings(num_words=2, population=4, max_queries=8),
        fitness=FitnessSettings(by="rating", judge=victim),
        success=SuccessSettings(by="judge", judge=victim),
    )
    run(found, tmp_path / "run", Silent())
    assert all(row["status"] == "ok" and row["judge_unparsable"] for row in rows(tmp_path / "run")), (
        "it says neither yes nor no"
    )


def test_replies_are_no_longer_than_what_is_looked_for(tmp_path: Path) -> None:
    by = {"target": 15, "no-refusal": TOKENS}
    for name, num in by.items():
        config = asked(tmp_path, success=SuccessSettings(by=name))  # type: ignore[arg-type]  # one of them
        targets = TargetList("two", (Target("a", ("hello",)), Target("b", ("hello there",))), ())
        assert num_tokens(TextSearchPlan(config, targets, ())) == num
    for text, least in (("hello " * 50, 154), ("\N{CJK UNIFIED IDEOGRAPH-4E2D}" * 40, 124), ("hello " * 15, TOKENS)):
        assert num_tokens(TextSearchPlan(asked(tmp_path), TargetList("one", (Target("a", (text,)),)), ())) == least
    config = asked(tmp_path, success=SuccessSettings(tokens=7))
    assert num_tokens(TextSearchPlan(config, targets, ())) == 7


def test_an_attacker_that_writes_nothing_costs_its_targets(tmp_path: Path) -> None:
    config = attacked(tmp_path, refuses=True, search=EvolutionSettings(num_words=5, population=8, max_queries=4))
    run(config, tmp_path / "run", Silent())
    assert {(row["status"], "wrote no input" in row["error"]) for row in rows(tmp_path / "run")} == {("error", True)}


def test_a_killed_search_asks_nothing_twice_and_comes_to_the_same_rows(tmp_path: Path) -> None:
    config = asked(tmp_path, search=EvolutionSettings(num_words=5, population=8, max_queries=60))
    words = ["search", "text", "--model", config.model, "--targets", config.targets, "--words", config.words]
    for name in ("num_words", "population", "max_queries"):
        words += ["--set", f"search.{name}={getattr(config.search, name)}"]
    answers = tmp_path / "run" / "answers" / "answers.jsonl"
    (tmp_path / "model.halt").touch()
    process = start_parley(*words, "--run", str(tmp_path / "run"), folder=tmp_path)
    kill_when(process, lambda: answers.is_file() and answers.read_text().count("\n") > 20)
    (tmp_path / "model.halt").unlink()
    known, before = answers.read_text().count("\n"), num_asked(tmp_path)
    (tmp_path / "pairs.csv").rename(tmp_path / "elsewhere.csv")
    (tmp_path / "words.txt").rename(tmp_path / "elsewhere.txt")
    run(config, tmp_path / "run", Silent())
    after = num_asked(tmp_path)
    (tmp_path / "elsewhere.csv").rename(tmp_path / "pairs.csv")
    (tmp_path / "elsewhere.txt").rename(tmp_path / "words.txt")
    run(config, tmp_path / "whole", Silent())
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")
    assert after - before == num_asked(tmp_path) - after - known


def test_queries_are_told_as_they_are_asked(tmp_path: Path) -> None:
    heard = Listening()
    run(asked(tmp_path, search=EvolutionSettings(num_words=5, population=8, max_queries=20)), tmp_path / "run", heard)
    told = [int(found[1].replace(",", "")) for note in heard.said if (found := re.search(r"queries: ([\d,]+)", note))]
    assert told == sorted(told)
    assert told[-1] == sum(row["queries"] + row["random_queries"] for row in rows(tmp_path / "run"))
    last = [note for note in heard.said if "queries: " in note][-1]
    assert last.startswith("successes: ")
    assert "closest replies 0." in last


def test_answers_of_a_slow_model_are_counted_before_their_round_ends(tmp_path: Path) -> None:
    heard, config = Listening(), asked(tmp_path, search=EvolutionSettings(num_words=5, population=8, max_queries=8))
    model = tmp_path / "model.py"
    model.write_text(model.read_text().replace("    words = messages", "    time.sleep(0.05)\n    words = messages"))
    run(config, tmp_path / "run", heard)
    told = [int(found[1]) for note in heard.said if (found := re.search(r"queries: (\d+)", note))]
    assert any(0 < number < 34 and number != 17 for number in told), "a round is 17 answers of each of two targets"
    assert told == sorted(told)
    assert any(0 < step < 0.9 for step in heard.steps), "and the share of the work that is done"
    assert any("the time left is the longest" in note for note in heard.said), "until a search has ended"


def test_a_target_that_fails_costs_no_other(tmp_path: Path) -> None:
    config = asked(tmp_path, search=EvolutionSettings(num_words=5, population=8, max_queries=20))
    run(config, tmp_path / "whole", Silent())
    model = tmp_path / "model.py"
    works = model.read_text()
    model.write_text(works.replace('        return "no"', '        raise RuntimeError("not now")'))
    run(config, tmp_path / "run", Silent())
    whole, found = rows(tmp_path / "whole"), rows(tmp_path / "run")
    assert found[0] == whole[0]
    assert (found[1]["status"], "not now" in found[1]["error"]) == ("error", True)


def test_what_cannot_work_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    config = asked(tmp_path)
    for changes, message in (
        ({"model": ""}, "no model"),
        ({"model": "nothing"}, "no chat model"),
        ({"targets": "normal"}, "no such list"),
        ({"template": "user"}, "does not fit"),
        ({"template": "<s>{prompt} {}"}, "takes messages"),
        ({"success": SuccessSettings(by="judge", judge="nobody")}, "no chat model"),
        ({"fitness": FitnessSettings(by="rating", judge="nobody")}, "no chat model"),
    ):
        with pytest.raises(ConfigError, match=message):
            run(replace(config, **changes), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "model.asked").exists()


SCORED = """
from parley.policies.chat.model import ReplyScore


class Model:
    def reply(self, messages):
        return "hello there" if self.likelihood(messages[-1]["content"]) == 0 else "no"

    def likelihood(self, text):
        return -abs(3 - sum(map(text.split().count, ("please", "kindly"))))

    def score(self, chats, replies):
        return [ReplyScore(float(self.likelihood(chat[-1].content)), 1) for chat in chats]
"""


@pytest.mark.parametrize("method", ["prs", "qcg"])
def test_log_probabilities_lead_to_an_input_where_replies_tell_nothing(tmp_path: Path, method: str) -> None:
    (tmp_path / "scored.py").write_text(SCORED)
    proxy = f"{tmp_path}/scored.py:Model" if method == "qcg" else ""
    config = asked(tmp_path, model=f"{tmp_path}/scored.py:Model", method=method, proxy=proxy)
    (tmp_path / "words.txt").write_text("please kindly now then here")
    notes = Listening()
    run(config, tmp_path / "run", notes)
    for row in rows(tmp_path / "run"):
        assert (row["verified"], row["reply"]) == (True, "hello there")
        assert row["queries"] < 201
        assert row["fitness"] == 2.0, "certain, and a success"
    report = report_from_run(tmp_path / "run").read_text()
    assert f"{method}: " in report
    assert "reads first_tokens" in report
    with pytest.raises(ConfigError, match="needs first_tokens of a model"):
        run(replace(config, model=f"{tmp_path}/model.py:model"), tmp_path / "none", Silent())


@pytest.mark.parametrize("method", ["prs", "qcg"])
def test_log_probabilities_of_a_server_lead_to_an_input(tmp_path: Path, method: str) -> None:
    """The server says what the model above says, and shows how likely each first token is."""
    (tmp_path / "scored.py").write_text(SCORED)

    def says(number: int, body: dict[str, Any]) -> Said:
        words = body["messages"][-1]["content"].split()
        nats = -abs(3 - sum(map(words.count, ("please", "kindly"))))
        text, other = ("hello there", ("no", -9.0)) if nats == 0 else ("no", ("hello", float(nats)))
        tops = [{"token": token, "logprob": value} for token, value in (other, (text.split()[0], -0.01))]
        logprobs = {"content": [{"token": text.split()[0], "logprob": -0.01, "top_logprobs": tops}]}
        choice = {"message": {"content": text}, "finish_reason": "stop", "logprobs": logprobs}
        return Said(json.dumps({"choices": [choice]}).encode())

    proxy = f"{tmp_path}/scored.py:Model" if method == "qcg" else ""
    with serving(says) as server:
        config = asked(tmp_path, model=server.name, method=method, proxy=proxy, chat=ChatAsking(logprobs="first"))
        (tmp_path / "words.txt").write_text("please kindly now then here")
        run(config, tmp_path / "run", Silent())
    assert all(body["logprobs"] for body in server.asked)
    for row in rows(tmp_path / "run"):
        assert (row["verified"], row["reply"]) == (True, "hello there")
        assert row["queries"] < 201


def test_the_scores_of_a_proxy_behind_a_server_are_counted(tmp_path: Path) -> None:
    (tmp_path / "scored.py").write_text(SCORED)
    search = EvolutionSettings(num_words=3, max_queries=6)
    with serving(letters) as server:
        chat, proxy = ChatAsking(logprobs="reply"), f"openai:{server.url}/v1/completions#fake"
        config = asked(tmp_path, model=f"{tmp_path}/scored.py:Model", method="qcg", proxy=proxy, chat=chat, search=search)
        run(config, tmp_path / "run", Silent())
    usage = ChatAnswers(tmp_path / "run" / "answers").usage()
    assert usage[proxy].scored > 6


def test_methods_by_log_probabilities_take_the_models_that_they_need(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a proxy orders"):
        asked(tmp_path, method="qcg")
    with pytest.raises(ConfigError, match="a proxy orders"):
        asked(tmp_path, method="prs", proxy="hf:x")
    with pytest.raises(ConfigError, match="an attacker writes all"):
        asked(tmp_path, method="prs", attacker="hf:x")


def test_a_budget_of_tokens_or_money_ends_both_searches_within_one_answer(tmp_path: Path) -> None:
    budget: dict[str, Any] = {"budget": "tokens=1500,money=2", "chat": ChatAsking(prices="1/1")}
    budget |= {"search": EvolutionSettings(num_words=5, max_queries=1000)}
    result = run(asked(tmp_path, **budget), tmp_path / "run", Silent())
    begged, never = rows(tmp_path / "run")
    # A message of five words and a reply of "no" have less than 20 tokens by their letters.
    for tokens in (never["tokens"], never["random_tokens"], begged["random_tokens"]):
        assert 1500 <= tokens < 1520
    assert never["money"] == pytest.approx(never["tokens"] / 1000)
    assert begged["verified"]
    assert begged["tokens"] < 1500
    assert result.metrics["tokens"].value == (begged["tokens"] + never["tokens"]) / 2
    assert [result.metrics[f"within.money.{share}"].value for share in (1, 8)] == [0.5, begged["money"] <= 0.25]
    assert result.metrics["random_within.tokens.1"].value == 0
    assert "seconds" not in result.metrics, "they are no part of this budget, and would differ from run to run"
    run(asked(tmp_path, shard_size=1, **budget), tmp_path / "again", Silent())
    assert rows(tmp_path / "again") == rows(tmp_path / "run")


def test_an_attacker_stops_writing_when_its_tokens_are_spent(tmp_path: Path) -> None:
    run(attacked(tmp_path, budget="attacker_tokens=300"), tmp_path / "run", Silent())
    row = rows(tmp_path / "run")[1]
    # Of its answers it says itself that they have 24 tokens, later 35.
    assert 300 <= row["attacker_tokens"] < 335
    assert row["attacker_answers"] == (row["attacker_tokens"] - 48) / 35 + 2
    assert 0 < row["queries"] - 1 <= row["attacker_answers"]
    with pytest.raises(ConfigError, match="no attacker reads"):
        asked(tmp_path, budget="attacker_tokens=500")
    with pytest.raises(ConfigError, match="needs prices"):
        asked(tmp_path, budget="money=1")
    with pytest.raises(ConfigError, match="no part 'queries'"):
        asked(tmp_path, budget="queries=3")


def test_seconds_end_a_search_and_stand_in_its_rows(tmp_path: Path) -> None:
    result = run(
        asked(tmp_path, budget="seconds=0.2", search=EvolutionSettings(max_queries=100_000)), tmp_path / "run", Silent()
    )
    never = rows(tmp_path / "run")[1]
    assert 0.2 <= never["seconds"] < 2
    assert 0.2 <= never["random_seconds"] < 2
    assert 1 < never["queries"] < 100_000
    assert result.metrics["seconds"].value > 0.1
    assert set(result.legend) == set(result.metrics)
