"""A negotiator as an agent that plays hundreds of dialogues at a time, its storage, and its supervised training.

Decoding follows the published self-play: words are drawn at a temperature from the distribution without `<unk>`, `<pad>` and
the speaker markers, until `<eos>` or `<selection>`; the choice is the legal selection with the largest sum of its six head
logits. One uniform number per dialogue and position decides each word, so results do not depend on the batch. Choices are
made from the language states of speaking and listening. If it pays, they are screened in bfloat16, and those that are not
plain are made again in float32 (`inference.Screening`).

A negotiator is stored in a checkpoint folder (`policies/core/checkpoint.py`), or in a run folder that holds one.

Released recipe (Lewis et al. 2017, their read-me command): SGD at rate 1 with Nesterov momentum 0.1, batches of 16,
clip 0.5, 30 epochs at a constant rate; the model of least validation selection loss is restored and annealed with
plain SGD, the rate divided by 5 before each epoch while it stays at or above 0.01; the last annealed model is kept.

Fast recipe (ours): Adam, larger batches, the same criterion and the same annealing.

Training resumes exactly at the last finished epoch: order and dropout of an epoch depend on (seed, epoch) alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from parley.envs.core.config import check
from parley.envs.core.errors import CheckpointError
from parley.envs.core.play import Utterances
from parley.envs.core.seeds import derive_seed
from parley.envs.core.storage.copies import CHECKPOINT, fetched_model
from parley.envs.negotiation.domain import EOS_ID, SELECTION_ID, Domain, Vocabulary
from parley.envs.negotiation.game import SideView
from parley.policies.core.checkpoint import ModelFormat, autocast, eager
from parley.policies.core.fitting.loop import FULL, FittingLoop, StepLoss
from parley.policies.core.layers import TokenPlaces, by_step
from parley.policies.negotiator.inference import MARGIN, Tables
from parley.policies.negotiator.model import (
    Negotiator,
    NegotiatorFitness,
    evaluate,
    make_batch,
    num_words,
    shuffled,
    supervised_loss,
    word_nll,
)
from parley.policies.negotiator.settings import KIND, NegotiatorFitConfig, NegotiatorSizes

if TYPE_CHECKING:
    from parley.envs.negotiation.corpora.catalogue import Split


NEGOTIATOR = ModelFormat(KIND, Vocabulary, NegotiatorSizes, Negotiator)
save_model, load_model, provenance = NEGOTIATOR.save, NEGOTIATOR.load, NEGOTIATOR.provenance


@dataclass(frozen=True)
class NegotiatorEpoch:
    """The results of one epoch."""

    number: int
    stage: str
    """"full" at the full rate, "anneal" after it."""
    learning_rate: float
    train_perplexity: float
    """exp(mean training word loss), dropout on."""
    validation: NegotiatorFitness
    seconds: float
    best: bool
    """True if it is the best model so far by validation selection loss."""

    def as_row(self) -> dict[str, Any]:
        """Return flat JSON types for event logs and plots."""
        row = asdict(self)
        return {**{k: v for k, v in row.items() if k != "validation"}, **row["validation"]}


class NegotiatorFit(FittingLoop[Negotiator, NegotiatorFitConfig, NegotiatorFitness, NegotiatorEpoch]):
    """A supervised training of a negotiator.

    Args:
        model: freshly built; its weights are initialised here unless a saved state exists.
        train: dialogues to learn from.
        validation: dialogues that decide which model is best.
        config: the recipe.
        seed: master seed.
        state_path: file of the exact training state after every epoch; an existing one is resumed.
    """

    falling = "anneal"

    def __init__(
        self, model: Negotiator, train: Split, validation: Split, config: NegotiatorFitConfig, seed: int, state_path: Path
    ) -> None:
        self.train, self.validation = train, validation
        # Dropout is seeded once an epoch, so a training resumes at the beginning of an epoch only.
        super().__init__(model, config, seed, state_path, save_every_s=math.inf)

    def initialise(self, generator: torch.Generator) -> None:
        self.model.initialise(generator)

    def new_optimiser(self, rate: float) -> torch.optim.Optimizer:
        """Return a new optimiser; the released code anneals with plain SGD: no momentum."""
        if self.config.optimiser == "adam":
            return eager(torch.optim.Adam)(self.model.parameters(), lr=rate)
        momentum = self.config.momentum if self._stage == FULL else 0.0
        return eager(torch.optim.SGD)(self.model.parameters(), lr=rate, momentum=momentum, nesterov=momentum > 0)

    def groups(self, generator: np.random.Generator) -> Sequence[np.ndarray]:
        return shuffled(self.train, self.config.batch_size, generator)

    def dropout_seed(self, epoch: int, batch: int) -> int | None:
        """Return a seed before the first batch of an epoch alone."""
        return derive_seed(self.seed, "dropout", epoch) if batch == 1 else None

    def step(self, group: np.ndarray) -> StepLoss:
        batch = make_batch(self.train, group).to(next(self.model.parameters()).device)
        with autocast(batch.tokens_BT.device, self.precision):
            logits_BTV, choice_B6K = self.model(batch.contexts_B6, batch.tokens_BT, batch.lengths_B)
        nll_BT = word_nll(logits_BTV.float(), batch.tokens_BT)
        weight = self.config.selection_weight
        loss, words, _ = supervised_loss(choice_B6K.float(), nll_BT, batch.lengths_B, batch.outputs_B6, weight)
        self.descend(loss)
        total, word_loss, targets = torch.stack([loss.detach(), words.detach(), num_words(batch.lengths_B)]).tolist()
        return StepLoss(total, word_loss * targets, int(targets))

    def validate(self) -> NegotiatorFitness:
        return evaluate(self.model, self.validation)

    def criterion(self, figures: NegotiatorFitness) -> float:
        return figures.selection_loss

    def epoch(self, number: int, loss: float, figures: NegotiatorFitness, seconds: float, best: bool) -> NegotiatorEpoch:
        return NegotiatorEpoch(number, self._stage, self._rate, math.exp(loss), figures, seconds, best)

    @property
    def falling_epochs(self) -> int:
        return self.config.anneal_epochs

    def fall(self, epochs: int) -> float:
        """Return the rate divided once more, with a new optimiser."""
        rate = self._rate / self.config.anneal_divisor
        self._optimiser = self.new_optimiser(rate)
        return rate

    @property
    def takes_best(self) -> bool:
        """True at the full rate: annealing starts from its best model, and the last annealed one is the result."""
        return self._stage == FULL

    def take_back(self, *, at_end: bool) -> None:
        if not at_end:
            super().take_back(at_end=False)


LOOK_EVERY = 8
"""Words between two checks for ended rows on a GPU, each of which makes this process wait; a CPU checks at every word."""
STATES_PER_DIALOGUE = 64
"""Language states per dialogue in the first buffer of a session."""


class NegotiatorAgent:
    """An `Agent` that speaks through a trained `Negotiator`.

    Args:
        model: the networks; their weights are read now.
        name: its name in reports.
        temperature: temperature of the word distribution, 0.5 in the published self-play; 0 takes the likeliest word.
        forbidden: words that it never says, besides those forbidden to all.
    """

    def __init__(self, model: Negotiator, name: str, temperature: float = 0.5, forbidden: Sequence[int] = ()) -> None:
        self.model, self.name, self.temperature = model, name, temperature
        check(self, "temperature", temperature >= 0, "at least 0")
        self.vocabulary: Vocabulary = model.vocabulary
        self.tables = Tables(model)
        self.look_every = 1 if self.tables.word_bias_V.device.type == "cpu" else LOOK_EVERY
        sharpness = 1.0 / temperature if temperature > 0 else 1.0
        self.word_weight_HV = self.tables.word_weight_HV * sharpness
        self.word_bias_V = self.tables.word_bias_V * sharpness
        self.word_bias_V[[*self.vocabulary.unspeakable_ids, *forbidden]] = -torch.inf
        self.goes_on_V = torch.ones_like(self.word_bias_V, dtype=torch.bool)
        self.goes_on_V[[EOS_ID, SELECTION_ID]] = False

    def __repr__(self) -> str:
        return f"NegotiatorAgent({self.name!r}, temperature={self.temperature:g})"

    def join(self, view: SideView) -> NegotiatorSession:
        """Return a session on one side; the vocabulary of the game must be the model's own.

        Raises:
            CheckpointError: the vocabularies or the games differ.
        """
        if view.vocabulary.game != self.vocabulary.game:
            raise CheckpointError(
                f"{self.name} plays another game",
                got=f"{self.vocabulary.game!r}, and the dialogues are of {view.vocabulary.game!r}",
                fix=f"name an agent that was trained on a corpus of {view.vocabulary.game!r}",
            )
        if view.vocabulary.digest != self.vocabulary.digest:
            raise CheckpointError(
                f"{self.name} speaks another vocabulary than this game",
                got=f"{len(self.vocabulary)} words ({self.vocabulary.digest}) against "
                f"{len(view.vocabulary)} ({view.vocabulary.digest})",
                fix="play agents that were trained on the same corpus",
            )
        return NegotiatorSession(self, view)

    @torch.no_grad()
    def sample(
        self, states_nH: Tensor, context_gates_n3H: Tensor, draws_nL: np.ndarray | Tensor, trace: list[Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return an utterance for each of n speakers, one word per draw at most.

        Args:
            states_nH: language states after `YOU:` has been read.
            context_gates_n3H: the scenarios' share of the language gates, from `Tables.encode`.
            draws_nL: uniform numbers in [0, 1), one per position of the utterance.
            trace: receives, position by position, the language states (k, H) of the rows that said a word there, and of rows
                that have ended since the last check; `_states_of_words` selects the former.

        Returns:
            Token ids (n, L) int64 padded with `<eos>`, and the number of said ones (n,) int64, the last one included.
        """
        device, (count, width) = states_nH.device, draws_nL.shape
        # At most the largest float32 below 1: a draw rounded up to 1 would fall off the end.
        draws_Ln1 = torch.as_tensor(draws_nL).clamp(max=1 - 2.0**-24).to(device, torch.float32).t().contiguous().unsqueeze(2)
        tokens_Ln = torch.full((width, count), EOS_ID, device=device)
        active, states, gates = torch.arange(count, device=device), states_nH, context_gates_n3H
        going_on: Tensor | None = None
        for position, (draws_n1, tokens_n) in enumerate(zip(draws_Ln1, tokens_Ln, strict=True), start=1):
            words = self._draw_words(states, draws_n1.index_select(0, active))
            if going_on is not None:
                words = words.masked_fill(~going_on, EOS_ID)
            tokens_n.index_copy_(0, active, words)
            states = self.tables.advance(words, gates, states)
            if trace is not None:
                trace.append(states)
            speaking = self.goes_on_V.index_select(0, words)
            speaking = speaking if going_on is None else speaking & going_on
            if position % self.look_every:
                going_on = speaking
                continue
            going, going_on = speaking.nonzero().squeeze(1), None
            # Torch's own `len` takes as long as a call that computes with few rows.
            if going.shape[0] < active.shape[0]:
                active, states, gates = (tensor.index_select(0, going) for tensor in (active, states, gates))
                if not active.shape[0]:
                    break
        ends_Ln = (tokens_Ln == EOS_ID) | (tokens_Ln == SELECTION_ID)
        # A row without an end counts all its words.
        return tokens_Ln.t(), (ends_Ln.cumsum(0) == 0).sum(0).add_(1).clamp_(max=width)

    def logits(self, states_nH: Tensor) -> Tensor:
        """Return logits (n, V) of the next word over the temperature, minus infinity for words that are never said."""
        return torch.addmm(self.word_bias_V, states_nH, self.word_weight_HV)

    def _draw_words(self, states_nH: Tensor, draws_n1: Tensor) -> Tensor:
        logits_nV = self.logits(states_nH)
        if self.temperature == 0:
            return logits_nV.argmax(1)
        cumulative = logits_nV.softmax(1).cumsum(1)
        return torch.searchsorted(cumulative, draws_n1 * cumulative[:, -1:], right=True).squeeze(1)


