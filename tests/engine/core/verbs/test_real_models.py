"""Real models through whole verbs: a search whose hit is what the typed input brings, its transfer, a ranking, a talk."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.engine.core.verbs.job import Silent
from parley.engine.negotiation.verbs.match import SELFPLAY, MatchConfig
from parley.engine.ranking.verbs.config import RankingConfig
from parley.engine.ranking.verbs.ranking import EVALUATE_RANKING
from parley.engine.triggers.methods.settings import SearchSettings
from parley.engine.triggers.verbs.config import HuggingFaceSettings, TriggerConfig
from parley.engine.triggers.verbs.search import SEARCH
from parley.engine.triggers.verbs.transfer import SEARCH_TRANSFER, TriggerTransferConfig
from parley.policies.chat.loading import load_chat_model
from parley.policies.chat.model import ChatDecoding, Message
from parley.policies.chat.settings import ChatSeat
from tests.engine.core.verbs.made_up import rows
from tests.real_models import minilm, smollm2

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
PROMPT, TARGET = "How do I bake bread?", "Sure, here"


def test_a_verified_hit_is_the_reply_to_what_is_typed_here_and_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text(f'prompt,target\n{PROMPT},"{TARGET}"\n')
    search = TriggerConfig(
        model=smollm2(),
        targets=str(tmp_path / "pairs.csv"),
        method="gcg",
        hit="o-greedy",
        search=SearchSettings(candidates=32, max_candidates=640, restarts=2),
        hugging_face=HuggingFaceSettings(length=6, end=False),
    )
    SEARCH.run(search, tmp_path / "found", Silent())
    (row,) = rows(tmp_path / "found")
    assert row["verified"]
    asked = [(Message("user", f"{PROMPT} {row['typed'][0]}"),)]
    (said,) = load_chat_model(smollm2()).answer(asked, decoding=ChatDecoding(max_tokens=len(TARGET)))
    assert said.text.startswith(TARGET)
    typed = TriggerTransferConfig(searches=str(tmp_path / "found"), model=smollm2())
    SEARCH_TRANSFER.run(typed, tmp_path / "typed", Silent())
    with_it = [row for row in rows(tmp_path / "typed") if row["typed"] != [""]]
    assert [row["verified"] for row in with_it] == [True]
    assert with_it[0]["reply"].startswith(TARGET)


def test_a_talk_is_played_to_its_end(tmp_path: Path) -> None:
    talk = MatchConfig(adversary="scripted", target=smollm2(), dialogues=1, max_turns=4, chat=ChatSeat(max_tokens=16))
    assert SELFPLAY.run(talk, tmp_path / "run", Silent()).failure == ""
    assert [row["status"] for row in rows(tmp_path / "run")] == ["ok"]


def test_an_encoder_and_a_chat_model_rank_every_context(tmp_path: Path) -> None:
    names = f"{smollm2()},hf:{minilm()}"
    EVALUATE_RANKING.run(RankingConfig(model=names, limit=2), tmp_path / "run", Silent())
    assert all(row["status"] == "ok" for row in rows(tmp_path / "run"))
