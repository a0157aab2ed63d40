"""Continuous relaxation: an input of real numbers instead of words, by gradient descent (He & Glass 2018, appendix A).

    minimise over z   -1/m sum_t log P(y_t | y_<t, x) + lambda_c 1/n sum_t ( ||x_t||_1 - 2 max_j x_tj )        equation 10

    embedding    x_t = z_t stands in place of a word's embedding, lambda_c = 0                                  equation 9
    one-hot      x_t = sigmoid(z_t) weighs the words' embeddings; the second term draws it towards one word
    projection   each x_t of a one-hot input becomes its strongest word

The first two reach many targets that no input of words reaches: table 1's point is that the third loses them all. Figures 2 and
3 show how far they are from words: the two largest weights of each x_t, and the change of embeddings and encoder states.

As in the released code: z starts at N(0, 1), less 3 for one-hot inputs; SGD whose momentum starts anew each round; words that
are the likeliest already keep a hundredth of their weight. It divides a batch's summed loss by the words of all its targets;
here each loss is divided by its own target's words, as in the paper, so that a target goes its own way in any batch, up to
rounding. It weighs special words too, and the fixed mark at the input's end; here x weighs what an input of words may hold.

    B targets, N positions, S words that an input may hold, T words of a target with its end, E embedding
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from parley.engine.triggers.budget import GRADIENT
from parley.engine.triggers.hits import Reading
from parley.engine.triggers.methods.method import Method
from parley.engine.triggers.methods.objective import RELEASED_WEIGHT, TriggerObjective
from parley.engine.triggers.methods.settings import L1_WEIGHT, RelaxationSettings
from parley.engine.triggers.scorers.scorer import Victim, read_replies, stack_targets
from parley.engine.triggers.searches.batch import Outcome, Task
from parley.engine.triggers.searches.batch_finder import BatchFinder
from parley.envs.core.errors import CheckpointError
from parley.envs.core.seeds import stream
from parley.policies.core.checkpoint import eager

STARTING_LOGIT = -3.0
"""Mean of a one-hot input's z at the start."""


def relax(
    victim: Victim,
    tasks: Sequence[Task],
    settings: RelaxationSettings,
    objective: TriggerObjective | None = None,
    going: Callable[[int], bool] = lambda steps: True,
) -> list[Outcome]:
    """Optimise a continuous input for each target, side by side.

    Args:
        victim: the model.
        tasks: the targets; their z is drawn from (seed, key, restart).
        settings: what is optimised, and for how long.
        objective: of the target's words; the greedy one with a hundredth left of satisfied words when None.
        going: returns whether another step may be made after so many.

    Returns:
        The results: the loss without the second term, and of one-hot inputs the reading after their words; not yet judged.

    Raises:
        CheckpointError: the loss has left all bounds.
    """
    objective = objective or TriggerObjective(kind="greedy", satisfied_weight=RELEASED_WEIGHT)
    assert objective.lm_weight == 0, "a language model judges words"
    embedding_SE = victim.embedding_VE[victim.searchable_V].detach()
    replies_BT, mask_BT = stack_targets([task.target for task in tasks])
    embeds = settings.mode == "embedding"
    width = embedding_SE.shape[1 if embeds else 0]
    streams = [stream(task.seed, "relaxation", task.key, task.restart) for task in tasks]
    drawn = np.stack([generator.standard_normal((victim.input_length, width), dtype=np.float32) for generator in streams])
    z = torch.from_numpy(drawn).to(embedding_SE) + (0.0 if embeds else STARTING_LOGIT)
    z.requires_grad_()
    l1_weight = L1_WEIGHT if settings.l1_weight is None else settings.l1_weight

    def embedded_BNE() -> Tensor:
        return z if embeds else z.sigmoid() @ embedding_SE

    num = 0
    for _ in range(settings.rounds):
        optimiser = eager(torch.optim.SGD)(
            [z], lr=settings.learning_rate, momentum=settings.momentum, weight_decay=settings.weight_decay
        )
        for _ in range(settings.steps):
            if not going(num):
                break
            num += 1
            nll_BT, likeliest_BT = read_replies(victim, embedded_BNE(), replies_BT)
            loss_B = objective.loss(nll_BT, likeliest_BT, mask_BT, None)
            if not embeds:
                # The distance from single words: mean over positions of the l1 norm less twice the largest weight.
                x_BNS = z.sigmoid()
                loss_B = loss_B + l1_weight * (x_BNS.sum(-1) - 2 * x_BNS.amax(-1)).mean(-1)
            (z.grad,) = torch.autograd.grad(loss_B.sum(), [z])
            optimiser.step()
    return _outcomes(victim, tasks, objective, embedded_BNE().detach(), None if embeds else z.detach(), num)


