"""Chat models in the seats of a match."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from parley.engine.core.page.page import report_from_run
from parley.engine.core.ray.session import RaySession
from parley.engine.core.runs.documents import read_json
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.checkpoints import checkpoint_folder
from parley.engine.core.verbs.job import USAGE, Silent
from parley.engine.negotiation.attacks.opponents import OpponentConfig
from parley.engine.negotiation.attacks.settings import DefenceConfig, TacticSettings
from parley.engine.negotiation.metrics.dialogues import CHAT_METRICS
from parley.engine.negotiation.verbs.agents import is_weightless, require_partner
from parley.engine.negotiation.verbs.exploitability import EVALUATE_EXPLOITABILITY, ExploitabilityConfig
from parley.engine.negotiation.verbs.match import SELFPLAY, MatchConfig
from parley.engine.negotiation.verbs.minmax import MINMAX
from parley.engine.negotiation.verbs.table import ATTACK_TABLE, TableConfig
from parley.engine.negotiation.verbs.trigger import SMALL
from parley.engine.negotiation.verbs.whitebox import ATTACK_TRANSFER, TransferConfig, TransferSettings
from parley.envs.core.errors import CheckpointError, ConfigError
from parley.policies.chat.model import NO_REPLIES
from parley.policies.chat.settings import ChatSeat
from tests.engine.core.verbs.made_up import CORPUS, REINFORCE, Notes, campaign, rows

MODEL = """
from parley.policies.chat.model import Answer
class Talker:
    def answer(self, chats, *, decoding, seeds=()):
        if any({fails} for chat in chats): raise RuntimeError("out of order")
        return [self.one(chat, seed) for chat, seed in zip(chats, seeds)]
    def one(self, chat, seed):
        if "in one line" in chat[-1].content:
            if seed % 3 == 0 or "cannot be read" in chat[-1].content: return Answer("no deal")
            return Answer("mine!")
        if len(chat) > 6: return Answer("<selection>", "stop", 5, 1)
        return Answer(f"I would like ball number {seed}, please", "stop", 5, 9)
"""


def talker(folder: Path, fails: str = "False") -> str:
    (folder / "talker.py").write_text(MODEL.replace("{fails}", fails))
    return f"{folder}/talker.py:Talker"


def match(adversary: str, **changes: object) -> MatchConfig:
    return replace(MatchConfig(adversary=adversary, target="scripted", dialogues=10, temperature=1.0), **changes)  # type: ignore[arg-type]


@pytest.mark.usefixtures("workers_here")
def test_rows_are_the_same_for_any_number_of_workers(tmp_path: Path) -> None:
    asked = match(talker(tmp_path))
    alone = SELFPLAY.run(asked, tmp_path / "alone", Silent())
    SELFPLAY.run(replace(asked, workers=2, shard_size=3), tmp_path / "many", Silent())
    assert rows(tmp_path / "alone") == rows(tmp_path / "many")
    side = {name for name in CHAT_METRICS if name.endswith("_adversary")}
    assert side <= set(alone.metrics), "and none of the side on which no chat model sits"
    assert not {name for name in CHAT_METRICS if name.endswith("_target")} & set(alone.metrics)
    assert 0 < alone.metrics["chat_repairs_adversary"].value < 1
    assert alone.metrics["chat_tokens_out_adversary"].value > 0
    assert all(row["chat_target"] is None for row in rows(tmp_path / "alone"))


def test_a_model_that_raises_loses_the_dialogues_it_raised_in(tmp_path: Path) -> None:
    SELFPLAY.run(match(talker(tmp_path, "'book: 1 ' in chat[0].content")), tmp_path / "run", Silent())
    played = rows(tmp_path / "run")
    failed = [row for row in played if row["status"] == "error"]
    assert 0 < len(failed) < len(played)
    assert all("out of order" in row["error"] and "talker.py:5" in row["error"] for row in failed)


LOST = """
from parley.policies.chat.model import Answer
NONE = [Answer("", "length", reasoning="Okay"), Answer("", "content_filter"), Answer("", "tool_calls"), Answer("")]
class Thinker:
    def answer(self, chats, *, decoding, seeds=()):
        return [self.one(chat, seed) for chat, seed in zip(chats, seeds)]
    def one(self, chat, seed):
        if seed % 100 < {percent}: return NONE[seed % 4]
        if "in one line" in chat[-1].content: return Answer("no deal")
        return Answer("<selection>" if len(chat) > 4 else "i want the ball", "length" if seed % 2 else "stop")
