"""Defences of a target that is not trained again: a filter of the sentences that it hears, and a refusal to end.

  * Perplexity filter: a sentence of the other side whose perplexity under a language model is above a limit is not heard. The
    target hears one `<unk>` in its place, which it knows from training as a missed word, and answers that.
  * Own demand: the target does not say `<selection>` if its choice would then be worth less to it than its last demand for
    itself, or than a share it took (`last_demand` in `envs/negotiation/scripted/bargainers.py`). It says that demand again. It
    refuses only its own end: if the other side or a limit ends the talk, the target chooses as usual.

A defended agent is an `Agent` around any other. Neither defence reads anything that the target does not see: sentences are
judged as the listener reads them, by its own values and after its own dialogue.

Source: Cheng et al. 2019 do not try a filter; word-level perplexity as a defence is Alon and Kamfonas 2023, arXiv:2308.14132.
# There: perplexity under GPT-2 and a classifier on top. Ours: a judge of the same corpus, one limit.

Shapes: n dialogues, T tokens.
"""

from __future__ import annotations

from typing import ClassVar, cast

import numpy as np

from parley.engine.negotiation.attacks.candidates import Candidates, ExchangeBatch
from parley.engine.negotiation.attacks.settings import DefenceConfig
from parley.envs.core.errors import ConfigError
from parley.envs.core.play import Session, Utterances, agent_errors
from parley.envs.core.storage.copies import fetched_model
from parley.envs.negotiation.agents import is_chat_model
from parley.envs.negotiation.domain import DEAL_OR_NO_DEAL, EOS_ID, PAD_ID, SELECTION, SELECTION_ID, UNK, UNK_ID, Vocabulary
from parley.envs.negotiation.game import Agent, SideView
from parley.envs.negotiation.scripted.bargainers import Demand, last_demand
from parley.policies.chat import negotiator as bargaining
from parley.policies.chat.model import Message, ScoringChatModel
from parley.policies.chat.seat import chat_model
from parley.policies.chat.settings import ChatSeat
from parley.policies.negotiator.model import Negotiator, token_nll
from parley.policies.negotiator.speaker import load_model

DEFAULT = ChatSeat()
CANDIDATES_PER_PASS = 8192
"""Candidates of a search that are judged side by side."""


class PerplexityFilter:
    """A filter that stops sentences with a perplexity above a limit.

    Args:
        model: the judge.
        limit: the highest perplexity that passes; per token of the sentence, its `<eos>` included.

    Attributes:
        num_plain: largest number of dialogues that are judged to find a limit; enough for a share of a few per cent.
    """

    num_plain: ClassVar[int] = 2000

    def __init__(self, model: Negotiator, limit: float) -> None:
        self.model, self.limit = model, limit
        self.vocabulary: Vocabulary = model.vocabulary

    def __repr__(self) -> str:
        return f"{type(self).__name__}(limit={self.limit:g})"

    def perplexities(
        self, contexts_n6: np.ndarray, tokens_nT: np.ndarray, starts_n: np.ndarray, ends_n: np.ndarray
    ) -> np.ndarray:
        """Return the perplexity (n,) of the last sentence of each dialogue, as the side with those contexts reads it.

        Args:
            contexts_n6: count and own value of each item in turn.
            tokens_nT: dialogues, padded, the sentence last.
            starts_n: tokens before the sentence's first word, the speaker's marker included.
            ends_n: tokens up to the sentence's end.
        """
        nats_nT = token_nll(self.model, contexts_n6, tokens_nT, ends_n)
        positions = np.arange(tokens_nT.shape[1])
        said_nT = (positions >= starts_n[:, None]) & (positions < ends_n[:, None])
        with np.errstate(over="ignore"):
            return np.exp((nats_nT * said_nT).sum(1) / (ends_n - starts_n))

    def passes(self, perplexities: np.ndarray) -> np.ndarray:
        """Return a mask of the perplexities that pass; NaN does not."""
        return perplexities <= self.limit


