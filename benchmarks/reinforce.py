"""Dialogues that a second of processor learns from: the preset of `parley train rl` against a loop in the published style.

The published loop (Lewis et al. 2017, whose released code the attacks of Cheng et al. 2019 extend) plays one dialogue, word by
word, keeps the log-probability of each word that the learner draws, and takes a step after each dialogue; every fourth time it
takes a supervised step on 16 dialogues of the corpus too. Ours plays 64 dialogues side by side and takes one step on all of
them and 16 of the corpus, with a KL guard that the published loop has not, through RLlib in one process.

"ratio" compares what dialogues cost, not what they teach: of 64 dialogues ours makes one step, the published loop 80.
"share_learning" is of our update's time. "identical" says that words have the log-probabilities that the published loop keeps,
and a dialogue of the corpus the logits that it learns from there.

"bound" is what "ratio" would be if an update took no longer than its matrix products do at the speed of `PRODUCT` by oneDNN,
measured in the same run: those that it forms are counted ("gflop_per_update"). None is for padding but in the language
model's reading of the corpus, where the published loss counts padding.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from inspect import unwrap
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.measure import Clock, Result, run, weight_gflop_per_s
from benchmarks.plain_negotiator import ENDS, PlainNegotiator, play_plainly, read_plainly
from benchmarks.rllib import Training, build
from benchmarks.selfplay import deal
from benchmarks.weights import guard_corpus, negotiator, store
from parley.engine.negotiation.attacks.settings import ReinforceConfig
from parley.envs.core.seeds import stream
from parley.envs.negotiation.corpora.catalogue import Corpus
from parley.policies.negotiator.model import Negotiator, make_batch, supervised_loss, word_nll
from parley.policies.negotiator.speaker import load_model

CORPUS_EVERY, SELECTION_WEIGHT = 4, 0.5
"""Dialogues between two supervised steps of the published loop, and the weight of its choices."""


MOST_DIFFERENCE = 1e-4
"""Nats by which log-probabilities and logits of both ways may differ."""
PRODUCT = 64, 256, 768
"""Rows, inner width and columns of the product whose speed bounds an update: a step of the selection network that plays."""


@dataclass(frozen=True, kw_only=True)
class Options(Training):
    """A goal-based agent that learns from self-play, by the preset's update and by the published loop."""