"""


def thinker(folder: Path, percent: int) -> str:
    (folder / f"thinker{percent}.py").write_text(LOST.replace("{percent}", str(percent)))
    return f"{folder}/thinker{percent}.py:Thinker"


def test_answers_that_are_no_reply_are_lost_dialogues_whose_counts_add_up(tmp_path: Path) -> None:
    asked = match(thinker(tmp_path, 20), dialogues=40, temperature=0.5)
    result = SELFPLAY.run(asked, tmp_path / "run", Silent())
    played = rows(tmp_path / "run")
    used = (RunFolder.load(tmp_path / "run").summary() or {})[USAGE]
    lost = [row for row in played if row["status"] == "error"]
    assert 0 < len(lost) < len(played)
    assert {row["error"].splitlines()[0] for row in lost} <= {
        f"no answer ({kind})" for kind in ("cut in thinking", "filtered", "tool call", "empty")
    }
    counted = Counter[str]()
    for row in played:
        counted.update(row["chat_adversary"])
    kinds = used["kinds"]
    assert {kind: counted[kind.column] for kind in NO_REPLIES if counted[kind.column]} == {
        kind: kinds[kind] for kind in NO_REPLIES if kind in kinds
    }
    assert counted["answers"] == used["asked"] == sum(kinds.values())
    share = result.metrics["chat_no_reply_adversary"]
    assert share.value == pytest.approx(used["no_reply_share"])
    assert share.n == len(played)
    assert result.metrics["agreement"].n == len(played) - len(lost), "a lost dialogue is no disagreement"
    failed, warned = result.warnings
    assert failed.startswith(f"{len(lost)} of 40 items failed")
    assert f"{used['no_reply_share']:.0%}" in warned
    assert not result.failure
    again = SELFPLAY.run(asked, tmp_path / "run", Silent())
    assert again.chat_usage == result.chat_usage, "a resumed run asks nothing again, and counts the same"


def test_a_run_whose_answers_are_no_replies_fails_and_loses_nothing(tmp_path: Path) -> None:
    result = SELFPLAY.run(match(thinker(tmp_path, 100), temperature=0.0), tmp_path / "run", Silent())
    assert "every item failed" in result.failure
    assert result.metrics["agreement"].n == 0
    # Who ends each talk at once, or says nothing: two thirds of the answers are lost, and some dialogues come to their end.
    model = tmp_path / "thinker67.py"
    model.write_text(Path(thinker(tmp_path, 67).partition(":")[0]).read_text().replace("len(chat) > 4", "True"))
    some = SELFPLAY.run(match(f"{model}:Thinker", dialogues=40, temperature=0.5), tmp_path / "some", Silent())
    assert any(row["status"] == "ok" for row in rows(tmp_path / "some"))
    assert "answers of thinker67_py:Thinker are no reply" in some.failure
    assert not any("are no reply" in warning for warning in some.warnings), "it is said once"
    assert some.failure in report_from_run(tmp_path / "some").read_text().replace("&#39;", "'").replace("&#34;", '"')


def test_a_model_that_hangs_loses_its_dialogues_and_is_given_up(tmp_path: Path) -> None:
    asked = match(talker(tmp_path, "[0 for _ in iter(int, 1)]"), chat=ChatSeat(timeout_s=0.02), dialogues=5)
    SELFPLAY.run(asked, tmp_path / "run", Silent())
    told = [row["error"] for row in rows(tmp_path / "run")]
    assert "answer took more than 0.02 s" in told[0]
    assert "chat.timeout_s" in told[0]
    assert "not asked any more" in told[-1]


def test_a_run_that_was_broken_off_asks_nothing_twice(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    asked = match(talker(tmp_path, f"__import__('os').path.exists({str(gone)!r})"))
    SELFPLAY.run(asked, tmp_path / "run", Silent())
    played = rows(tmp_path / "run")
    first, *_ = sorted((tmp_path / "run" / "rows").glob("*.parquet"))
    first.unlink()
    (tmp_path / "run" / "summary.json").unlink()
    gone.touch()
    SELFPLAY.run(asked, tmp_path / "run", Silent())
    assert rows(tmp_path / "run") == played
    failed = SELFPLAY.run(replace(asked, seed=2), tmp_path / "other", Silent())
    assert failed.metrics["agreement"].n == 0, "nobody answers any more"


def test_sentences_are_said_to_it_and_for_it(tmp_path: Path) -> None:
    model = talker(tmp_path)
    asked = TransferConfig(target=model, speaker=model, dialogues=4, transfer=TransferSettings(sentence="no deal", turn=1))
    result = ATTACK_TRANSFER.run(asked, tmp_path / "run", Silent())
    assert {"chat_answers_adversary", "chat_answers_target"} <= set(result.metrics)
    assert all("no deal" in [turn["words"] for turn in row["turns"] if turn["side"] == 0] for row in rows(tmp_path / "run"))


@pytest.mark.parametrize("own_demand", [False, True])
def test_what_it_does_behind_a_defence_is_counted_whoever_speaks_for_it(tmp_path: Path, own_demand: bool) -> None:
    asked = replace(match("scripted"), target=talker(tmp_path), defence=DefenceConfig(own_demand=own_demand))
    result = SELFPLAY.run(asked, tmp_path / "run", Silent())
    played = rows(tmp_path / "run")
    assert {name for name in CHAT_METRICS if name.endswith("_target")} <= set(result.metrics)
    assert any(row["refused"] for row in played) == own_demand
    kept = (tmp_path / "run" / "answers" / "answers.jsonl").read_text().splitlines()
    # One may be given twice, where it is asked what it would choose and then chooses.
    assert sum(row["chat_target"]["answers"] for row in played) >= len(kept) > len(played)
    assert result.metrics["chat_repairs_target"].value > 0


@pytest.mark.ray
def test_it_is_learned_against_as_the_settings_say_and_asked_nothing_twice(
    tmp_path: Path, root: Path, trainee: Path, ray_session: RaySession
) -> None:
    gone = tmp_path / "gone"
    model = talker(tmp_path, f"decoding.max_tokens != 9 or __import__('os').path.exists({str(gone)!r})")
    asked = ExploitabilityConfig(
        target=model, speaker=str(trainee), corpus=CORPUS, data_root=root, dialogues=6, save_every=1, reinforce=REINFORCE,
        chat=ChatSeat(max_tokens=9, prices="0/1000"), snapshots=0,
    )  # fmt: skip
    result = EVALUATE_EXPLOITABILITY.run(asked, tmp_path / "run", Silent())
    used = {name: (RunFolder.load(path).summary() or {})[USAGE] for name, path in _stages(tmp_path / "run").items()}
    assert all(each["asked"] > 0 and each["cost"] == each["tokens_out"] > 0 for each in used.values())
    assert used["run"]["cost"] == sum(used[name]["cost"] for name in ("adversary", "attack", "choosing", "best"))
    assert list(used["run"]["models"]) == [model]
    gone.touch()
    for name in ("adversary/checkpoint", "adversary/training.safetensors", "attack/rows"):
        shutil.rmtree(tmp_path / "run" / name, ignore_errors=True)
    for path in _stages(tmp_path / "run").values():
        (path / "summary.json").unlink()
    again = EVALUATE_EXPLOITABILITY.run(asked, tmp_path / "run", Silent())
    assert again.metrics["exploitability"] == result.metrics["exploitability"]


def test_how_it_is_asked_reaches_every_stage_of_a_table(tmp_path: Path, trainee: Path) -> None:
    seat = ChatSeat(max_tokens=9)
    asked = TableConfig(target=talker(tmp_path), speaker=str(trainee), rows="none,rl,transfer", seeds=2, chat=seat)
    planned = ATTACK_TABLE.stages(asked, tmp_path)
    assert len(planned) == 7
    assert all(settings.chat == seat for _, settings in planned.values())
    search = replace(SMALL, max_candidates=7)
    searched = ATTACK_TABLE.stages(TableConfig(target="hf:here", rows="trigger,trigger-random", trigger=search), tmp_path)
    assert {name: (settings.method, settings.search) for name, (_, settings) in searched.items()} == {
        "trigger": ("gcg", search),
        "trigger-random": ("random", search),
    }


def test_a_table_counts_what_each_attack_asked_and_brings_tactics_along(tmp_path: Path) -> None:
    model = talker(tmp_path)
    asked = TableConfig(
        target=model,
        speaker="scripted",
        attacker=model,
        rows="none,transfer,tactic",
        transfer=TransferSettings(sentence="no deal"),
        tactics=TacticSettings(rounds=1, streams=1, controls="blind"),
        development=2,
        dialogues=8,
        published="sv",
        chat=ChatSeat(prices="10/100"),
    )
    result = ATTACK_TABLE.run(asked, tmp_path / "run", Silent())
    table = result.tables["All attacks"]
    assert [row[0] for row in table.rows] == [
        "no attack", "transfer", "refined tactic", "chat player, no tactic", "tactics drawn blind"
    ]  # fmt: skip
    assert {"answers", "tokens read", "answers before", "cost"} <= set(table.columns)
    assert "advantage, forced, published" not in table.columns, "no published target is like it"
    before = {
        row: result.metrics[f"attacks.{row}.answers_before"].value for row in ("none", "transfer", "tactic-none", "tactic")
    }
    assert before["none"] == before["transfer"] == before["tactic-none"] == 0
    tried = (RunFolder.load(tmp_path / "run" / "tactic").metrics())["refined.calls"].value
    assert before["tactic"] == tried > 2
    used = (RunFolder.load(tmp_path / "run").summary() or {})[USAGE]
    costs = [result.metrics[f"attacks.{row}.cost"].value for row in ("none", "transfer", "tactic")]
    assert sum(costs) == pytest.approx(used["cost"])
    assert "Tactics: the attacker" in table.note
    again = ATTACK_TABLE.run(asked, tmp_path / "run", Silent())
    assert again.metrics == result.metrics
    few = replace(asked, rows="none", dialogues=2, chat=ChatSeat())
    unpriced = ATTACK_TABLE.run(few, tmp_path / "unpriced", Silent()).tables["All attacks"]
    assert "answers" in unpriced.columns
    assert "cost" not in unpriced.columns, "nobody knows it without prices"


def test_a_table_warns_of_what_its_rows_lost_and_counts_all_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChatSeat, "max_no_reply", 0.01)
    asked = TableConfig(
        target=thinker(tmp_path, 10), speaker="scripted", rows="none,transfer", dialogues=24,
        transfer=TransferSettings(sentence="no deal"),
    )  # fmt: skip
    result = ATTACK_TABLE.run(asked, tmp_path / "run", Silent())
    parts = [read_json(tmp_path / "run" / row / "summary.json")[USAGE] for row in ("none", "transfer")]
    assert result.chat_usage["asked"] == sum(part["asked"] for part in parts)
    kinds = sum((Counter(part["kinds"]) for part in parts), Counter[str]())
    assert result.chat_usage["kinds"] == kinds
    assert set(kinds) & set(NO_REPLIES)
    lost = {row: sum(one["status"] == "error" for one in rows(tmp_path / "run" / row)) for row in ("none", "transfer")}
    for row, num in lost.items():
        assert num
        assert any(warning.startswith(f"{row}: {num} of 24 items failed") for warning in result.warnings)
    assert any("are no reply" in warning for warning in result.warnings)


@pytest.mark.ray
def test_no_time_is_foretold_of_a_training_against_a_chat_model(
    tmp_path: Path, root: Path, trainee: Path, ray_session: RaySession
) -> None:
    notes = Notes()
    asked = TableConfig(
        target=talker(tmp_path),
        speaker=str(trainee),
        rows="rl",
        corpus=CORPUS,
        data_root=root,
        reinforce=REINFORCE,
        dialogues=2,
    )
    ATTACK_TABLE.run(asked, tmp_path / "run", notes)
    (told,) = [line for line in notes.said if "is trained first" in line]
    assert "4 updates of 6 dialogues, 24 dialogues with a chat model" in told
    assert "minutes" not in told


def test_a_sentence_that_cannot_be_said_is_told_before_anything_is_played(tmp_path: Path) -> None:
    asked = TableConfig(
        target=talker(tmp_path),
        speaker="scripted",
        rows="none,transfer",
        transfer=TransferSettings(sentence="zyzzyva"),
        dialogues=2,
    )
    with pytest.raises(ConfigError, match="zyzzyva"):
        ATTACK_TABLE.run(asked, tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_a_row_of_tactics_needs_who_writes_them() -> None:
    with pytest.raises(ConfigError, match="--attacker"):
        TableConfig(target="scripted", rows="none,tactic")


@pytest.mark.ray
@pytest.mark.slow
def test_a_campaign_asks_its_partner_as_the_settings_say(
    tmp_path: Path, root: Path, trainee: Path, ray_session: RaySession
) -> None:
    model = talker(tmp_path, "decoding.max_tokens != 9")
    plain = OpponentConfig(partner_share=0.5)
    asked = campaign(
        root, trainee, partner=model, rounds=1, opponents=plain, adversaries="mixture", chat=ChatSeat(max_tokens=9)
    )
    result = MINMAX.run(asked, tmp_path / "run", Silent())
    assert result.metrics["plain_agreement"].n == 6, "it failed in no dialogue"
    used = (RunFolder.load(tmp_path / "run").summary() or {})[USAGE]
    parts = [each for path in (tmp_path / "run").glob("*/summary.json") if (each := read_json(path).get(USAGE))]
    assert used["asked"] == sum(each["asked"] for each in parts) > 0


def _stages(path: Path) -> dict[str, Path]:
    return {"run": path, **{name: path / name for name in ("adversary", "attack", "choosing", "best")}}


def test_a_tactic_is_told_to_a_chat_model_and_to_nobody_else(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a tactic needs a chat model"):
        SELFPLAY.run(match("scripted", tactic="Sulk."), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["hf:nowhere", "gguf:nowhere.gguf", "openai:http://here/v1"])
def test_an_address_with_nothing_behind_it_is_told_before_there_is_a_run(tmp_path: Path, name: str) -> None:
    assert is_weightless(name)
    assert checkpoint_folder(name) is None
    for ask in (lambda: require_partner(name, "--target"), lambda: SELFPLAY.run(match(name), tmp_path / "run", Silent())):
        with pytest.raises((CheckpointError, ConfigError), match=r"there is none|names a URL and a model"):
            ask()
    assert not (tmp_path / "run").exists()


SCORER = """
from parley.policies.chat.model import ReplyScore
class Scorer:
    def reply(self, messages): return "hello"
    def score(self, chats, replies):
        for chat, reply in zip(chats, replies):
            assert chat[-1].role == "user" and "worth" in chat[0].content
        return [ReplyScore(-2.0 * len(reply.split()), len(reply.split())) for reply in replies]
