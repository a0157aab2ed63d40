"""An adversary that adds searched words to an utterance, against a chat model whose weights are readable.

At its first own turn with n utterances behind it the adversary says its speaker's utterance and a few searched words; then it
ends the talk. The search makes two answers of the target likely at once, as the reactive attack does (Cheng et al. 2019,
section 5.1.1): the target ends the talk, and then makes the wanted choice. Of the legal choices whose advantage reaches the
goal, the wanted one is the likeliest before the attack; if none reaches it, the one with the largest advantage.

  # Paper: words are replaced. Ours: words are added, because a chat model reads any text, as suffixes of Zou et al. 2023 are.
  # Ours: whether the target ends the talk is part of the loss and no constraint, because a chat model seldom does.

The loss reads both answers behind the talk. The wanted choice, the target's choice and the goal follow the target's own rule
(`ChatNegotiator.choice_scores`: behind the talk less behind the question alone).
  # Ours: no margin over rival choices. Each would be one more reading of the prompt for every candidate, and a difference
  # of losses can be below 0, by which `UniversalScorer` could no longer prune.

The search is a parameter (`Search`): `engine/negotiation/verbs/trigger.py` composes it from the parts of `parley search`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parley.engine.negotiation.attacks.adversary import AttackLog, Attempt
from parley.engine.negotiation.attacks.candidates import ReplacementResult, ReplacementStep
from parley.engine.negotiation.attacks.choices import Values
from parley.envs.core.play import Session, Utterances
from parley.envs.negotiation.domain import SELECTION, SELECTION_ID, Vocabulary, split_text
from parley.envs.negotiation.game import Agent, SideView
from parley.policies.chat import negotiator as bargaining
from parley.policies.chat.model import Chat
from parley.policies.chat.negotiator import ChatNegotiator
from parley.policies.chat.newest import first_that_fit, newest_forms

KIND = "reactive"
"""Kind of the attempts: the target should end the talk right after them."""


@dataclass(frozen=True)
class SearchedTalk:
    """The talk in which words are searched.

    Args:
        base: the text before them in the same utterance.
        vocabulary: the words in which the game writes utterances.
        prompts: prompts of the target, with a slot `{}` after the base, and the wanted answer to each.
        seed: seed of the search.
    """

    base: str
    vocabulary: Vocabulary
    prompts: Sequence[tuple[Chat, str]]
    seed: int

    def written(self, text: str) -> str:
        """Return the words after the base as the game writes them; the full utterance if they change the base."""
        written = " ".join(split_text(self.base + text, self.vocabulary))
        extends_base = not self.base or written.startswith(f"{self.base} ")
        return written.removeprefix(self.base) if extends_base else written


@dataclass(frozen=True)
class WordsResult:
    """The result of a search.

    Args:
        text: text to say after the base; empty if no result can be said.
        candidates: number of tried candidates.
    """

    text: str
    candidates: int


Search = Callable[[SearchedTalk], WordsResult]


class TriggerAgent:
    """An `Agent` that speaks through another one, and says searched words once.

    Args:
        speaker: the agent that speaks at all other turns.
        target: the attacked model; its likelihoods decide.
        search: function that searches the words.
        most: largest number of added words.
        turn: least number of utterances before them.
        goal: least advantage in points of a wanted choice.
    """

    def __init__(self, speaker: Agent, target: ChatNegotiator, search: Search, *, most: int, turn: int, goal: float) -> None:
        self.name = f"trigger through {speaker.name}"
        self.vocabulary: Vocabulary = speaker.vocabulary
        self.speaker, self.target, self.search = speaker, target, search
        self.most, self.turn, self.goal = most, turn, goal

    def join(self, view: SideView) -> TriggerSession:
        """Join a batch of dialogues; the session also reads the target's view."""
        return TriggerSession(self, view)


