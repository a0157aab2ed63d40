"""An adversary that says searched words to a chat model whose weights are read, within the talk.

At its first own turn with n utterances behind it the adversary says what its speaker would say, and behind that a few searched
words; then it ends the talk. The words are searched so that two answers of the target become likely at once, as the reactive
attack of Cheng et al. 2019 (section 4.3) asks for: that it ends the talk right there, and that it then chooses what pays the
adversary. What is wanted is of all legal choices that pay the adversary enough more the one that the target finds likeliest
as things stand, or the one that pays most where none pays enough.

  # Paper: words are replaced. Ours: words are added, because a chat model reads any text, as suffixes of Zou et al. 2023 are.
  # Ours: whether the target ends the talk is part of the loss and no constraint, because a chat model seldom does.

What is made likely are both answers behind the talk; what is wanted, what the target would choose and whether the goal is
reached go by the target's own rule (`ChatNegotiator.choice_scores`: behind the talk less behind the question alone).
  # Ours: no margin over rival choices. Each would be one more reading of the prompt for every candidate, and a difference
  # of losses can be below 0, by which `UniversalScorer` could no longer prune.

How words are searched is handed in (`Search`): `engine/negotiation/verbs/trigger.py` composes it of what `parley search` has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from parley.engine.negotiation.attacks.adversary import AttackLog, Attempt
from parley.engine.negotiation.attacks.candidates import Found, ReplacementStep
from parley.engine.negotiation.attacks.choices import Values
from parley.envs.core.play import Session, Utterances
from parley.envs.negotiation.domain import SELECTION, SELECTION_ID, Vocabulary, split_text
from parley.envs.negotiation.game import Agent, SideView
from parley.policies.chat import negotiator as bargaining
from parley.policies.chat.model import Chat, ScoringChatModel
from parley.policies.chat.negotiator import ChatNegotiator, nats_by_chat

KIND = "reactive"
"""Kind of the attempts: the target is wanted to end the talk right after them."""


@dataclass(frozen=True)
class SearchedTalk:
    """Where words are searched.

    Args:
        base: what stands before them in the same utterance.
        vocabulary: by whose words the game writes utterances down.
        prompts: what the target reads, a slot `{}` behind the base, and what it shall answer to each.
        seed: of the search.
    """

    base: str
    vocabulary: Vocabulary
    prompts: Sequence[tuple[Chat, str]]
    seed: int

    def written(self, text: str) -> str:
        """What the game makes of words behind the base; of what changes the base's own words the whole utterance."""
        whole = " ".join(split_text(self.base + text, self.vocabulary))
        apart = not self.base or whole.startswith(f"{self.base} ")
        return whole.removeprefix(self.base) if apart else whole


@dataclass(frozen=True)
class WordsResult:
    """What a search came to.

    Args:
        text: to be said behind the base; empty where nothing was found that can be said.
        candidates: that were tried.
    """

    text: str
    candidates: int


Search = Callable[[SearchedTalk], WordsResult]


class TriggerAgent:
    """An `Agent` that speaks through another one, and says searched words once.

    Args:
        speaker: who speaks at all other turns.
        target: the attacked model; its likelihoods decide.
        search: finds words.
        most: words that a search adds at most.
        turn: utterances that must be behind them.
        goal: advantage in points from which a choice is wanted.
    """

    def __init__(self, speaker: Agent, target: ChatNegotiator, search: Search, *, most: int, turn: int, goal: float) -> None:
        self.name = f"trigger through {speaker.name}"
        self.vocabulary: Vocabulary = speaker.vocabulary
        self.speaker, self.target, self.search = speaker, target, search
        self.most, self.turn, self.goal = most, turn, goal

    def join(self, view: SideView) -> TriggerSession:
        """Takes a seat; it also looks at what the target sees."""
        return TriggerSession(self, view)


