"""The white-box adversary: the turns of its searches, and its sentences if a search fails (Cheng et al. 2019, section 5).

  * reactive, preemptive: one search at a fixed turn, the first own turn with n utterances behind it. The adversary says its
    result whether or not it reaches the goal. At all other turns it speaks through its speaker; after a preemptive sentence
    it says `<selection>`.
  * ra-pa-da, ra-pa-ta (algorithm 1): a reactive search at every own turn; if that fails, a preemptive one. If both fail, the
    adversary says the speaker's sentence, which delays the attack (DA), or from `transfer_turn` utterances on a sentence that
    won elsewhere (TA).

# Paper: algorithm 1 says a sentence whose loss is below 0, so after which the target would choose from O'. Ours: one that gains
# 5 points, or a preemptive one 2 (`SearchConfig.goal`), near the released code's limits of the loss, -5 and -2.
# Paper: TA draws from its list at any turn; silent on a speaker that ends the talk. Ours: from `transfer_turn` on; it does not.
# Released: each search begins with a newly sampled sentence, and a third is said when both fail; sentences of up to three
# tokens are not attacked. Ours: one sentence a turn, the one that the speaker would have said; its length does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from parley.engine.negotiation.attacks.replacement import ExchangeBatch, ReplacementResult, preemptive, reactive
from parley.engine.negotiation.attacks.settings import FIXED_TURN_KINDS, AttackKind, SearchConfig
from parley.engine.negotiation.attacks.tactics import PAPER_TURN
from parley.engine.negotiation.defences import FilteredView, PerplexityFilter
from parley.envs.core.play import Session, Utterances
from parley.envs.negotiation.domain import EOS_ID, SELECTION_ID, Vocabulary
from parley.envs.negotiation.game import SideView
from parley.policies.negotiator.speaker import NegotiatorAgent


@dataclass(frozen=True)
class Attempt:
    """A sentence that the adversary said because of an attack.

    Args:
        turn: number of utterances before it.
        kind: "reactive", "preemptive" or "transfer".
        base: the speaker's sentence before the search, word ids, `<eos>` last.
        sentence: the sentence that was said, word ids.
        start: tokens of the dialogue before its first word, the speaker's marker included.
        result: the result of the search; None for a transfer.
    """

    turn: int
    kind: str
    base: np.ndarray
    sentence: np.ndarray
    start: int
    result: ReplacementResult | None

    @property
    def replaced(self) -> list[int]:
        """Return the positions of the words that the search changed or added; none for a transfer."""
        if self.result is None:
            return []
        words, base = (ids[ids != EOS_ID].tolist() for ids in (self.sentence, self.base))
        return [position for position, word in enumerate(words) if position >= len(base) or word != base[position]]


@dataclass
class AttackLog:
    """The adversary's attacks in one dialogue.

    Args:
        attempts: sentences said, in order.
        reads: candidates that the target's reader scored, failed searches included.
        decisions: choices that the target was asked for.
        kept_out: candidates that were too perplexing for a query.
    """

    attempts: list[Attempt] = field(default_factory=list)
    reads: int = 0
    decisions: int = 0
    kept_out: int = 0

    @property
    def forced_points(self) -> tuple[int, int] | None:
        """Return the points of the first reactive sentence that keeps the constraint, if the target then ends the talk.

        None without such a sentence. The soft constraint is always kept: the released code forces every end.
        """
        for attempt in self.attempts:
            if attempt.kind == "reactive" and attempt.result and not attempt.result.steps[-1].broken:
                adversary, target = attempt.result.steps[-1].points
                return int(adversary), int(target)
        return None


class SearchAgent:
    """An `Agent` that speaks through a model and searches for sentences that mislead its target.

    Args:
        speaker: the agent whose sentences the search starts from.
        target: the attacked agent; its networks are read.
        kind: the attack.
        search: the settings of the search.
        turn: for a fixed turn, the least number of utterances before it.
        sentences: for ra-pa-ta, the sentences to plug in, word ids with `<eos>` last.
        transfer_turn: for ra-pa-ta, the least number of utterances before a plugged-in sentence.
        fluency: a filter that candidates must pass; None for all sentences.
        target_filter: the target's own filter, which the attack knows; None for none.
    """

    def __init__(
        self,
        speaker: NegotiatorAgent,
        target: NegotiatorAgent,
        kind: AttackKind,
        search: SearchConfig,
        turn: int,
        sentences: Sequence[np.ndarray] = (),
        transfer_turn: int = PAPER_TURN,
        fluency: PerplexityFilter | None = None,
        target_filter: PerplexityFilter | None = None,
    ) -> None:
        assert (kind == "ra-pa-ta") == bool(sentences), "sentences are for ra-pa-ta and nothing else"
        self.name = f"{kind} through {speaker.name}"
        self.vocabulary: Vocabulary = speaker.vocabulary
        self.speaker, self.target, self.kind, self.search, self.turn = speaker, target, kind, search, turn
        self.sentences, self.transfer_turn = sentences, transfer_turn
        self.fluency, self.target_filter = fluency, target_filter
        # This speaker cannot end the talk, so that its sentence always has words to replace.
        self.talker = NegotiatorAgent(speaker.model, speaker.name, speaker.temperature, forbidden=(SELECTION_ID,))

    def __repr__(self) -> str:
        return f"SearchAgent({self.kind!r}, {self.speaker!r}, target={self.target!r}, {self.search!r})"

    def join(self, view: SideView) -> SearchSession:
        """Join a batch of dialogues; the session also reads the target's view."""
        return SearchSession(self, view)