class TriggerSession:
    """The adversary's part in a batch of dialogues, and its attacks in `logs`."""

    def __init__(self, agent: TriggerAgent, view: SideView) -> None:
        self._agent, self._view, self._opponent = agent, view, view.opponent()
        self.inner: Session = agent.speaker.join(view)
        self._spent = np.zeros(len(view), dtype=bool)
        self._values = Values.of(np.stack([view.contexts, self._opponent.contexts]), view.domain)
        self.logs = [AttackLog() for _ in range(len(view))]

    def speak(self, rows: np.ndarray) -> Utterances:
        """Attack in the dialogues whose turn has come, end those after an attack, and speak in the others."""
        ended = rows[self._spent[rows]]
        words_by_row: dict[int, list[int]] = {row: [SELECTION_ID] for row in ended.tolist()}
        left = rows[~self._spent[rows]]
        if left.size:
            spoken = self.inner.speak(left)
            words_by_row |= {row: spoken.tokens[i, : spoken.lengths[i]].tolist() for i, row in enumerate(left.tolist())}
        due = left[self._view.num_turns[left] >= self._agent.turn]
        self._spent[due] = True
        words_by_row |= {row: self._attack(row, words_by_row[row]) for row in due.tolist()}
        return Utterances.of([words_by_row[row] for row in rows.tolist()])

    def choose(self, rows: np.ndarray) -> np.ndarray:
        """Return the speaker's choice; the complementary rule does not ask for it."""
        return self.inner.choose(rows)

    def _attack(self, row: int, spoken: Sequence[int]) -> list[int]:
        """Return the attack's utterance in place of the speaker's."""
        agent, view = self._agent, self._view
        words = split_text(" ".join(word for word in view.written(spoken) if word != SELECTION), view.vocabulary)
        # Leave room for the added words and the end.
        base = " ".join(words[: max(0, view.rules.max_words - agent.most - 1)])
        before = self._reply(row, base)
        wanted = self._wanted_choice(row, before)
        slot = [(False, f"{base}{{}}")]
        prompts = [
            (bargaining.talk(self._opponent, row, agent.target.tactic, slot), SELECTION),
            (
                bargaining.choice(self._opponent, row, agent.target.tactic, [*slot, (True, SELECTION)]),
                bargaining.choices(view.domain, self._counts(row))[wanted],
            ),
        ]
        seed = int(view.generator(row).integers(2**31))
        words_result = agent.search(SearchedTalk(base, view.vocabulary, prompts, seed))
        text = f"{base}{words_result.text}"
        sentence, after = view.encode(text), self._reply(row, text)
        points = [int(table[row, after.argmax()]) for table in (self._values.adversary, self._values.target)]
        reached = bool(points[0] - points[1] >= agent.goal)
        is_end = self._end_probability(row, text, 0.0) == 1
        likely = self._end_probability(row, text, agent.target.decoding.temperature)
        log = self.logs[row]
        log.reads, log.decisions = words_result.candidates, len(before) + len(after)
        start = ReplacementStep(-1, -1, False, float(-before[wanted]), self._points(row, before), 0, len(before))
        last = ReplacementStep(len(words), -1, False, float(-after[wanted]), (points[0], points[1]), log.reads, log.decisions)
        result = ReplacementResult(np.array(sentence), (start, last), reached, is_end, likely, log.reads, log.decisions)
        turn, position = int(view.num_turns[row]), int(view.num_tokens[row]) + 1
        log.attempts.append(Attempt(turn, KIND, np.array(view.encode(base)), np.array(sentence), position, result))
        return sentence

    def _counts(self, row: int) -> tuple[int, ...]:
        return tuple(self._opponent.contexts[row, ::2].tolist())

    def _reply(self, row: int, text: str) -> np.ndarray:
        then = [(False, text), (True, SELECTION)]
        chat = bargaining.choice(self._opponent, row, self._agent.target.tactic, then)
        return self._agent.target.choice_scores([chat], self._view.domain, [self._counts(row)])[0]

    def _end_probability(self, row: int, text: str, temperature: float) -> float:
        target = self._agent.target
        forms = newest_forms(bargaining.talk(self._opponent, row, target.tactic, [(False, text)]))
        # A store of answers may wrap the model.
        model: Any = getattr(target.model, "inner", target.model)
        fits = first_that_fit(lambda _, form: [model.probability(forms[form], SELECTION, temperature)], [len(forms)])
        return float(fits[0][1])

    def _wanted_choice(self, row: int, scores: np.ndarray) -> int:
        advantage = self._values.advantage[row, : len(scores)]
        enough = advantage >= self._agent.goal
        return int(np.argmax(np.where(enough, scores, -np.inf))) if enough.any() else int(advantage.argmax())

    def _points(self, row: int, scores: np.ndarray) -> tuple[int, int]:
        best = int(scores.argmax())
        return int(self._values.adversary[row, best]), int(self._values.target[row, best])
