"""A chat model as an agent that negotiates: it speaks by text, and chooses among the legal selections.

A model with scores chooses the selection that the dialogue makes most likelier (temperature 0), or draws one. Any other model
is asked, and asked once more if its answer is no legal selection; then its choice is illegal, which is no agreement.
`ChatMoves` counts every answer of another form, and nothing is guessed for the model.

An answer that is no reply (cut in thinking, filtered, ...) is no utterance and no choice. If the model draws, it is asked once
more; then the dialogue is lost, and the kind of the answer is the reason.

The system message holds the rules, the items and their values to the model's side: the content of its `SideView` and no more.
Messages of the partner are those of the user, its own those of the assistant. `<selection>` alone ends the talk.

A choice is one line in the words of `Domain.describe`, such as "book 1, hat 0, ball 2", or "no deal". No other text is read as
one: a sentence with numbers may mean the other side's.

The seed of an answer depends on the dialogue's seed, the side and the words so far, so rows do not depend on their batch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from copy import copy
from functools import lru_cache
from typing import cast

import numpy as np

from parley.envs.core.play import Utterances
from parley.envs.negotiation.domain import SELECTION, SELECTION_ID, Domain, Numbers, Vocabulary
from parley.envs.negotiation.game import SideView
from parley.policies.chat.model import SEEDS, Access, Answer, Chat, ChatModel, ChatMoves, Message, ScoringChatModel, merged
from parley.policies.chat.newest import SeatedChatModel, newest_forms, score_newest
from parley.policies.chat.settings import MAX_SEAT_TOKENS


def nats_by_chat(model: ScoringChatModel, chats: Sequence[Chat], replies: Sequence[Sequence[str]]) -> list[np.ndarray]:
    """Return the log probabilities (m,) of the replies to each chat, in nats; a chat too long is read in its newest form."""
    scores = score_newest(model, [newest_forms(chat) for chat in chats], replies)
    return [np.array([score.nats for score in reply_scores]) for reply_scores in scores]


def drawn(nats: np.ndarray, temperature: float, generator: np.random.Generator) -> int:
    """Return the index of the largest of `nats` (m,) at temperature 0, else one drawn from their softmax."""
    # The argmax of scores with Gumbel noise is a draw from their softmax.
    noise = temperature * generator.gumbel(size=len(nats)) if temperature else 0.0
    return int(np.argmax(nats + noise))


NO_DEAL = "no deal"
SILENCE = "..."
"""Text of an utterance without words, because messages must not be empty."""
BEGINNING = "You speak first."
"""The user's message if the model's side begins."""
_BETWEEN = re.compile(r"[\s,;:=]+")
_AROUND = " \t\r\n\"'`*."
_LAST_WORD = re.compile(r"(\S+) [^\s,]+(?=,|$)")


def instructions(view: SideView, row: int, tactic: str = "") -> str:
    """Return the instructions before a dialogue: the rules, items and values, how to speak and how to end.

    Args:
        view: of its side.
        row: the dialogue.
        tactic: of a user's or an attacker's own, added at the end; empty for none.
    """
    counts, values = view.contexts[row, ::2].tolist(), view.contexts[row, 1::2].tolist()
    items = (
        f"- {item}: {count} there, worth {value} point{'s' * (value != 1)} to you{' each' * (count > 1)}"
        for item, count, value in zip(view.domain.items, counts, values, strict=True)
    )
    parts = [
        view.domain.how_to_play,
        "\n".join(items),
        "Your partner has other points for them, which you do not see. Get as many points for yourself as you can.",
        f"Each time write what you say to your partner next, in one short line, and nothing else. When you two have agreed, or "
        f"there is no more to say, write {SELECTION} and nothing else: it ends the talk.",
    ]
    return "\n\n".join([*parts, f"Your tactic: {tactic}"] if tactic else parts)


def talk(view: SideView, row: int, tactic: str = "", then: Sequence[tuple[bool, str]] = ()) -> Chat:
    """Return the messages that a model answers with its next utterance; the last is the user's, and roles alternate.

    Args:
        view: of its side.
        row: the dialogue.
        tactic: as in `instructions`.
        then: turns that have not been said, as if they had: whether each is its own, and its words.
    """
    return _talk(view, row, [*view.turns(row), *then], tactic)


def before(view: SideView, row: int, turn: int) -> Chat:
    """Return the messages that the side's own utterance at a turn answered."""
    return _talk(view, row, view.turns(row)[:turn])


def _talk(view: SideView, row: int, turns: Sequence[tuple[bool, str]], tactic: str = "") -> Chat:
    messages = [Message("user", BEGINNING)] if not turns or turns[0][0] else []
    messages += [Message("assistant" if is_own else "user", words or SILENCE) for is_own, words in turns]
    return Message("system", instructions(view, row, tactic)), *merged(messages)