class TriggerSession:
    """The adversary's part in a batch of dialogues, and what it did in each: `logs`."""

    def __init__(self, agent: TriggerAgent, view: SideView) -> None:
        self._agent, self._view, self._opponent = agent, view, view.opponent()
        self.inner: Session = agent.speaker.join(view)
        self._spent = np.zeros(len(view), dtype=bool)
        self._values = Values.of(np.stack([view.contexts, self._opponent.contexts]), view.domain)
        self.logs = [AttackLog() for _ in range(len(view))]

    def speak(self, rows: np.ndarray) -> Utterances:
        """Attacks in the dialogues whose turn it is, ends those in which it has attacked, and speaks in the others."""
        ended = rows[self._spent[rows]]
        said: dict[int, list[int]] = {row: [SELECTION_ID] for row in ended.tolist()}
        left = rows[~self._spent[rows]]
        if left.size:
            spoken = self.inner.speak(left)
            said |= {row: spoken.tokens[i, : spoken.lengths[i]].tolist() for i, row in enumerate(left.tolist())}
        due = left[self._view.num_turns[left] >= self._agent.turn]
        self._spent[due] = True
        said |= {row: self._attacked(row, said[row]) for row in due.tolist()}
        return Utterances.of([said[row] for row in rows.tolist()])

    def choose(self, rows: np.ndarray) -> np.ndarray:
        """What the speaker would choose; under the complementary rule nobody asks."""
        return self.inner.choose(rows)

    def _attacked(self, row: int, spoken: Sequence[int]) -> list[int]:
        """What is said in the place of the speaker's utterance."""
        agent, view = self._agent, self._view
        words = split_text(" ".join(word for word in view.written(spoken) if word != SELECTION), view.vocabulary)
        # Room for the words that are added, and the end.
        base = " ".join(words[: max(0, view.rules.max_words - agent.most - 1)])
        before = self._reply(row, base)
        wanted = self._wanted(row, before)
        slot = [(False, f"{base}{{}}")]
        prompts = [
            (bargaining.talk(self._opponent, row, agent.target.tactic, slot), SELECTION),
            (bargaining.choice(self._opponent, row, agent.target.tactic, [*slot, (True, SELECTION)]), self._legal(row)[wanted]),
        ]
        seed = int(view.generator(row).integers(2**31))
        found = agent.search(SearchedTalk(base, view.vocabulary, prompts, seed))
        text = f"{base}{found.text}"
        sentence, after = view.encode(text), self._reply(row, text)
        points = [int(table[row, after.argmax()]) for table in (self._values.adversary, self._values.target)]
        reached = bool(points[0] - points[1] >= agent.goal)
        ends = self._ends(row, text)
        log = self.logs[row]
        log.reads, log.decisions = found.candidates, len(before) + len(after)
        start = ReplacementStep(-1, -1, False, float(-before[wanted]), self._points(row, before), 0, len(before))
        last = ReplacementStep(len(words), -1, False, float(-after[wanted]), (points[0], points[1]), log.reads, log.decisions)
        result = Found(np.array(sentence), (start, last), reached, ends > 0.5, ends, log.reads, log.decisions)
        turn, place = int(view.num_turns[row]), int(view.num_tokens[row]) + 1
        log.attempts.append(Attempt(turn, KIND, np.array(view.encode(base)), np.array(sentence), place, result))
        return sentence

    def _legal(self, row: int) -> list[str]:
        return bargaining.choices(self._view.domain, self._counts(row))

    def _counts(self, row: int) -> tuple[int, ...]:
        return tuple(self._opponent.contexts[row, ::2].tolist())

    def _reply(self, row: int, said: str) -> np.ndarray:
        """The target's scores (m,) of its legal choices if it ended the talk after these words."""
        then = [(False, said), (True, SELECTION)]
        chat = bargaining.choice(self._opponent, row, self._agent.target.tactic, then)
        return self._agent.target.choice_scores([chat], self._view.domain, [self._counts(row)])[0]

    def _ends(self, row: int, said: str) -> float:
        """How likely the target answers these words by ending the talk, as a beginning of what it says."""
        chat = bargaining.talk(self._opponent, row, self._agent.target.tactic, [(False, said)])
        return float(np.exp(nats_by_chat(self._model, [chat], [[SELECTION]])[0][0]))

    def _wanted(self, row: int, scores: np.ndarray) -> int:
        advantage = self._values.advantage[row, : len(scores)]
        enough = advantage >= self._agent.goal
        return int(np.argmax(np.where(enough, scores, -np.inf))) if enough.any() else int(advantage.argmax())

    def _points(self, row: int, scores: np.ndarray) -> tuple[int, int]:
        best = int(scores.argmax())
        return int(self._values.adversary[row, best]), int(self._values.target[row, best])

    @property
    def _model(self) -> ScoringChatModel:
        return cast(ScoringChatModel, self._agent.target.model)