class SearchSession:
    """The adversary's part in a batch of dialogues, and its attacks in `logs`."""

    def __init__(self, agent: SearchAgent, view: SideView) -> None:
        self._agent, self._view = agent, view
        self._filtered = None if agent.target_filter is None else FilteredView(view.opponent(), agent.target_filter)
        self._opponent = view.opponent() if self._filtered is None else self._filtered
        self._speaker: Session = agent.speaker.join(view)
        self._about_to_end = np.zeros(len(view), dtype=bool)
        self._spent = np.zeros(len(view), dtype=bool)
        self.logs = [AttackLog() for _ in range(len(view))]

    def speak(self, rows: np.ndarray) -> Utterances:
        """Attack in the dialogues whose turn has come, and speak in the others."""
        ending, spent = rows[self._about_to_end[rows]], rows[~self._about_to_end[rows] & self._spent[rows]]
        words_by_row: dict[int, np.ndarray] = {row: np.array([SELECTION_ID]) for row in ending.tolist()}
        if spent.size:
            words_by_row |= _sentences(spent, self._speaker.speak(spent))
        waiting = np.setdiff1d(rows, np.concatenate([ending, spent]))
        if waiting.size:
            # A new session, because a session assumes that its sampled words were said.
            bases = _sentences(waiting, self._agent.talker.join(self._view).speak(waiting))
            due = waiting
            if self._agent.kind in FIXED_TURN_KINDS:
                due = waiting[self._view.num_turns[waiting] >= self._agent.turn]
                self._spent[due] = True
            words_by_row |= bases | self._attack(due, bases)
        return Utterances.of([words_by_row[row] for row in rows.tolist()])

    def choose(self, rows: np.ndarray) -> np.ndarray:
        """Return the speaker's choice; the complementary rule does not ask for it."""
        return self._speaker.choose(rows)

    def _attack(self, due: np.ndarray, bases: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
        """Return the attacks' sentences by dialogue."""
        agent, kind, spoken = self._agent, self._agent.kind, {}
        generators = {row: self._view.generator(row) for row in due.tolist()}
        fixed = kind in FIXED_TURN_KINDS
        if kind != "preemptive":
            for row, result in self._search("reactive", due, bases, generators).items():
                if result.reached or fixed:
                    spoken[row] = self._note("reactive", row, bases[row], result.sentence, result)
        # After a fixed reactive attack no dialogue is left.
        left = np.array([row for row in due.tolist() if row not in spoken], dtype=np.int64)
        for row, result in self._search("preemptive", left, bases, generators).items():
            if result.reached or fixed:
                spoken[row] = self._note("preemptive", row, bases[row], result.sentence, result)
                self._about_to_end[row] = True
        if kind == "ra-pa-ta":
            for row in due[self._view.num_turns[due] >= agent.transfer_turn].tolist():
                if row not in spoken:
                    sentence = agent.sentences[int(generators[row].integers(len(agent.sentences)))]
                    spoken[row] = self._note("transfer", row, bases[row], sentence, None)
        return spoken

    def _search(
        self,
        kind: Literal["reactive", "preemptive"],
        rows: np.ndarray,
        bases: Mapping[int, np.ndarray],
        generators: Mapping[int, np.random.Generator],
    ) -> dict[int, ReplacementResult]:
        if not rows.size:
            return {}
        view, opponent = self._view, self._opponent
        if self._filtered is not None:
            self._filtered.listen(rows)
        contexts = np.stack([view.contexts[rows], opponent.contexts[rows]])
        exchanges = ExchangeBatch(contexts, opponent.tokens[rows], opponent.num_tokens[rows])
        search = reactive if kind == "reactive" else preemptive
        sentences, draws = [bases[row] for row in rows.tolist()], [generators[row] for row in rows.tolist()]
        results = search(self._agent.target, exchanges, sentences, self._agent.search, draws, self._agent.fluency)
        for row, result in zip(rows.tolist(), results, strict=True):
            self.logs[row].reads += result.reads
            self.logs[row].decisions += result.decisions
            self.logs[row].kept_out += result.kept_out
        return dict(zip(rows.tolist(), results, strict=True))

    def _note(
        self, kind: str, row: int, base: np.ndarray, sentence: np.ndarray, result: ReplacementResult | None
    ) -> np.ndarray:
        turn, start = int(self._view.num_turns[row]), int(self._view.num_tokens[row]) + 1
        self.logs[row].attempts.append(Attempt(turn, kind, base, sentence, start, result))
        return sentence


def _sentences(rows: np.ndarray, utterances: Utterances) -> dict[int, np.ndarray]:
    """Return each utterance by its dialogue, with an `<eos>` added where a limit cut it off."""
    sentences = {}
    for i, row in enumerate(rows.tolist()):
        words = utterances.tokens[i, : utterances.lengths[i]]
        sentences[row] = words if words[-1] in (EOS_ID, SELECTION_ID) else np.append(words, EOS_ID)
    return sentences