class Relaxation(Method):
    """A descent on inputs between words (He & Glass 2018, appendix A), which no language model can judge."""

    searches_words = False
    uses = ("relaxation", "restarts", "stop_on_hit")
    holds_budget = True

    @property
    def finds_words(self) -> bool:
        return self.settings.relaxation.mode == "one-hot"

    def search_all(
        self, tasks: Iterable[Task], finder: BatchFinder, on_step: Callable[[int], None] | None = None
    ) -> Iterator[Outcome]:
        """Run one restart of all targets after the other; skip targets that a hit has ended."""
        settings, objective = self.settings.relaxation, self.scorer.objective
        # Satisfied words keep a little, in every objective: without it they would be let go.
        objective = replace(objective, satisfied_weight=max(objective.satisfied_weight, RELEASED_WEIGHT))
        tried, ended, most = 0, set[str](), settings.rounds * settings.steps
        for _, restart in groupby(tasks, key=lambda task: task.restart):
            left = [task for task in restart if task.key not in ended]
            # What one target may cost depends on no other: those of one number of steps are searched for together.
            by_steps = dict[float, list[Task]]()
            for task in left:
                by_steps.setdefault(min(most, self._num_paid(task)), []).append(task)
            results = list[tuple[Outcome, float]]()
            for steps, together in by_steps.items():
                finder.in_pieces(partial(self._descend, results, objective, steps), together)
            tried += sum(outcome.candidates for outcome, _ in results)
            if on_step is not None:
                on_step(tried)
            for outcome, seconds in results:
                satisfied, read = self.goal.satisfied(outcome.reading), self.goal.num_read(outcome.task.target)
                ended |= {outcome.task.key} if satisfied and self.settings.stop_on_hit else set()
                tokens = outcome.candidates * GRADIENT * read
                yield replace(outcome, stopped="satisfied" if satisfied else "limit", tokens=tokens, seconds=seconds)

    def _descend(
        self, results: list[tuple[Outcome, float]], objective: TriggerObjective, most: float, tasks: Sequence[Task]
    ) -> None:
        """Add the descents of targets, each with its share of their seconds; at most so many steps."""
        clock, seconds = self.goal.clock, self.goal.budget.seconds * len(tasks)
        began = clock()

        def going(steps: int) -> bool:
            return steps < most and not 0 < seconds <= clock() - began

        outcomes = relax(self.victim, tasks, self.settings.relaxation, objective, going)
        results.extend((outcome, (clock() - began) / len(tasks)) for outcome in outcomes)

    def _num_paid(self, task: Task) -> float:
        step, tokens = GRADIENT * self.goal.num_read(task.target), self.goal.budget.tokens
        return tokens // step if tokens else math.inf


@torch.no_grad()
def _outcomes(
    victim: Victim, tasks: Sequence[Task], objective: TriggerObjective, embedded_BNE: Tensor, z_BNS: Tensor | None, steps: int
) -> list[Outcome]:
    targets = [task.target for task in tasks]
    replies_BT, mask_BT = stack_targets(targets)
    nll_BT, likeliest_BT = read_replies(victim, embedded_BNE, replies_BT)
    losses = objective.loss(nll_BT, likeliest_BT, mask_BT, None)
    if not bool(losses.isfinite().all()):
        broken = tasks[int((~losses.isfinite()).nonzero()[0])]
        raise CheckpointError(
            "the loss of a continuous input is no number", where=f"target {broken.key}", fix="lower its learning rate"
        )
    outcomes = [
        Outcome(task, None, loss, reading, 0, steps, steps, steps, (loss,), "limit")
        for task, loss, reading in zip(tasks, losses.tolist(), _readings(targets, nll_BT, likeliest_BT), strict=True)
    ]
    if z_BNS is None:
        return outcomes
    words_BN = victim.searchable_V.nonzero()[:, 0][z_BNS.argmax(-1)]
    projected_BNE = victim.embedding_VE[words_BN]
    projected = _readings(targets, *read_replies(victim, projected_BNE, replies_BT))
    nearness = dict(zip(("largest", "second"), z_BNS.sigmoid().topk(2).values.unbind(-1), strict=True))
    for name, read in {"word": lambda embedded: embedded, "state": getattr(victim, "encode", None)}.items():
        if read is not None:
            nearness[f"{name}_change"] = (read(embedded_BNE) - read(projected_BNE)).norm(dim=-1)
            nearness[f"{name}_norm"] = read(projected_BNE).norm(dim=-1)
    lists = [{name: values_BN[row].tolist() for name, values_BN in nearness.items()} for row in range(len(tasks))]
    parts = zip(outcomes, map(tuple, words_BN.tolist()), projected, lists, strict=True)
    return [replace(outcome, words=words, projected=after, nearness=near) for outcome, words, after, near in parts]


def _readings(targets: Sequence[Tensor], nll_BT: Tensor, likeliest_BT: Tensor) -> list[Reading]:
    rows = zip(targets, (-nll_BT).tolist(), likeliest_BT.tolist(), strict=True)
    return [Reading(log_probability[: len(target)], likeliest[: len(target)]) for target, log_probability, likeliest in rows]