class Operations(TorchDispatchMode):
    """Counts the multiplications and additions of matrix products."""

    number = 0

    def __torch_dispatch__(self, call: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Make a call, and count it where it is a product, whose matrices stand last among its arguments."""
        name, matrices = call.overloadpacket.__name__, [argument for argument in args if isinstance(argument, Tensor)]
        if name.rstrip("_") in ("mm", "addmm", "bmm", "baddbmm"):
            self.number += 2 * matrices[-2].numel() * matrices[-1].shape[-1]
        elif name == "_linear_pointwise":
            self.number += 2 * matrices[0].numel() * matrices[1].shape[0]
        return call(*args, **(kwargs or {}))


class LearningNegotiator(PlainNegotiator):
    """Keeps the log-probability of each word that it draws, with what its gradient needs."""

    def begin(self, context: Sequence[int]) -> None:
        """Begin a dialogue."""
        super().begin(context)
        self.log_probs: list[Tensor] = []

    def write(self, draws: Sequence[float]) -> list[int]:
        """Own words, each with its log-probability."""
        self._advance([self.model.vocabulary.you_id])
        words: list[int] = []
        for draw in draws:
            hidden = self.model.decoder(self.state[0, 0])
            logits = torch.mv(self.model.word_embedding.weight, hidden) / self.temperature + self.mask
            log_probs = logits.log_softmax(0)
            cumulative = log_probs.detach().exp().cumsum(0)
            words.append(int(torch.searchsorted(cumulative, draw * float(cumulative[-1]), right=True)))
            self.log_probs.append(log_probs[words[-1]])
            self._advance(words[-1:])
            if words[-1] in ENDS:
                return words
        self._advance([ENDS[0]])
        return [*words, ENDS[0]]


class PublishedLoop:
    """One dialogue, one step.

    Args:
        learner: learns from its present weights.
        partner: stays as it is.
        rule: its rates and discount.
        corpus: of the supervised steps.
    """

    def __init__(self, learner: Negotiator, partner: Negotiator, rule: ReinforceConfig, corpus: Corpus) -> None:
        self.learner, self.rule, self.corpus = learner, rule, corpus
        frozen = partner.requires_grad_(False)
        self.agents = (LearningNegotiator(learner, rule.temperature), PlainNegotiator(frozen, rule.temperature))
        self.optimiser = torch.optim.SGD(learner.parameters(), lr=0.1, momentum=0.1, nesterov=True)
        self.rewards: list[float] = []

    def update(self) -> None:
        """Plays a dialogue and learns from it."""
        number = len(self.rewards)
        points = self.play(number)[0]
        self.rewards.append(points)
        reward = points - sum(self.rewards) / len(self.rewards)
        kept = self.agents[0].log_probs
        self._step(-sum(reward * self.rule.gamma**k * log_prob for k, log_prob in enumerate(reversed(kept))))
        if number % CORPUS_EVERY == 0:
            self._step(self._corpus_loss(number))

    def play(self, number: int) -> tuple[int, int]:
        """Return the points of a dialogue, whose log-probabilities the learner keeps."""
        self.learner.eval()
        # As it is without `no_grad`.
        played = unwrap(play_plainly)(deal(range(number, number + 1), self.learner.vocabulary), 0, self.agents)
        return played.points

    def _step(self, loss: Any) -> None:
        self.optimiser.zero_grad()
        if isinstance(loss, Tensor):
            loss.backward()
            nn.utils.clip_grad_norm_(self.learner.parameters(), self.rule.clip)
            self.optimiser.step()

    def _corpus_loss(self, number: int) -> Tensor:
        train = self.corpus.splits["train"]
        batch = make_batch(train, stream(1, "supervised", number).choice(len(train), size=16, replace=False))
        logits, choice = read_plainly(self.learner.train(), batch.contexts_B6, batch.tokens_BT)
        nll = word_nll(logits, batch.tokens_BT)
        return supervised_loss(choice, nll, batch.lengths_B, batch.outputs_B6, SELECTION_WEIGHT)[0]


def measure(options: Options) -> Result:
    """Learns in both ways by turns."""
    from parley.engine.core.ray.session import connect
    from parley.engine.negotiation.verbs.training import lewis2017

    updates, dialogues = (4, 24) if options.quick else (16, 200)
    rule = replace(lewis2017().reinforce, scenarios="random", dialogues=64 * updates)
    model = negotiator(options.checkpoint)
    corpus = guard_corpus(model, options.corpus, options.data_root)
    ours, published, steps, speeds = Clock(), Clock(), [], []
    with tempfile.TemporaryDirectory() as folder, connect(num_cpus=1):
        store(model, Path(folder) / "start")
        loop = PublishedLoop(load_model(Path(folder) / "start"), load_model(Path(folder) / "start"), rule, corpus)
        is_same = _same(loop)
        algorithm = build(Path(folder) / "start", rule, corpus, options)
        with Operations() as operations:
            algorithm.train()
        for _ in range(updates):
            with ours.running():
                algorithm.train()
            steps.append(algorithm.last)
            speeds.append(weight_gflop_per_s(*PRODUCT, torch.float32))
            with published.running():
                for _ in range(dialogues // updates):
                    loop.update()
        algorithm.stop()
    rate, reference_rate = 64 * updates / ours.cpu_s, dialogues / published.cpu_s
    gflop, speed = operations.number / 1e9, sum(speeds) / len(speeds)
    bound = 64 * speed / gflop
    return Result(
        ratio=rate / reference_rate,
        identical=is_same,
        share_of_floor=rate / bound,
        figures={
            "bound": bound / reference_rate,
            "gflop_per_update": gflop,
            "gflop_per_s": speed,
            "dialogues_per_cpu_s": rate,
            "published_dialogues_per_cpu_s": reference_rate,
            "share_learning": sum(step["seconds_learning"] for step in steps) / sum(step["seconds"] for step in steps),
            "mean_turns": sum(step["turns"] for step in steps) / len(steps),
            "weights": "fitted here" if options.checkpoint is None else "checkpoint",
        },
    )


def _same(loop: PublishedLoop) -> bool:
    """Whether words have the same log-probabilities when they are read at once as when they are drawn one by one.

    And whether a dialogue of the corpus, which has no padding then, gives both ways the same logits.
    """
    loop.play(0)
    agent, model = loop.agents[0], loop.learner
    drawn = torch.stack(agent.log_probs)
    with torch.no_grad():
        states = model.read(torch.tensor([agent.tokens]), agent.scenario)
        read = (model.word_logits(states[0]) / agent.temperature + agent.mask).log_softmax(1)
        single = make_batch(loop.corpus.splits["train"], np.arange(1))
        plain = read_plainly(model, single.contexts_B6, single.tokens_BT)
        ours = model(single.contexts_B6, single.tokens_BT, single.lengths_B)
    places, mine = [], False
    for position, token in enumerate(agent.tokens):
        if token in (model.vocabulary.you_id, model.vocabulary.them_id):
            mine = token == model.vocabulary.you_id
        elif mine:
            places.append(position)
    scores = torch.stack([read[position - 1, agent.tokens[position]] for position in places])
    if len(scores) != len(drawn):
        return False
    return all(bool((a - b).abs().max() < MOST_DIFFERENCE) for a, b in zip((scores, *ours), (drawn, *plain), strict=True))


if __name__ == "__main__":
    run("reinforce", Options, measure)