"""


def test_it_judges_what_was_said_where_it_tells_likelihoods(tmp_path: Path) -> None:
    (tmp_path / "scorer.py").write_text(SCORER)
    judge = f"{tmp_path}/scorer.py:Scorer"
    result = SELFPLAY.run(match("scripted", judge=judge, max_turns=3), tmp_path / "run", Silent())
    forced = 0
    for row in rows(tmp_path / "run"):
        forced += row["forced"]
        turns = row["turns"][:-1] if row["forced"] else row["turns"]
        for side, name in enumerate(("adversary", "target")):
            said = [len(turn["words"].split()) for turn in turns if turn["side"] == side]
            assert row[f"nll_{name}"] == 2.0 * sum(said)
    assert forced, "an end that a limit forces is nobody's"
    assert 1 < result.metrics["fluency_ppl"].value < 7.4
    assert f"fluency as {judge} finds it" in str((RunFolder.load(tmp_path / "run").summary() or {})["description"])


@pytest.mark.parametrize(
    ("judge", "told"), [("openai:http://127.0.0.1:9/v1#m", "a server does not"), ("talker.py:Talker", "needs scores")]
)
def test_a_judge_that_tells_no_likelihoods_is_refused_before_there_is_a_run(tmp_path: Path, judge: str, told: str) -> None:
    talker(tmp_path)
    named = judge if judge.startswith("openai:") else f"{tmp_path}/{judge}"
    with pytest.raises(ConfigError, match=told):
        SELFPLAY.run(match("scripted", judge=named), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_a_function_of_messages_is_a_chat_model_at_the_table(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def reply(messages):\n    return 'no deal' if 'in one line' in messages[-1]['content'] else '<selection>'\n"
        "def bot(vocabulary):\n    raise RuntimeError('a maker of an agent')\n"
    )
    result = SELFPLAY.run(match(f"{tmp_path}/mine.py:reply"), tmp_path / "run", Silent())
    assert result.metrics["chat_answers_adversary"].value > 1
    with pytest.raises(ConfigError, match="a maker of an agent"):
        SELFPLAY.run(match(f"{tmp_path}/mine.py:bot"), tmp_path / "other", Silent())
