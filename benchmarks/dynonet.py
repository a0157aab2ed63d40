"""A training step of DynoNet on a batch of sides of chats against one side after another (`plain_dynonet.py`), and play.

32 sides of scripted chats of the embedded schema, published sizes, drawn weights. A step is the losses of all turns of the
batch and their gradients, a turn at a time as training makes them; without updates, so that both ways have the same weights.
With --quick the reference is clocked on 4 of the sides, from the shortest to the longest.

"ratio" is that of seconds a side. "identical": of the sides that the reference has read, no turn's loss and no gradient of the
last turn differs by `MOST_DIFFERENCE` or more. "step_s" is a step of a training with its updates. "chats_per_s" is chats of the
model with itself, 64 side by side, at most 20 events; weights are drawn, so that their words are noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from benchmarks.measure import BenchmarkOptions, Clock, Result, run
from benchmarks.plain_dynonet import PlainSide, plain_turn_loss
from parley.envs.core.seeds import derive_seed
from parley.envs.mutual_friends.compiled import load_friends
from parley.envs.mutual_friends.game import FriendsRules, play_friends
from parley.policies.dynonet.agent import DynoNetAgent
from parley.policies.dynonet.batches import SideExamples
from parley.policies.dynonet.graphs import FriendsVocabulary
from parley.policies.dynonet.model import DynoNet, DynoNetFit, turn_loss
from parley.policies.dynonet.settings import DynoNetSizes, dynonet_fit

SEED, BATCH, REPEATS, QUICK = 1, 32, 3, 4
MOST_DIFFERENCE = 1e-4
CHATS, EVENTS = 64, 20


@dataclass(frozen=True)
class Options(BenchmarkOptions):
    """A training step of DynoNet, and play."""


def measure(options: Options) -> Result:
    """Clocks both ways."""
    corpus = load_friends("friends")
    chats = corpus.splits["train"][: BATCH // 2]
    sentences = ([token for token in event.tokens if isinstance(token, str)] for chat in chats for event in chat.events)
    vocabulary, sizes = FriendsVocabulary.build(corpus.schema, sentences, 1), DynoNetSizes()
    model, examples = DynoNet(vocabulary, sizes), SideExamples(chats, vocabulary, sizes, corpus.linker)
    model.initialise(torch.Generator().manual_seed(derive_seed(SEED, "weights")))
    clocks = {name: Clock() for name in ("ours", "plain", "fit", "play")}
    everybody = np.arange(len(examples))

    def step(rows: np.ndarray) -> list[float]:
        batch, losses = examples.batch(rows), []
        memory = model.blank(*batch.features_RNF.shape[:2])
        for turn in batch.turns:
            model.zero_grad()
            loss, _, memory = turn_loss(model, memory, batch, turn, len(rows))
            loss.backward()
            losses.append(loss.item())
        return losses

    def plainly(rows: np.ndarray) -> list[float]:
        sides, losses = [PlainSide(model, examples.sides[int(row)]) for row in rows], []
        for number in range(max(len(side.side.turns) for side in sides)):
            model.zero_grad()
            loss = plain_turn_loss(sides, number)
            loss.backward()
            losses.append(loss.item())
        return losses

    step(everybody)
    for _ in range(REPEATS):
        with clocks["ours"].running():
            step(everybody)
    order = np.argsort(examples.num_targets, kind="stable")
    few = order[np.linspace(0, len(order) - 1, QUICK).astype(int)] if options.quick else everybody
    with clocks["plain"].running():
        wanted = plainly(few)
    gradients = {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}
    losses = step(few)
    apart = [abs(ours - theirs) for ours, theirs in zip(losses, wanted, strict=True)]
    ours = {name: value.grad for name, value in model.named_parameters() if value.grad is not None}
    apart += [(ours[name] - wanted_grad).abs().max().item() for name, wanted_grad in gradients.items()]

    with TemporaryDirectory() as folder:
        fit = DynoNetFit(DynoNet(vocabulary, sizes), examples, examples, dynonet_fit(), SEED, Path(folder) / "state")
        with clocks["fit"].running():
            fit.step(everybody)
    agent = DynoNetAgent(model.eval(), corpus.linker, "dynonet")
    scenarios = [(chat.scenario, derive_seed(SEED, i)) for i, chat in enumerate(corpus.splits["train"][:CHATS])]
    with clocks["play"].running():
        played = play_friends(scenarios, (agent, agent), num_rows=CHATS, rules=FriendsRules(max_events=EVENTS))

    ours_s, plain_s = clocks["ours"].cpu_s / REPEATS / len(examples), clocks["plain"].cpu_s / len(few)
    return Result(
        ratio=plain_s / ours_s,
        identical=max(apart) < MOST_DIFFERENCE,
        figures={
            "difference": max(apart),
            "side_s": ours_s,
            "reference_side_s": plain_s,
            "reference_sides": len(few),
            "step_s": clocks["fit"].cpu_s,
            "chats_per_s": len(played) / clocks["play"].cpu_s,
            "events_per_s": sum(len(chat.events) for chat in played) / clocks["play"].cpu_s,
        },
    )


if __name__ == "__main__":
    run("dynonet", Options, measure)
