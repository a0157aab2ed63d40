"""Recorded negotiations as lessons of a chat model's seat: what it reads as in play, what it learns, how words are counted."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parley.engine.chat.games.negotiation import RecordedNegotiations, seat_dialogue
from parley.engine.chat.supervised import ChatBase, perplexities
from parley.engine.chat.verbs.train_chat import TRAIN_CHAT, TrainChatConfig, chat_recipe
from parley.engine.core.cli.main import main
from parley.engine.core.verbs.api import run_verb
from parley.engine.core.verbs.job import Silent
from parley.envs.core.config import as_now, to_dict
from parley.envs.core.errors import ConfigError
from parley.envs.core.play import Utterances
from parley.envs.negotiation.corpora.dealornodeal import DialogueRecord, parse_line
from parley.envs.negotiation.domain import DISAGREE, DISCONNECT, NO_AGREEMENT
from parley.envs.negotiation.game import NegotiationGame
from parley.policies.chat import negotiator as bargaining
from parley.policies.chat.local import LocalChatModel
from parley.policies.chat.model import Access, Chat, ReplyScore
from parley.policies.chat.predictor import ChatPredictor
from parley.policies.chat.settings import ChatSeat
from tests.engine.chat.test_train_chat import saved_base
from tests.engine.core.verbs.made_up import CORPUS, data_root, rows
from tests.policies.byte_pairs import TURN_ID
from tests.policies.chat.architectures import drawn_model

TALK = "THEM: the hat is mine <eos> YOU: then zebras for me <eos> THEM: deal <eos> YOU: <selection>"
DEAL = "item0=1 item1=0 item2=3 item0=0 item1=2 item2=0"


def record(talk: str = TALK, output: str = DEAL) -> DialogueRecord:
    return parse_line(
        f"<input> 1 4 2 0 3 2 </input> <dialogue> {talk} </dialogue> <output> {output} </output> "
        "<partner_input> 1 0 2 2 3 2 </partner_input>"
    )


def partner_of(view: DialogueRecord) -> DialogueRecord:
    turns = tuple(turn._replace(is_you=not turn.is_you) for turn in view.turns)
    return DialogueRecord(view.scenario.swapped(), turns, (*view.output[3:], *view.output[:3]))


@pytest.mark.parametrize("side", [0, 1])
def test_a_seat_learns_behind_the_messages_that_it_reads_in_play(side: int) -> None:
    recorded = record() if side == 0 else partner_of(record())
    scenario = record().scenario
    game = NegotiationGame([scenario], [0], scenario.domain.vocabulary(), first_speakers=[1])
    view, rows, played = game.view(side), np.arange(1), []
    for turn in record().turns:
        speaker = int(game.to_move[0])
        if speaker == side:
            played.append(bargaining.talk(view, 0))
        game.say(rows, Utterances.of([game.utterance(speaker, turn.words)]))
    dialogue = seat_dialogue(recorded)
    own = [" ".join(turn.words) for turn in recorded.turns if turn.is_you]
    assert list(dialogue.moves) == list(zip(played, own, strict=True))
    assert dialogue.question == bargaining.choice(view, 0)
    chat, answer = dialogue.learned[-1]
    assert chat == dialogue.question
    taken = recorded.output[: len(scenario.counts)]
    assert answer == ("book 1, hat 0, ball 3" if side == 0 else "book 0, hat 2, ball 0"), taken
    assert bargaining.read_choice(scenario.domain, scenario.counts, answer) == dialogue.selection


def test_a_choice_is_learned_if_both_sides_made_it_together() -> None:
    (chat, answer) = seat_dialogue(record(output=" ".join([NO_AGREEMENT] * 6))).learned[-1]
    assert (chat[-1].role, answer) == ("user", "no deal")
    for refusal in (DISAGREE, DISCONNECT):
        dialogue = seat_dialogue(record(output=" ".join([refusal] * 6)))
        assert dialogue.selection is None
        assert dialogue.learned == dialogue.moves


def test_words_of_both_views_are_those_that_the_recurrent_agents_read() -> None:
    views = record(), partner_of(record())
    assert sum(seat_dialogue(view).num_words for view in views) == len(record().tokens)
    assert seat_dialogue(record()).num_words == len(["YOU:", "then", "zebras", "for", "me", "<eos>", "YOU:", "<selection>"])


def test_both_views_of_a_dialogue_are_one_unit_of_the_intervals() -> None:
    model, tokenizer = drawn_model("llama")
    base, predictor = ChatBase("hf:x", LocalChatModel("x", model, tokenizer), TURN_ID, 10_000), ChatPredictor(model)
    talks = TALK, TALK.replace("zebras", "a ball"), TALK.replace("the hat is mine", "no hats at all for you my friend")
    for num_views in (1, 2):
        dialogues = [seat_dialogue(view) for talk in talks for view in (record(talk), partner_of(record(talk)))[:num_views]]
        lessons = base.lessons([one.moves for one in dialogues], [one.unit for one in dialogues])
        assert len(lessons) == len(dialogues) == 3 * num_views
        assert [figure.n for figure in perplexities(predictor, lessons, 20).values()] == [3, 3]


class Chooser:
    """Finds one reply likelier than the others."""

    name, access = "chooser", Access.SCORES

    def __init__(self, reply: str) -> None:
        self._reply = reply

    def score(self, chats: Sequence[Chat], replies: Sequence[str]) -> list[ReplyScore]:
        """Score behind a whole chat; the question alone says nothing."""
        whole = [len(chat) > 1 for chat in chats]
        return [ReplyScore(-1.0 - (long and reply != self._reply), 3) for long, reply in zip(whole, replies, strict=True)]


def test_choices_are_counted_right_where_a_choice_was_recorded() -> None:
    outputs = [DEAL, DEAL, " ".join([NO_AGREEMENT] * 6), " ".join([DISAGREE] * 6)]
    talks = [TALK, TALK.replace("then", "so"), TALK.replace("deal", "no"), TALK]
    dialogues = [seat_dialogue(record(talk, output)) for talk, output in zip(talks, outputs, strict=True)]
    game = RecordedNegotiations("embedded", None)

    def accuracy(reply: str) -> tuple[float, int]:
        model: Any = Chooser(reply)
        figure = game.measure(lambda: model, dialogues)["selection_accuracy"]
        return figure.value, figure.n

    assert accuracy("book 1, hat 0, ball 3") == (pytest.approx(2 / 3), 3)
    assert accuracy("no deal") == (pytest.approx(1 / 3), 3)
    assert accuracy("book 0, hat 0, ball 0") == (0.0, 3)
    assert game.measure(lambda: pytest.fail("loaded"), dialogues[3:]) == {}


def test_settings_of_earlier_versions_are_those_of_the_secret_game() -> None:
    stored = to_dict(TrainChatConfig(base="hf:b", role="defender"))
    assert as_now(TrainChatConfig, {name: value for name, value in stored.items() if name not in ("game", "corpus")}) == stored


def test_one_side_of_a_negotiation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="leave --role out"):
        TRAIN_CHAT.prepare(TrainChatConfig(base="hf:b", game="negotiation", role="attacker"), tmp_path / "run", Silent())


def test_a_trained_negotiator_is_measured_as_it_plays_and_takes_a_seat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("peft", reason="the extra lora is not installed")
    base = saved_base(tmp_path / "base")
    run, fit = tmp_path / "run", replace(chat_recipe(), learning_rate=3e-2, batch_size=4, max_epochs=2)
    recorded = {"corpus": CORPUS, "data_root": data_root(tmp_path / "data")}
    result = run_verb("train chat", run=run, base=f"hf:{base}", game="negotiation", limit=6, fit=fit, **recorded)
    metrics = result.metrics
    for split in ("validation", "test"):
        assert (f"{split}_nll_before" in metrics) == (split == "test"), "learning does not wait for the other split"
        assert metrics[f"{split}_nll"].value > 0
        assert 0 <= metrics[f"{split}_selection_accuracy"].value <= 1
    assert metrics["test_ppl_word"].value < metrics["test_ppl_word_before"].value
    assert metrics["test_nll"].value < metrics["test_nll_before"].value
    assert result.next_commands[-1].startswith(f"parley selfplay --adversary hf:{run} --target hf:{base}")
    played = run_verb(
        "selfplay",
        run=tmp_path / "play",
        adversary=f"hf:{run}",
        target="scripted",
        dialogues=2,
        max_turns=2,
        chat=ChatSeat(max_tokens=4),
    )
    assert played.metrics["advantage"].n == 2
    seat = ChatSeat(max_tokens=4, batch_size=4)
    settings = {"adversaries": f"scripted,hf:{run}", "dialogues": 2, "chat": seat}
    matrix = run_verb("evaluate population", run=tmp_path / "matrix", targets=f"hf:{run},hf:{base}", **settings)
    met = {(row["target"], row["adversary"]) for row in rows(tmp_path / "matrix")}
    assert met == {(f"hf:{target}", name) for target in (run, base) for name in ("scripted", f"hf:{run}")}
    assert not matrix.warnings
    monkeypatch.setattr(sys, "stdin", io.StringIO("i want the ball\n/deal\nnone\n"))
    assert main(["play", f"hf:{run}", "--temperature", "0"]) == 0
    assert "partner chose" in capsys.readouterr().err
