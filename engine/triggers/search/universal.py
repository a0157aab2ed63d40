"""Universal triggers: one input behind many prompts, each with a target of its own (Wallace et al. 2019; Zou et al. 2023).

    L(x) = 1/K sum_k L_k(x)         mean over pairs; L_k is the objective behind prompt k for target k
    slope = 1/K sum_k slope_k       so every method that goes by words searches for one input of all pairs

A universal victim is a victim to a method, and its scorer asks the scorer of each pair. Of a list of swaps the pairs are read
one after the other, those of the highest loss first. No loss is below 0, so a candidate whose pairs read so far cost more than
the best one does ends there, which is exact. Where nothing is to be beaten, as in gcg, the few that are cheapest behind the
first prompt are read behind all of them first.

Pairs may be of several models, as in Zou et al. (section 2.3: an input for several models at once): a prompt of each is a pair
of its own. Models may have more embeddings than tokens; the words are those that all of them have. A model with other tokens
than the first is given inputs as texts (`by_text.py`): its losses choose among candidates, which those with the first one's
tokens point to. Each may be on a device of its own. A search is where the first one is: inputs go from there to each model,
figures come back.

A hit is an input that is one behind every prompt (o-greedy, o-sample-min); of o-sample-avg it is the mean over all words.
Zou et al. add prompts one by one as those before are hit. Ours: all from the beginning.

    K pairs, B searches, G candidates, R inputs, N searched positions, T words of all targets, V words, E embedding
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from parley.engine.triggers.hits import Reading
from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.scorers.causal.scorer import CausalScorer, is_causal
from parley.engine.triggers.scorers.scorer import Incumbent, InputModel, PlainScorer, Swaps, Victim, require_numbers
from parley.engine.triggers.search.by_text import ByTextScorer, VictimByText

FIRST = 8
"""Candidates that are read behind all prompts first where nothing is to be beaten."""
_ROUNDING = 1e-5
"""Share of a loss by which a bound has to exceed it, so that rounding ends nothing that is as good."""


class UniversalVictim:
    """Prompts of one model, or of several, that share the searched words.

    Args:
        victims: a model behind each prompt; all have the words of the first, as tokens or as texts (`VictimByText`), and as
            many searched positions.
        targets: word ids (T,) of each, the end included.

    Attributes:
        num_models: how many there are.
        device: the first model's, where searches are.
        searchable_V: which words an input may hold.
    """

    def __init__(self, victims: Sequence[Victim], targets: Sequence[Tensor]) -> None:
        assert len(victims) == len(targets) > 0, "a target for each prompt"
        self.victims, self.targets = tuple(victims), tuple(targets)
        self.num_models = len({id(getattr(victim, "model", None)) for victim in victims})
        num = min(len(victim.searchable_V) for victim in victims)
        self.device = victims[0].embedding_VE.device
        self.searchable_V: Tensor = torch.stack([victim.searchable_V[:num].to(self.device) for victim in victims]).all(0)

    @property
    def target_ids(self) -> Tensor:
        """The words (T,) of all targets, one target behind the other."""
        return torch.cat([target.to(self.device) for target in self.targets])

    @property
    def embedding_VE(self) -> Tensor:
        """The first model's embeddings of the words of the input."""
        return self.victims[0].embedding_VE[: len(self.searchable_V)]

    @property
    def input_length(self) -> int:
        """N."""
        return self.victims[0].input_length

    @property
    def start_ids(self) -> Sequence[int] | None:
        """The words (N,) that searches start from; None where they are drawn."""
        start: Sequence[int] | None = getattr(self.victims[0], "start_ids", None)
        return start

    def allows(self, words_RN: Tensor) -> Tensor:
        """Which inputs (R,) every prompt allows."""
        allowed_R = torch.ones(len(words_RN), dtype=torch.bool, device=words_RN.device)
        for victim in self.victims:
            allows: Callable[[Tensor], Tensor] | None = getattr(victim, "allows", None)
            left_r = allowed_R.nonzero()[:, 0]
            if allows is None or not len(left_r):
                break
            allowed_R[left_r] = allows(words_RN[left_r])
        return allowed_R

    def reply_logits(self, embedded_BNE: Tensor, replies_BT: Tensor) -> Tensor:
        """Logits (B, T, V) of the words of all targets, one target behind the other."""
        parts_BT = replies_BT.split([len(target) for target in self.targets], dim=1)
        read = []
        for victim, part_BT in zip(self.victims, parts_BT, strict=True):
            there = victim.embedding_VE.device
            read.append(victim.reply_logits(embedded_BNE.to(there), part_BT.to(there)).to(self.device))
        return torch.cat(read, dim=1)