class NegotiatorSession:
    """One negotiator's part in a batch of dialogues: its language states and its reading positions."""

    @torch.inference_mode()
    def __init__(self, agent: NegotiatorAgent, view: SideView) -> None:
        self._agent, self._view, self._tables = agent, view, agent.tables
        context_BC, self._context_gates = agent.tables.encode(np.ascontiguousarray(view.contexts))
        size, hidden = len(view), agent.model.sizes.hidden_language
        self._num_read = np.zeros(size, dtype=np.int64)
        # The first is the state before any token.
        self._states = context_BC.new_empty(1 + size * STATES_PER_DIALOGUE, hidden)
        self._states[0] = 0
        self._num_states = 1
        self._state_index = np.zeros((size, 1 + view.rules.max_tokens), dtype=np.int64)

    @torch.inference_mode()
    def speak(self, rows: np.ndarray) -> Utterances:
        """Read the new tokens of the dialogues `rows`, then return an utterance for each."""
        self._catch_up(rows)
        view, start = self._view, self._view.num_tokens[rows]
        gates, states = self._at(rows)
        states = self._tables.advance(torch.full((len(rows),), view.vocabulary.you_id, device=states.device), gates, states)
        trace = [states]
        draws_nL = view.uniforms[rows[:, None], start[:, None] + 1 + np.arange(view.rules.max_words)]
        tokens_nL, lengths_n = self._agent.sample(states, gates, draws_nL, trace)
        spoken = lengths_n.cpu().numpy()
        if self._agent.look_every > 1:
            trace = [
                torch.cat(trace).index_select(
                    0, _states_of_words(spoken, len(trace) - 1, self._agent.look_every).to(states.device)
                )
            ]
        torch.cat(trace, out=self._reserve(rows, start, 1 + spoken))
        return Utterances(tokens_nL.cpu().numpy(), spoken)

    @torch.inference_mode()
    def choose(self, rows: np.ndarray) -> np.ndarray:
        """Return the legal selection with the largest sum of head logits in each of the ended dialogues `rows`."""
        view, domain = self._view, self._agent.model.domain
        contexts, tokens, lengths = view.contexts[rows], view.tokens[rows], view.num_tokens[rows]
        self._catch_up(rows)
        state_index = self._state_index[rows, 1:]
        screening = self._tables.screening
        if not screening.pays(len(rows)):
            return best_selection(self._tables.decide(contexts, tokens, lengths, self._states, state_index), contexts, domain)
        logits_n6K = self._tables.decide(contexts, tokens, lengths, self._states, state_index, torch.bfloat16)
        nearly = shortfalls(selection_scores(logits_n6K, contexts, domain))
        chosen = nearly.argmin(1).cpu().numpy()
        second = nearly.topk(2, largest=False).values[:, 1]
        # Either may have moved. A NaN is behind nothing, so float32 decides on it too.
        doubtful = ~(second > 2 * MARGIN)
        left = np.flatnonzero(doubtful.cpu().numpy())
        exactly_n6K = self._tables.decide(contexts[left], tokens[left], lengths[left], self._states, state_index[left])
        exactly = selection_scores(exactly_n6K, contexts[left], domain)
        chosen[left] = exactly.argmax(1).cpu().numpy()
        moved_too_far = bool(((nearly[doubtful] - shortfalls(exactly)).abs().nan_to_num(0) > MARGIN).any())
        screening.note(len(rows), len(left), moved_too_far)
        return self.choose(rows) if moved_too_far else chosen

    def _catch_up(self, rows: np.ndarray) -> None:
        behind = self._view.num_tokens[rows] - self._num_read[rows]
        order = rows[np.argsort(-behind, kind="stable")]
        order = order[self._view.num_tokens[order] > self._num_read[order]]
        if not order.size:
            return
        starts = self._num_read[order]
        missing = self._view.num_tokens[order] - starts
        gates, states = self._at(order)
        step_N, row_N = by_step(missing)
        tokens_N = torch.from_numpy(self._view.tokens[order[row_N], starts[row_N] + step_N]).to(self._states.device)
        positions, into = TokenPlaces.of(missing, self._states.device), self._reserve(order, starts, missing)
        self._tables.listen(tokens_N, positions, gates, states, into)

    def _at(self, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return the context's gates (n, 3H) and the language states (n, H) at the reading positions of `rows`."""
        positions = torch.from_numpy(self._state_index[rows, self._num_read[rows]]).to(self._states.device)
        index = torch.from_numpy(rows).to(positions.device)
        return self._context_gates.index_select(0, index), self._states.index_select(0, positions)

    def _reserve(self, rows: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> Tensor:
        """Count `counts` more tokens of each of `rows` as read; return the buffer of the states after them."""
        self._num_read[rows] = starts + counts
        time, row = by_step(counts)
        first, self._num_states = self._num_states, self._num_states + len(time)
        self._state_index[rows[row], starts[row] + 1 + time] = np.arange(first, self._num_states)
        while len(self._states) < self._num_states:
            self._states = torch.cat([self._states, torch.empty_like(self._states)])
        return self._states[first : self._num_states]


def _states_of_words(lengths_n: np.ndarray, num_positions: int, look_every: int) -> Tensor:
    """Return the indices of states of rows that said a word, in a trace that begins with one state of each row."""
    indices, first = [np.arange(len(lengths_n))], len(lengths_n)
    for position in range(num_positions):
        # Rows that had not ended at the last check have a state; those that have not ended since have said a word.
        there = lengths_n[lengths_n > position - position % look_every]
        indices.append(first + np.flatnonzero(there > position))
        first += len(there)
    return torch.from_numpy(np.concatenate(indices))


def best_selection(logits_n6K: Tensor, contexts_n6: np.ndarray, domain: Domain) -> np.ndarray:
    """Return the legal selection (n,) with the largest sum of its six head logits, as an index into the legal ones."""
    return selection_scores(logits_n6K, contexts_n6, domain).argmax(1).cpu().numpy()


def selection_scores(logits_n6K: Tensor, contexts_n6: np.ndarray, domain: Domain) -> Tensor:
    """Return the sum of head logits (n, M) of every legal selection; minus infinity past the legal ones."""
    table, legal = domain.legal_selections(contexts_n6[:, 0::2])
    table_n6M = torch.from_numpy(np.ascontiguousarray(table.transpose(0, 2, 1))).to(logits_n6K.device)
    scores = logits_n6K.gather(2, table_n6M).sum(1)
    return scores.masked_fill(~torch.from_numpy(legal).to(scores.device), -torch.inf)


def shortfalls(scores_nM: Tensor) -> Tensor:
    """Return the distance of each selection from the best: 0 for it, 1 for the worst legal one, infinity for illegal ones."""
    best = scores_nM.amax(1, keepdim=True)
    worst = scores_nM.masked_fill(scores_nM == -torch.inf, torch.inf).amin(1, keepdim=True)
    return (best - scores_nM) / (best - worst)


def load_agent(folder: str | Path, name: str | None = None, temperature: float = 0.5, device: str = "cpu") -> NegotiatorAgent:
    """Return an agent from a run or checkpoint folder, or a URI of one; raises as `ModelFormat.load` does.

    Args:
        folder: folder or URI, such as "runs/negotiator".
        name: its name in reports; the run's name if None.
        temperature: temperature of the word distribution; 0 takes the likeliest word.
        device: torch device.
    """
    path = fetched_model(folder)
    run = path.parent if path.name == CHECKPOINT else path
    return NegotiatorAgent(load_model(path).to(device), name or run.name, temperature)
