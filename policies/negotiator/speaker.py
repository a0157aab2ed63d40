"""A negotiator at the table: samples utterances and makes the final choice, hundreds of dialogues at a time.

Decoding follows the published self-play: words are drawn at a temperature from the distribution without `<unk>`, `<pad>`
and the speaker markers, until `<eos>` or `<selection>`; the choice is the legal selection with the largest sum of its six
head logits. Each word is decided by one uniform number that belongs to its dialogue and position, so results do not
depend on how dialogues are batched.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from envs.core.config import check
from envs.core.errors import CheckpointError, ConfigError
from envs.data.vocabulary import EOS_ID, SELECTION_ID, Vocabulary
from envs.negotiation.game import SideView, Utterances
from envs.negotiation.scenario import legal_selections
from policies.checkpoint import Checkpoint
from policies.negotiator.inference import Tables
from policies.negotiator.model import Negotiator
from policies.negotiator.settings import NegotiatorSizes

KIND = "negotiator"


class NegotiatorAgent:
    """An `Agent` that speaks through a trained `Negotiator`.

    Args:
        model: the networks; read once, now.
        name: shown in reports.
        temperature: of the word distribution, 0.5 in the published self-play; 0 takes the likeliest word.
    """

    def __init__(self, model: Negotiator, name: str, temperature: float = 0.5) -> None:
        self.model, self.name, self.temperature = model, name, temperature
        check(self, "temperature", temperature >= 0, "at least 0")
        self.vocabulary: Vocabulary = model.vocabulary
        self.tables = Tables(model)
        sharpness = 1.0 / temperature if temperature > 0 else 1.0
        self.word_weight_HV = self.tables.word_weight_HV * sharpness
        self.word_bias_V = self.tables.word_bias_V * sharpness
        self.word_bias_V[list(self.vocabulary.unspeakable_ids)] = -torch.inf

    def join(self, view: SideView) -> NegotiatorSession:
        """Takes a seat; the vocabulary of the game must be the model's own.

        Raises:
            CheckpointError: the vocabularies differ.
        """
        if view.vocabulary.digest != self.vocabulary.digest:
            raise CheckpointError(
                f"{self.name} speaks another vocabulary than this game",
                got=f"{len(self.vocabulary)} words ({self.vocabulary.digest}) against "
                f"{len(view.vocabulary)} ({view.vocabulary.digest})",
                fix="play agents that were trained on the same corpus",
            )
        return NegotiatorSession(self, view)


class NegotiatorSession:
    """One negotiator's part in a batch of dialogues: its language state and how far it has read."""

    @torch.no_grad()
    def __init__(self, agent: NegotiatorAgent, view: SideView) -> None:
        self._agent, self._view, self._tables = agent, view, agent.tables
        context_BC, self._context_gates = agent.tables.encode(np.ascontiguousarray(view.contexts))
        self._states = context_BC.new_zeros(len(view), agent.model.sizes.hidden_language)
        self._num_read = np.zeros(len(view), dtype=np.int64)

    @torch.no_grad()
    def speak(self, rows: np.ndarray) -> Utterances:
        """Reads what is new in the dialogues `rows`, then samples an utterance for each."""
        self._catch_up(rows)
        view = self._view
        device, count = self._states.device, len(rows)
        index = torch.from_numpy(rows).to(device)
        gates, states = self._context_gates[index], self._states[index]
        states = self._tables.advance(torch.full((count,), view.vocabulary.you_id, device=device), gates, states)
        first = view.num_tokens[rows] + 1
        width = view.rules.max_words
        draws = np.minimum(view.uniforms[rows[:, None], first[:, None] + np.arange(width)], 1 - 2.0**-24)
        draws_Ln = torch.from_numpy(np.ascontiguousarray(draws.T.astype(np.float32))).to(device)
        tokens_nL = torch.full((count, width), EOS_ID, device=device)
        lengths = torch.full((count,), width, device=device)
        active = torch.arange(count, device=device)
        for position in range(width):
            words = self._sample(states, draws_Ln[position, active])
            tokens_nL[active, position] = words
            states = self._tables.advance(words, gates, states)
            going = (words != EOS_ID) & (words != SELECTION_ID)
            if not bool(going.all()):
                ended = active[~going]
                lengths[ended] = position + 1
                self._states[index[ended]] = states[~going]
                active, states, gates = active[going], states[going], gates[going]
                if not len(active):
                    break
        self._states[index[active]] = states
        spoken = lengths.cpu().numpy()
        self._num_read[rows] = first + spoken
        return Utterances(tokens_nL.cpu().numpy(), spoken)

    @torch.no_grad()
    def choose(self, rows: np.ndarray) -> np.ndarray:
        """The legal selection with the largest sum of head logits in each of the ended dialogues `rows`."""
        view = self._view
        logits_n6K = self._tables.decide(view.contexts[rows], view.tokens[rows], view.num_tokens[rows])
        return best_selection(logits_n6K, view.contexts[rows])

    def _catch_up(self, rows: np.ndarray) -> None:
        behind = self._view.num_tokens[rows] - self._num_read[rows]
        order = rows[np.argsort(-behind, kind="stable")]
        order = order[self._view.num_tokens[order] > self._num_read[order]]
        if not order.size:
            return
        starts = self._num_read[order]
        missing = self._view.num_tokens[order] - starts
        steps = int(missing[0])
        reach = np.minimum(starts[:, None] + np.arange(steps), self._view.rules.max_tokens - 1)
        tokens_Tn = torch.from_numpy(np.ascontiguousarray(self._view.tokens[order[:, None], reach].T)).to(self._states.device)
        index = torch.from_numpy(order).to(self._states.device)
        gates, states = self._context_gates[index], self._states[index]
        for t in range(steps):
            k = int(np.searchsorted(-missing, -t, side="left"))
            states[:k] = self._tables.advance(tokens_Tn[t, :k], gates[:k], states[:k])
        self._states[index] = states
        self._num_read[order] = self._view.num_tokens[order]

    def _sample(self, states_nH: torch.Tensor, draws_n: torch.Tensor) -> torch.Tensor:
        logits_nV = torch.addmm(self._agent.word_bias_V, states_nH, self._agent.word_weight_HV)
        if self._agent.temperature == 0:
            return logits_nV.argmax(1)
        weights = logits_nV.sub_(logits_nV.amax(1, keepdim=True)).exp_()
        cumulative = weights.cumsum(1)
        return torch.searchsorted(cumulative, (draws_n * cumulative[:, -1]).unsqueeze(1), right=True).squeeze(1)