class UniversalScorer:
    """Answers a search's questions for the mean over pairs.

    Args:
        victim: the prompts and targets; the targets that a search names are not looked at.
        objective: what is minimised behind each prompt.
        input_model: judges inputs.
    """

    def __init__(self, victim: UniversalVictim, objective: TriggerObjective, input_model: InputModel | None = None) -> None:
        self.victim, self.objective = victim, objective
        firsts = {id(getattr(part, "model", None)): part for part in reversed(victim.victims)}
        kinds = {model: _kind(part) for model, part in firsts.items()}
        self.parts: list[PlainScorer] = [
            kinds[id(getattr(part, "model", None))](part, objective, input_model) for part in victim.victims
        ]
        self.guides = [place for place, part in enumerate(self.parts) if not isinstance(part, ByTextScorer)]

    def measure(self, targets: Sequence[Tensor], words_BN: Tensor) -> list[Incumbent]:
        """Measures inputs behind each prompt."""
        of_pairs = [part.measure([own] * len(words_BN), words_BN.to(own.device)) for part, own in self._pairs()]
        return [
            Incumbent(target, words_N, sum(each.loss for each in read) / len(read), _together(read), tuple(read))
            for target, words_N, read in zip(targets, words_BN, zip(*of_pairs, strict=True), strict=True)
        ]

    def slopes(self, incumbents: Sequence[Incumbent], positions_B: Tensor) -> Tensor:
        """The mean of the slopes (B, V) behind each prompt of a model with the searched tokens."""
        num = len(self.victim.searchable_V)
        total_BV = torch.zeros(len(incumbents), num, device=self.victim.device)
        for place in self.guides:
            slopes_BV = self.parts[place].slopes([incumbent.cache[place] for incumbent in incumbents], positions_B)
            total_BV += slopes_BV[:, :num].to(self.victim.device)
        return total_BV / len(self.guides)

    def gradients(self, incumbents: Sequence[Incumbent]) -> Tensor:
        """The mean of the gradients (B, N, E) behind each prompt of a model with the searched tokens."""
        of_pairs = [self.parts[place].gradients([each.cache[place] for each in incumbents]) for place in self.guides]
        return torch.stack([of_pair.to(self.victim.device) for of_pair in of_pairs]).mean(0)

    def next_logits(self, target: Tensor, words_Bt: Tensor) -> Tensor:
        """The mean of log probabilities (B, V) behind each prompt of a model with the searched tokens."""
        num = len(self.victim.searchable_V)
        total_BV = torch.zeros(len(words_Bt), num, device=self.victim.device)
        pairs = self._pairs()
        for part, own in (pairs[place] for place in self.guides):
            logits_BV = part.next_logits(own, words_Bt.to(own.device))
            total_BV += logits_BV.log_softmax(-1)[:, :num].to(self.victim.device)
        return total_BV / len(self.guides)

    def best_swap(self, incumbents: Sequence[Incumbent], swaps: Swaps, beat_B: Tensor) -> tuple[Tensor, Tensor]:
        """The argmin of the mean over the lists; what cannot be it is not read behind all prompts."""
        rows = zip(incumbents, swaps.lists(), beat_B.tolist(), strict=True)
        found = [self._best(incumbent, *swaps_G, beat) for incumbent, swaps_G, beat in rows]
        choices, losses = zip(*found, strict=True)
        return torch.tensor(choices), beat_B.new_tensor(losses)

    def losses(self, targets: Sequence[Tensor], words_RN: Tensor) -> Tensor:
        """The mean loss of each input (R,)."""
        of_pairs = [part.losses([own] * len(words_RN), words_RN.to(own.device)) for part, own in self._pairs()]
        return torch.stack([loss_R.to(self.victim.device) for loss_R in of_pairs]).mean(0)

    def _pairs(self) -> list[tuple[PlainScorer, Tensor]]:
        return list(zip(self.parts, self.victim.targets, strict=True))

    def _best(self, incumbent: Incumbent, positions_G: Tensor, words_G: Tensor, beat: float) -> tuple[int, float]:
        """The candidate of least loss and that, ties to the first; -1 and `beat` where none undercuts it."""
        order = sorted(range(len(self.parts)), key=lambda place: -incumbent.cache[place].loss)

        def read(place: int, rows_g: Tensor) -> Tensor:
            known, swaps = incumbent.cache[place], (positions_G[rows_g], words_G[rows_g])
            loss_g = self.parts[place].swap_losses(known, *(each.to(known.words.device) for each in swaps))
            require_numbers(loss_g)
            return loss_g.to(self.victim.device) / len(order)

        least, left_g = beat, torch.arange(len(words_G), device=words_G.device)
        cost_G = torch.full((len(words_G),), torch.inf, device=words_G.device)
        cost_G[left_g] = read(order[0], left_g)
        if least == torch.inf and len(left_g) > FIRST:
            first_g = cost_G.argsort(stable=True)[:FIRST].sort().values
            sums_g = cost_G[first_g].clone()
            for place in order[1:]:
                sums_g += read(place, first_g)
            least = float(sums_g.min())
        for place in order[1:]:
            left_g = left_g[cost_G[left_g] <= least + _ROUNDING * max(1.0, least)]
            if not len(left_g):
                return -1, beat
            cost_G[left_g] += read(place, left_g)
        choice = int(left_g[cost_G[left_g].argmin()])
        loss = float(cost_G[choice])
        return (choice, loss) if loss < beat else (-1, beat)


def _kind(victim: Victim) -> type[PlainScorer]:
    """How losses of a model are read."""
    if isinstance(victim, VictimByText):
        return ByTextScorer
    return CausalScorer if is_causal(victim) else PlainScorer


def _together(read: Sequence[Incumbent]) -> Reading:
    """How likely the words of all targets are, and the input."""
    readings = [each.reading for each in read]
    nats = [nat for reading in readings for nat in reading.word_log_probability]
    likeliest = [word for reading in readings for word in reading.likeliest]
    return Reading(nats, likeliest, readings[0].input_log_probability)