class TextFilter(PerplexityFilter):
    """A filter by a chat model, which reads a sentence as text (Jain et al. 2023, arXiv:2309.00614, section 3.1).

    Each sentence is scored alone, as an answer to `bargaining.BEGINNING`: neither values nor talk stand before it.
    # Jain et al.: perplexity of a prompt under the attacked model itself. Ours: of a sentence, under the named model.

    Args:
        model: the judge.
        vocabulary: the judged words.
        limit: the highest perplexity that passes; per token of the model's own, the sentence's end left out.
    """

    # Such a model takes at least half a second for a sentence.
    num_plain = 200

    def __init__(self, model: ScoringChatModel, vocabulary: Vocabulary, limit: float) -> None:
        self._scorer, self.vocabulary, self.limit = model, vocabulary, limit

    def perplexities(
        self, contexts_n6: np.ndarray, tokens_nT: np.ndarray, starts_n: np.ndarray, ends_n: np.ndarray
    ) -> np.ndarray:
        """Return the perplexity (n,) of the last sentence of each dialogue, see `PerplexityFilter`; 1 without words.

        Raises:
            AgentError: the model cannot read a sentence.
        """
        spans = zip(tokens_nT, starts_n.tolist(), ends_n.tolist(), strict=True)
        texts = [self._text(row_T[start:end]) for row_T, start, end in spans]
        distinct = [text for text in dict.fromkeys(texts) if text]
        with agent_errors():
            scores = self._scorer.score([(Message("user", bargaining.BEGINNING),)] * len(distinct), distinct)
        with np.errstate(over="ignore"):
            perplexities = {
                text: np.exp(-score.nats / max(score.num_tokens, 1)) for text, score in zip(distinct, scores, strict=True)
            }
        return np.array([perplexities.get(text, 1.0) for text in texts])

    def _text(self, ids: np.ndarray) -> str:
        return " ".join(self.vocabulary.words[word] for word in ids.tolist() if word not in (EOS_ID, PAD_ID))


def load_filter(
    judge: str, limit: float, vocabulary: Vocabulary, device: str = "cpu", seat: ChatSeat = DEFAULT
) -> PerplexityFilter:
    """Load a filter with a judge.

    Args:
        judge: a checkpoint folder, or a chat model that gives likelihoods.
        limit: the highest perplexity that passes.
        vocabulary: the words that a chat model judges; a checkpoint has its own.
        device: the judge's device.
        seat: how a chat model is loaded.

    Raises:
        CheckpointError: the judge is damaged.
    """
    if is_chat_model(judge):
        return TextFilter(cast("ScoringChatModel", chat_model(judge, seat.on(device), answers=None)), vocabulary, limit)
    return PerplexityFilter(load_model(fetched_model(judge)).to(device), limit)


def admissible(
    fluency: PerplexityFilter | None,
    exchanges: ExchangeBatch,
    tokens_nT: np.ndarray,
    lengths_n: np.ndarray,
    candidates: Candidates,
) -> np.ndarray:
    """Return a mask (r,) of the candidates of a search that pass a filter, as the target reads them.

    Args:
        fluency: the filter; None if all pass.
        exchanges: the dialogues before the sentences.
        tokens_nT: the dialogues with the present sentences, in the target's view.
        lengths_n: words of each sentence.
        candidates: one changed word each.
    """
    passed = np.ones(len(candidates), dtype=bool)
    if fluency is None:
        return passed
    for start in range(0, len(candidates), CANDIDATES_PER_PASS):
        part = candidates[start : start + CANDIDATES_PER_PASS]
        starts, tokens = exchanges.lengths[part.dialogues] + 1, tokens_nT[part.dialogues]
        tokens[np.arange(len(part)), starts + part.positions] = part.words
        perplexities = fluency.perplexities(
            exchanges.contexts[1][part.dialogues], tokens, starts, starts + lengths_n[part.dialogues]
        )
        passed[start : start + CANDIDATES_PER_PASS] = fluency.passes(perplexities)
    return passed