def best_selection(logits_n6K: torch.Tensor, contexts_n6: np.ndarray) -> np.ndarray:
    """The legal selection (n,) with the largest sum of its six head logits, as an index into the legal ones."""
    return selection_scores(logits_n6K, contexts_n6).argmax(1).cpu().numpy()


def selection_scores(logits_n6K: torch.Tensor, contexts_n6: np.ndarray) -> torch.Tensor:
    """Sum of head logits (n, 38) of every legal selection; minus infinity past the legal ones."""
    table, legal = legal_selections(contexts_n6[:, 0::2])
    table_n6M = torch.from_numpy(np.ascontiguousarray(table.transpose(0, 2, 1))).to(logits_n6K.device)
    scores = logits_n6K.gather(2, table_n6M).sum(1)
    return scores.masked_fill(~torch.from_numpy(legal).to(scores.device), -torch.inf)


def load_agent(folder: Path, name: str | None = None, temperature: float = 0.5, device: str = "cpu") -> NegotiatorAgent:
    """An agent from a checkpoint folder.

    Raises:
        CheckpointError: nothing is there, or it is damaged or of another kind.
    """
    return NegotiatorAgent(load_model(folder).to(device), name or folder.parent.name, temperature)


def load_model(folder: Path) -> Negotiator:
    """The networks of a checkpoint folder, in evaluation mode, on the CPU.

    Raises:
        CheckpointError: nothing is there, or it is damaged or of another kind.
    """
    return rebuild(Checkpoint.load(folder, KIND), folder)


def rebuild(checkpoint: Checkpoint, where: object) -> Negotiator:
    """The networks of a checkpoint, in evaluation mode.

    Raises:
        CheckpointError: the weights do not fit the sizes.
    """
    try:
        model = Negotiator(checkpoint.vocabulary, NegotiatorSizes(**checkpoint.sizes))
        model.load_state_dict(checkpoint.weights)
    except (RuntimeError, TypeError, ConfigError) as error:
        raise CheckpointError(
            "the checkpoint's weights do not fit its sizes",
            where=where,
            got=str(error)[:200],
            fix="train it again",
        ) from None
    return model.eval()
