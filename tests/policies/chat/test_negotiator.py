"""A chat model at the table: what it is told, what is read of its answers, and what is counted where it breaks the form."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict

import numpy as np
import pytest

from parley.envs.core.errors import ModelError
from parley.envs.core.play import AgentError, Utterances
from parley.envs.negotiation.domain import Scenario, domain_of, domains
from parley.envs.negotiation.game import NegotiationGame, Rules, play
from parley.envs.negotiation.scripted.bargainers import scripted
from parley.policies.chat import negotiator as bargaining
from parley.policies.chat.model import Access, Answer, Chat, ChatDecoding, ChatMoves, NoReplyError, ReplyScore
from parley.policies.chat.negotiator import ChatNegotiator, ChatSession

SCENARIO = Scenario((1, 2, 3), ((0, 2, 2), (4, 0, 2)))
WORDS = SCENARIO.domain.vocabulary()


class Scripted:
    """Says what a function of a chat says, one call after the other."""

    name, access = "fake", Access.TEXT

    def __init__(self, say: Callable[[Chat, int], str | Answer]) -> None:
        self._say = say
        self.calls: list[list[Chat]] = []

    def answer(self, chats: Sequence[Chat], *, decoding: ChatDecoding, seeds: Sequence[int] = ()) -> list[Answer]:
        self.calls.append(list(chats))
        said = [self._say(chat, seed) for chat, seed in zip(chats, seeds, strict=True)]
        return [Answer(text, "stop", 7, 3) if isinstance(text, str) else text for text in said]


class Scoring(Scripted):
    """Prefers replies by a function of them."""

    access = Access.SCORES

    def __init__(self, say: Callable[[Chat, int], str], nats: Callable[[Chat, str], float]) -> None:
        super().__init__(say)
        self._nats = nats
        self.scored: list[Chat] = []

    def score(self, chats: Sequence[Chat], replies: Sequence[str]) -> list[ReplyScore]:
        self.scored += chats
        return [ReplyScore(self._nats(*pair), len(pair[1].split())) for pair in zip(chats, replies, strict=True)]


def is_choice(chat: Chat) -> bool:
    return "in one line of this form" in chat[-1].content


def seated(model: Scripted, count: int = 2, temperature: float = 0.0, **more: object) -> tuple[NegotiationGame, ChatSession]:
    """Dialogues in which the model sits on side 0 and begins."""
    agent = ChatNegotiator("fake", lambda: model, WORDS, temperature, **more)  # type: ignore[arg-type]  # checked by its calls
    game = NegotiationGame([SCENARIO] * count, range(count), WORDS, Rules(max_turns=6), [0] * count)
    return game, agent.join(game.view(0))


def test_it_is_told_the_rules_and_its_own_side_alone_and_hears_the_partner_as_the_user() -> None:
    model = Scripted(lambda chat, seed: "I want 2 hats!")
    game, session = seated(model, tactic="Sulk.")
    rows = np.arange(2)
    game.say(rows, session.speak(rows))
    game.say(rows, scripted(WORDS).join(game.view(1)).speak(rows))
    session.speak(rows)
    first, second = model.calls
    assert len(first) == 2, "all dialogues are asked about in one call"
    system, opening = first[0]
    assert [system.role, opening.role, opening.content] == ["system", "user", bargaining.BEGINNING]
    assert "- hat: 2 there, worth 2 points to you each" in system.content
    assert "4 points" not in system.content, "what the partner's side sees is not told"
    assert system.content.endswith("Your tactic: Sulk.")
    assert [message.role for message in second[0]] == ["system", "user", "assistant", "user"]
    assert second[0][2].content == "i want 2 hats !"


def test_only_the_marker_alone_ends_the_talk_and_what_breaks_the_form_is_counted() -> None:
    answers = {
        0: " <Selection>\n",
        1: "deal! <selection>",
        2: '""',
        3: Answer("I want ", finish_reason="length"),
        4: "ball " * 200,
    }
    said = iter(answers.values())
    game, session = seated(Scripted(lambda chat, seed: next(said)), len(answers))
    rows = np.arange(len(answers))
    game.say(rows, session.speak(rows))
    assert [words for row in rows.tolist()[:4] for _, words in game.transcript(row)] == [
        ["<selection>"], ["deal", "!"], [], ["i", "want"]
    ]  # fmt: skip
    assert [(one.mixed_ends, one.wordless, one.cut) for one in session.moves] == [
        (0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 1)
    ]  # fmt: skip
    assert session.moves[0] == ChatMoves(answers=1, tokens_in=7, tokens_out=3)


NO_ANSWERS = {
    "cut in thinking": Answer("", "length", reasoning="Okay, let me"),
    "only thinking": Answer("", "stop", reasoning="Okay."),
    "refused": Answer("", "refusal", withheld="I cannot."),
    "filtered": Answer("", "content_filter", withheld="I want"),
    "tool call": Answer("", "tool_calls"),
    "empty": Answer(""),
}


@pytest.mark.parametrize("kind", NO_ANSWERS)
def test_an_answer_that_is_no_reply_is_no_utterance_but_the_end_of_its_dialogue(kind: str) -> None:
    model = Scripted(lambda chat, seed: NO_ANSWERS[kind] if next(order) == 1 else "3 balls")
    order = itertools.count()
    _, session = seated(model, 3)
    with pytest.raises(NoReplyError, match=f"no answer \\({kind}\\)") as told:
        session.speak(np.arange(3))
    assert told.value.rows == (1,)
    assert len(model.calls) == 1, "at temperature 0 the answer would be the same"
    counted = asdict(session.moves[1])
    assert {name: counted[name] for name in counted if counted[name] and "tokens" not in name} == {
        "answers": 1,
        kind.replace(" ", "_"): 1,
    }


def test_who_draws_is_asked_once_more_with_another_seed_where_that_can_help() -> None:
    def answer(chat: Chat, seed: int) -> Answer | str:
        seeds.append(seed)
        return NO_ANSWERS["empty"] if len(seeds) == 1 else "3 balls"

    seeds: list[int] = []
    _, session = seated(Scripted(answer), temperature=0.5)
    session.speak(np.arange(1))
    assert seeds[1] == seeds[0] + 1
    assert (session.moves[0].answers, session.moves[0].empty) == (2, 1)
    _, session = seated(Scripted(lambda chat, seed: NO_ANSWERS["filtered"]), temperature=0.5)
    with pytest.raises(NoReplyError):
        session.speak(np.arange(1))
    assert session.moves[0].answers == 1, "what moderation stopped stays stopped"


def test_a_choice_that_is_no_reply_is_none_of_the_unreadable_ones() -> None:
    game, session = seated(Scripted(lambda chat, seed: NO_ANSWERS["only thinking"] if is_choice(chat) else "<selection>"))
    game.say(np.arange(1), session.speak(np.arange(1)))
    with pytest.raises(NoReplyError):
        session.choose(np.arange(1))
    assert (session.moves[0].repairs, session.moves[0].only_thinking) == (0, 1)


@pytest.mark.parametrize("name", list(domains))
def test_every_selection_is_read_from_what_it_is_asked_in(name: str) -> None:
    domain = domain_of(name)
    counts = domain.random_scenario(np.random.default_rng(0)).counts
    legal = bargaining.choices(domain, counts)
    assert len(legal) == domain.selections(counts).no_agreement + 1
    for selection, written in enumerate(legal):
        assert bargaining.read_choice(domain, counts, f' "{written.upper()}."\n') == selection
        assert bargaining.read_choice(domain, counts, written.replace(",", ";").replace(" ", ": ")) == selection
    for wrong in ("", "I take it all", legal[1] + " please", "99 99 99", "<illegal>"):
        assert bargaining.read_choice(domain, counts, wrong) is None


def test_a_choice_that_cannot_be_read_is_asked_for_once_more_and_is_then_illegal() -> None:
    def say(chat: Chat, seed: int) -> str:
        if not is_choice(chat):
            return "<selection>"
        repaired = "cannot be read" in chat[-1].content
        return {0: "book 1, hat 2, ball 0", 1: "hat 2 please" if not repaired else "0 2 0", 2: "all!"}[number(chat)]

    def number(chat: Chat) -> int:
        return order.pop(0) if order else 0

    order = [0, 1, 2, 1, 2]
    game, session = seated(Scripted(say), 3)
    rows = np.arange(3)
    game.say(rows, session.speak(rows))
    chosen = session.choose(rows)
    own = game.scenarios[0].selections.chooser_items
    assert own[chosen[0]].tolist() == [1, 2, 0]
    assert own[chosen[1]].tolist() == [0, 2, 0]
    assert chosen[2] == len(own), "beyond the legal ones"
    assert [one.repairs for one in session.moves] == [0, 1, 1]


def test_a_model_that_scores_takes_the_likeliest_legal_choice_and_draws_at_a_temperature() -> None:
    def nats(chat: Chat, reply: str) -> float:
        if len(chat) == 1:
            return -99.0
        return -0.5 if reply == "book 0, hat 2, ball 1" else -1.0 if reply == "no deal" else -99.0

    found = {}
    for temperature in (0.0, 1.0):
        model = Scoring(lambda chat, seed: "<selection>", nats)
        game, session = seated(model, 40, temperature)
        rows = np.arange(40)
        game.say(rows, session.speak(rows))
        chosen = session.choose(rows)
        found[temperature] = sorted(set(chosen.tolist()))
        assert len(model.calls) == 1, "nothing is asked for a choice"
        assert session.moves[0].scored == 25
    likeliest = int(np.flatnonzero((SCENARIO.selections.chooser_items == [0, 2, 1]).all(1))[0])
    assert found == {0.0: [likeliest], 1.0: [likeliest, SCENARIO.selections.no_agreement]}


def test_seeds_follow_from_the_dialogue_and_not_from_its_company() -> None:
    def say(chat: Chat, seed: int) -> str:
        return "<selection>" if len(chat) > 5 else f"word{seed}"

    def played(rows: Sequence[int]) -> list[list[tuple[int, list[str]]]]:
        agent = ChatNegotiator("fake", lambda: Scripted(say), WORDS, 1.0)
        game = NegotiationGame([SCENARIO] * len(rows), rows, WORDS)
        return [play(game, (agent, scripted(WORDS))).transcript(row) for row in range(len(rows))]

    together = played([5, 6, 7])
    assert together == [played([seed])[0] for seed in (5, 6, 7)]
    words = [word for turns in together for side, said in turns if side == 0 for word in said if word.startswith("word")]
    assert len(words) == len(set(words)) > 3, "every turn has a seed of its own"


def test_a_model_that_fails_loses_the_dialogue() -> None:
    def say(chat: Chat, seed: int) -> str:
        raise ModelError("no answer", where="fake", fix="wait")

    _, session = seated(Scripted(say))
    with pytest.raises(AgentError, match="no answer"):
        session.speak(np.arange(2))


def test_the_form_of_a_choice_does_not_win_but_what_the_talk_makes_likelier() -> None:
    agreed, copied = "book 0, hat 2, ball 1", "book 0, hat 0, ball 0"

    def nats(chat: Chat, reply: str) -> float:
        form = {bargaining.NO_DEAL: -1.0, copied: -2.0}.get(reply, -40.0)
        heard = any("2 hats and a ball" in message.content for message in chat)
        return form + (3.0 if heard and reply == agreed else 0.0)

    found = []
    for said in ("you can have 2 hats and a ball", "hello"):
        model = Scoring(lambda chat, seed: "hello", nats)
        game, session = seated(model)
        rows = np.arange(2)
        game.say(rows, session.speak(rows))
        game.say(rows, Utterances.of([game.view(1).encode(said)] * 2))
        found.append(SCENARIO.selections.chooser_items[session.choose(rows)].tolist())
        asked = [chat for chat in model.scored if len(chat) == 1]
        assert len(set(asked)) == 1, "the question alone"
        assert len(asked) == 25, "once for all dialogues with these items"
    assert found[0] == [[0, 2, 1]] * 2
    assert found[1] == [[0, 0, 0]] * 2, "nothing became likelier: the first of equal ones"


def test_tactics_share_one_copy_of_the_weights() -> None:
    loaded: list[Scripted] = []

    def load() -> Scripted:
        loaded.append(Scripted(lambda chat, seed: "hello"))
        return loaded[-1]

    agent = ChatNegotiator("fake", load, WORDS)
    models = {id(agent.with_tactic(tactic).model) for tactic in ("beg", "lie")}
    assert (len(loaded), models, agent.tactic) == (1, {id(agent.model)}, "")