class FilteredView(SideView):
    """The view of a side behind a filter, with one `<unk>` for each stopped sentence of the other side.

    Words that are not stopped keep the draws that they would have without a filter.

    Args:
        view: the view without a filter.
        perplexity_filter: the filter.
    """

    def __init__(self, view: SideView, perplexity_filter: PerplexityFilter) -> None:
        super().__init__(view._game, view.side)
        self._filter, self._real = perplexity_filter, view
        self.tokens = np.full_like(view.tokens, PAD_ID)
        self.num_tokens = np.zeros_like(view.num_tokens)
        self.uniforms = view.uniforms.copy()
        self.stopped: list[list[int]] = [[] for _ in range(len(view))]
        """The stopped turns, from 0, by dialogue."""
        self._num_read = np.zeros(len(view), dtype=np.int64)
        self._num_turns_read = np.zeros(len(view), dtype=np.int64)

    def listen(self, rows: np.ndarray) -> None:
        """Read the new turns of the dialogues `rows`."""
        left = {row: self._new_turns(row) for row in rows.tolist()}
        while left:
            theirs: dict[int, np.ndarray] = {}
            for row, turns in left.items():
                while turns and row not in theirs:
                    turn = turns.pop(0)
                    start = int(self.num_tokens[row])
                    self.tokens[row, start : start + len(turn)] = turn
                    if turn[0] == self.vocabulary.them_id and len(turn) > 2:  # two are a marker and an end alone
                        theirs[row] = turn
                    else:
                        self._hear(row, len(turn))
            self._judge(theirs)
            left = {row: turns for row, turns in left.items() if turns}
        lags = self._real.num_tokens - self.num_tokens
        for row in rows[lags[rows] > 0].tolist():
            self.uniforms[row, : -lags[row]] = self._real.uniforms[row, lags[row] :]

    def turns(self, row: int) -> list[tuple[bool, str]]:
        """Return one dialogue as text, as `SideView.turns`, without the stopped sentences."""
        return [(mine, UNK if turn in self.stopped[row] else text) for turn, (mine, text) in enumerate(super().turns(row))]

    def _new_turns(self, row: int) -> list[np.ndarray]:
        end = int(self._real.num_tokens[row])
        tokens = self._real.tokens[row, self._num_read[row] : end]
        self._num_read[row] = end
        starts = np.flatnonzero(np.isin(tokens, (self.vocabulary.you_id, self.vocabulary.them_id)))
        return np.split(tokens, starts[1:]) if starts.size else []

    def _judge(self, theirs: dict[int, np.ndarray]) -> None:
        """Leave the sentences at the end of the view, or replace them by `<unk>`."""
        if not theirs:
            return
        rows, lengths = np.array(list(theirs)), np.array([len(turn) for turn in theirs.values()])
        starts = self.num_tokens[rows] + 1
        ends = starts - 1 + lengths
        perplexities = self._filter.perplexities(self.contexts[rows], self.tokens[rows, : int(ends.max())], starts, ends)
        for row, length, passes in zip(
            rows.tolist(), lengths.tolist(), self._filter.passes(perplexities).tolist(), strict=True
        ):
            if not passes:
                self.stopped[row].append(int(self._num_turns_read[row]))
                start = int(self.num_tokens[row]) + 1
                self.tokens[row, start : start + 2] = UNK_ID, EOS_ID
            self._hear(row, length if passes else 3)

    def _hear(self, row: int, length: int) -> None:
        self.num_tokens[row] += length
        self._num_turns_read[row] += 1


class EndedView(SideView):
    """The view of a side that ends the talk now in some dialogues.

    Args:
        view: the view before the end.
        rows: those dialogues; the side is to speak there.
    """

    def __init__(self, view: SideView, rows: np.ndarray) -> None:
        super().__init__(view._game, view.side)
        self._view, self._ended = view, frozenset(rows.tolist())
        self.tokens, self.num_tokens, self.uniforms = view.tokens.copy(), view.num_tokens.copy(), view.uniforms
        at = self.num_tokens[rows]
        self.tokens[rows, at], self.tokens[rows, at + 1] = self.vocabulary.you_id, SELECTION_ID
        self.num_tokens[rows] += 2

    def turns(self, row: int) -> list[tuple[bool, str]]:
        """Return one dialogue as text, as `SideView.turns`, with the end."""
        return [*self._view.turns(row), *[(True, SELECTION)] * (row in self._ended)]


class DefendedAgent:
    """An `Agent` with defences around another, unchanged agent.

    Args:
        agent: the defended agent. With `own_demand` it must be able to join a dialogue that has begun, as all agents here can.
        perplexity_filter: the filter of the sentences that it hears; None for none.
        own_demand: True if it refuses to end below its own last demand.

    Raises:
        ConfigError: the filter reads another vocabulary, or the demands of this game cannot be read.
    """

    def __init__(self, agent: Agent, perplexity_filter: PerplexityFilter | None = None, own_demand: bool = False) -> None:
        self.agent, self.perplexity_filter, self.own_demand = agent, perplexity_filter, own_demand
        self.vocabulary: Vocabulary = agent.vocabulary
        self.name = f"{agent.name}, defended"
        if perplexity_filter is not None and perplexity_filter.vocabulary.digest != self.vocabulary.digest:
            raise ConfigError(
                "the perplexity filter reads another vocabulary than the agent that it defends",
                where=agent.name,
                got=f"{len(perplexity_filter.vocabulary)} words against {len(self.vocabulary)}",
                fix="name a judge that was trained on the same corpus with --judge",
            )
        if own_demand and self.vocabulary.game != DEAL_OR_NO_DEAL:
            raise ConfigError(
                f"demands are read in the words of {DEAL_OR_NO_DEAL!r} alone",
                where=agent.name,
                got=f"an agent of {self.vocabulary.game!r}",
                fix="leave out the defence own-demand",
            )

    def __repr__(self) -> str:
        return f"DefendedAgent({self.agent!r}, {self.perplexity_filter!r}, own_demand={self.own_demand})"

    def join(self, view: SideView) -> DefendedSession:
        """Join a batch of dialogues."""
        return DefendedSession(self, view)