def choice(view: SideView, row: int, tactic: str = "", then: Sequence[tuple[bool, str]] = ()) -> Chat:
    """Return the messages that a model answers with its choice; arguments as of `talk`."""
    head, *messages = talk(view, row, tactic, then)
    return head, *merged([*messages, Message("user", f"The talk has ended. {_form(view, row)}")])


def seat_moves(view: SideView, row: int, turns: Sequence[tuple[bool, str]]) -> list[tuple[Chat, str]]:
    """Return what a side reads before each of its utterances in a dialogue, and the utterance.

    Args:
        view: of the side, before the dialogue.
        row: the dialogue.
        turns: of the whole dialogue: whether each is its own, and its words.
    """
    own = (number for number, (is_own, _) in enumerate(turns) if is_own)
    return [(talk(view, row, then=turns[:number]), turns[number][1] or SILENCE) for number in own]


def question(domain: Domain, counts: Numbers) -> Chat:
    """Return the question for a choice alone: no rules, no values and no talk before it."""
    return (Message("user", _question(domain, counts)),)


def repair(question: Chat, answer: str, view: SideView, row: int) -> Chat:
    """Return the messages that ask once more, after an answer that was no choice."""
    more = Message("assistant", answer), Message("user", f"That cannot be read. {_form(view, row)}")
    return *question, *more


def choices(domain: Domain, counts: Numbers) -> list[str]:
    """Return the legal answers to `choice`: every deal in the order of the selections, and then no deal."""
    return [domain.describe(counts, deal) for deal in range(domain.selections(counts).no_agreement)] + [NO_DEAL]


def read_choice(domain: Domain, counts: Numbers, text: str) -> int | None:
    """Return the selection that an answer names; None for an answer of another form."""
    named = _readings(domain, counts).get(_plain(text))
    return domain.read_selection(counts, text.strip(_AROUND)) if named is None else named


@lru_cache(maxsize=256)
def _readings(domain: Domain, counts: Numbers) -> dict[str, int]:
    return {_plain(written): selection for selection, written in enumerate(choices(domain, counts))}


def _plain(text: str) -> str:
    return " ".join(filter(None, _BETWEEN.split(text.strip(_AROUND).lower())))


def _form(view: SideView, row: int) -> str:
    return _question(view.domain, tuple(view.contexts[row, ::2].tolist()))


def _question(domain: Domain, counts: Numbers) -> str:
    form = _LAST_WORD.sub(r"\1 ...", domain.describe(counts, 0))
    return (
        f"Write what you get, in one line of this form and nothing else: {form} ({domain.question(counts)}). "
        f"If you found no deal, write: {NO_DEAL}"
    )


_MARKER = re.compile(re.escape(SELECTION), re.IGNORECASE)
_QUOTES = " \t\r\n\"'`*"


class ChatNegotiator(SeatedChatModel):
    """A chat model as an `Agent`.

    Args:
        name: the model's address, and its name in reports.
        load: gives the model; called when it is first needed.
        vocabulary: of the game; any word can be said.
        temperature: of its answers; 0 takes the likeliest.
        tactic: instructions beside the rules; empty for none.
        max_tokens: tokens of an answer at most.
    """

    def __init__(
        self,
        name: str,
        load: Callable[[], ChatModel],
        vocabulary: Vocabulary,
        temperature: float = 0.5,
        tactic: str = "",
        max_tokens: int = MAX_SEAT_TOKENS,
    ) -> None:
        super().__init__(name, load, temperature, max_tokens)
        self.name, self.vocabulary, self.tactic = name, vocabulary, tactic
        self._alone: dict[Numbers, np.ndarray] = {}

    def with_tactic(self, tactic: str) -> ChatNegotiator:
        """Return a copy with a tactic; both share the loaded model."""
        _ = self.model
        other = copy(self)
        other.tactic = tactic
        return other

    def join(self, view: SideView) -> ChatSession:
        """Return a session on one side of a batch of dialogues."""
        return ChatSession(self, self.model, view)

    def choice_scores(self, chats: Sequence[Chat], domain: Domain, counts: Sequence[Numbers]) -> list[np.ndarray]:
        """Return how much a chat makes each legal choice likelier than the question alone does, in nats.

        The probability of an answer depends as much on its form as on the deal: the shortest wins, or the one that repeats the
        question. Dividing by the probability behind the question alone leaves the effect of rules, values and talk
        (domain-conditional mutual information, Holtzman et al. 2021, "Surface form competition").

        Args:
            chats: chats that end in the question.
            domain: the game.
            counts: of each chat's items.

        Returns:
            The scores (m,) of the legal choices behind each chat.
        """
        legal = {items: choices(domain, items) for items in counts}
        model = cast("ScoringChatModel", self.model)
        for items in legal.keys() - self._alone.keys():
            (self._alone[items],) = nats_by_chat(model, [question(domain, items)], [legal[items]])
        in_chat = nats_by_chat(model, chats, [legal[items] for items in counts])
        return [nats - self._alone[items] for nats, items in zip(in_chat, counts, strict=True)]