def defended(agent: Agent, defence: DefenceConfig, judge: str, device: str = "cpu", seat: ChatSeat = DEFAULT) -> Agent:
    """Return an agent with defences around it; the agent itself if there are none.

    Args:
        agent: the agent to defend.
        defence: the settings of the defences.
        judge: the judge of the filter, as in `load_filter`; not read without a filter.
        device: the judge's device.
        seat: how a chat model is loaded that judges.

    Raises:
        ConfigError: the agent cannot have this defence.
        CheckpointError: the judge is damaged.
    """
    perplexity_filter = (
        load_filter(judge, defence.max_perplexity, agent.vocabulary, device, seat) if defence.max_perplexity else None
    )
    return DefendedAgent(agent, perplexity_filter, defence.own_demand) if defence.wanted else agent


class DefendedSession:
    """A defended agent's part in a batch of dialogues.

    Attributes:
        inner: the sessions of the agent itself: the present one, those before a repeated demand, and those that only tried
            its choice.
        stopped: the turns that its filter stopped, by dialogue; empty without a filter.
        refused: its own turns in which it refused to end the talk, by dialogue.
    """

    def __init__(self, agent: DefendedAgent, view: SideView) -> None:
        self._agent = agent
        self._filtered = None if agent.perplexity_filter is None else FilteredView(view, agent.perplexity_filter)
        self._view = view if self._filtered is None else self._filtered
        self.inner: list[Session] = []
        self._session: Session = self._joined(self._view)
        self.stopped: list[list[int]] = [[] for _ in range(len(view))] if self._filtered is None else self._filtered.stopped
        self.refused: list[list[int]] = [[] for _ in range(len(view))]

    def speak(self, rows: np.ndarray) -> Utterances:
        """Return the agent's answer to the view; its demand again if it would end below it."""
        self._listen(rows)
        utterances = self._session.speak(rows)
        if not self._agent.own_demand:
            return utterances
        insisting = self._insisting(rows[(utterances.lengths == 1) & (utterances.tokens[:, 0] == SELECTION_ID)])
        if not insisting:
            return utterances
        # A session assumes that its words were said, so a new one takes over.
        self._session = self._joined(self._view)
        words = []
        for i, row in enumerate(rows.tolist()):
            demand = insisting.get(row)
            if demand is None:
                words.append(utterances.tokens[i, : utterances.lengths[i]])
            else:
                self.refused[row].append(int(self._view.num_turns[row]))
                words.append(np.array(self._view.encode(self._view.turns(row)[demand.turn][1])))
        return Utterances.of(words)

    def choose(self, rows: np.ndarray) -> np.ndarray:
        """Return the agent's choice from the view."""
        self._listen(rows)
        return self._session.choose(rows)

    def _joined(self, view: SideView) -> Session:
        self.inner.append(self._agent.agent.join(view))
        return self.inner[-1]

    def _listen(self, rows: np.ndarray) -> None:
        if self._filtered is not None:
            self._filtered.listen(rows)

    def _insisting(self, ending: np.ndarray) -> dict[int, Demand]:
        """Return the last demands of the dialogues that the agent would end for less."""
        view = self._view
        demands = {row: demand for row in ending.tolist() if (demand := last_demand(view.turns(row), self._counts(row)))}
        if not demands:
            return {}
        rows = np.array(list(demands))
        chosen = self._joined(EndedView(view, rows)).choose(rows)
        shares = view.domain.shares(view.contexts[rows, 0::2])[0]
        values = view.contexts[rows, 1::2]
        worth = (shares * values[:, None]).sum(2)
        legal = (chosen >= 0) & (chosen < worth.shape[1])
        gained = np.where(legal, worth[np.arange(len(rows)), np.where(legal, chosen, 0)], 0)
        return {
            row: demand
            for (row, demand), mine, value in zip(demands.items(), gained.tolist(), values, strict=True)
            if mine < np.array(demand.share) @ value
        }

    def _counts(self, row: int) -> tuple[int, int, int]:
        first, second, third = self._view.contexts[row, 0::2].tolist()
        return first, second, third