class ChatSession:
    """A chat model's part in a batch of dialogues.

    Args:
        agent: the agent that plays.
        model: the model that answers.
        view: the view of its side.

    Attributes:
        moves: its counters, one for each dialogue.
    """

    def __init__(self, agent: ChatNegotiator, model: ChatModel, view: SideView) -> None:
        self._agent, self._model, self._view = agent, model, view
        self.moves = [ChatMoves() for _ in range(len(view))]

    def speak(self, rows: np.ndarray) -> Utterances:
        """Return the model's next utterance in each of the dialogues `rows` (n,), asked in one call.

        Raises:
            NoReplyError: the model gave no reply in some dialogues; so does `choose`.
            AgentError: it failed; so does `choose`.
        """
        chats = [talk(self._view, row, self._agent.tactic) for row in rows.tolist()]
        answers = self._answers(rows, chats, [self._view.generator(row) for row in rows.tolist()])
        return Utterances.of([self._utterance(row, answer) for row, answer in zip(rows.tolist(), answers, strict=True)])

    def choose(self, rows: np.ndarray) -> np.ndarray:
        """Return the choice in each of the dialogues `rows` (n,); one beyond the legal ones if it cannot be read."""
        chats = [choice(self._view, row, self._agent.tactic) for row in rows.tolist()]
        draws = [self._view.generator(row) for row in rows.tolist()]
        if self._model.access >= Access.SCORES:
            return self._scored(rows, chats, draws)
        answers = self._answers(rows, chats, draws)
        chosen = [self._read(row, answer) for row, answer in zip(rows.tolist(), answers, strict=True)]
        again = [i for i, selection in enumerate(chosen) if selection is None]
        if again:
            repairs = [repair(chats[i], answers[i].text, self._view, int(rows[i])) for i in again]
            mended = self._answers(rows[again], repairs, [draws[i] for i in again])
            for i, answer in zip(again, mended, strict=True):
                self.moves[int(rows[i])].repairs += 1
                chosen[i] = self._read(int(rows[i]), answer)
        illegal = [len(self._view.selections(row)) for row in rows.tolist()]
        selections = (beyond if selection is None else selection for selection, beyond in zip(chosen, illegal, strict=True))
        return np.fromiter(selections, dtype=np.int64, count=len(rows))

    def _answers(self, rows: np.ndarray, chats: Sequence[Chat], draws: Sequence[np.random.Generator]) -> list[Answer]:
        seeds = [int(generator.integers(SEEDS)) for generator in draws]
        return self._agent.replies(rows.tolist(), chats, seeds, self._note)

    def _note(self, row: int, answer: Answer) -> None:
        moves = self.moves[row]
        moves.answers += 1
        moves.tokens_in += answer.num_prompt_tokens or 0
        moves.tokens_out += answer.num_tokens or 0
        if not answer.is_reply:
            setattr(moves, answer.kind.column, getattr(moves, answer.kind.column) + 1)

    def _utterance(self, row: int, answer: Answer) -> list[int]:
        text, moves = answer.text.strip(_QUOTES), self.moves[row]
        if text.lower() == SELECTION:
            return [SELECTION_ID]
        words, marks = _MARKER.subn(" ", text)
        ids = self._view.encode(words)
        moves.mixed_ends += marks > 0
        moves.wordless += len(ids) == 1
        moves.cut += not answer.ended or len(ids) > self._view.rules.max_words
        return ids

    def _read(self, row: int, answer: Answer) -> int | None:
        return read_choice(self._view.domain, self._counts(row), answer.text)

    def _scored(self, rows: np.ndarray, chats: Sequence[Chat], draws: Sequence[np.random.Generator]) -> np.ndarray:
        with self._agent.as_agent_errors():
            scores = self._agent.choice_scores(chats, self._view.domain, [self._counts(row) for row in rows.tolist()])
        temperature = self._agent.decoding.temperature
        chosen = []
        for row, row_scores, generator in zip(rows.tolist(), scores, draws, strict=True):
            self.moves[row].scored += len(row_scores)
            chosen.append(drawn(row_scores, temperature, generator))
        return np.array(chosen, dtype=np.int64)

    def _counts(self, row: int) -> tuple[int, ...]:
        return tuple(self._view.contexts[row, ::2].tolist())
