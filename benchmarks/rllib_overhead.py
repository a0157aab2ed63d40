"""What RLlib costs: where the seconds of training an adversary go, and the same training as a plain loop.

An adversary learns as `parley train adversary` lets it, through `engine/rllib` in this process; every call that computes with a
network is clocked by itself, and so is what stands around it. The plain loop plays the same dialogues, forms the same
loss by hand and takes the same steps with the same optimiser. As every random number is named by the seed, both must
arrive at the same weights.

"share_outside_model" is the share of RLlib's wall time that is neither speaking nor a forward or backward pass in
training; "ratio" is plain seconds / RLlib seconds, at most about 1.
"""

from __future__ import annotations

import copy
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import nn

from benchmarks.measure import Clock, run
from benchmarks.weights import EMBEDDED, guard_corpus, negotiator, store
from engine.negotiation.opponents import Opponent, TrainingRoster
from engine.negotiation.settings import ReinforceConfig
from envs.core.seeds import derive_seed, stream
from envs.negotiation.corpora.compiled import Corpus
from envs.negotiation.game import NegotiationGame, Rules, play
from envs.negotiation.scenario import random_scenario
from policies.negotiator.batches import make_batch
from policies.negotiator.checkpoints import load_model
from policies.negotiator.model import Negotiator, supervised_loss, word_nll
from policies.negotiator.speaker import NegotiatorAgent

SEED = 1
RULE = ReinforceConfig(
    reward="advantage",
    complementary=True,
    scaling="none",
    optimiser="adam",
    learning_rate=3e-4,
    supervised_weight=0.5,
    kl_weight=0.5,
    scenarios="random",
)
"""The RL attack with both guards against language drift; `PlainLoop` writes the same out by hand."""
MODEL_SPANS = ("speaking", "training_forward", "training_backward")
_SELECTION_WEIGHT = 0.5


@dataclass(frozen=True, kw_only=True)
class Options:
    """An adversary trained through RLlib and by a plain loop."""

    checkpoint: Path | None = None
    """Checkpoint folder that both sides start from; one fitted on the spot when not given."""
    corpus: str = EMBEDDED
    """Corpus of the supervised guard, with the checkpoint's vocabulary."""
    data_root: Path | None = None
    """Where corpora lie; the usual places when not given."""
    quick: bool = False
    """Fewer updates: below a minute."""

    @property
    def updates(self) -> int:
        """Updates that are measured; one more warms up."""
        return 6 if self.quick else 30


class Spans:
    """Wall seconds by name; what runs inside another span counts in its own alone."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._inner: list[float] = [0.0]

    def timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call, clocked."""

        def clocked(*arguments: Any, **named: Any) -> Any:
            self._inner.append(0.0)
            started = time.perf_counter()
            try:
                return call(*arguments, **named)
            finally:
                whole = time.perf_counter() - started
                self.seconds[name] += whole - self._inner.pop()
                self._inner[-1] += whole

        return clocked


@contextmanager
def clocked_rllib() -> Iterator[Spans]:
    """Clocks the calls that an update through RLlib consists of."""
    from ray.rllib.algorithms.algorithm import Algorithm
    from ray.rllib.core.learner.learner_group import LearnerGroup
    from ray.rllib.env.env_runner_group import EnvRunnerGroup

    from engine.rllib.algorithm import DialogueReinforce
    from engine.rllib.learner import DialogueLearner
    from engine.rllib.module import NegotiatorModule
    from engine.rllib.runner import DialogueEnvRunner
    from policies.negotiator.speaker import NegotiatorSession

    calls: tuple[tuple[str, type, str], ...] = (
        ("speaking", NegotiatorAgent, "__init__"),
        ("speaking", NegotiatorSession, "__init__"),
        ("speaking", NegotiatorSession, "speak"),
        ("speaking", NegotiatorSession, "choose"),
        ("training_forward", NegotiatorModule, "_forward_train"),
        ("training_forward", DialogueLearner, "compute_losses"),
        ("training_backward", DialogueLearner, "compute_gradients"),
        ("optimiser", DialogueLearner, "postprocess_gradients"),
        ("optimiser", DialogueLearner, "apply_gradients"),
        ("game", DialogueEnvRunner, "sample"),
        ("batch_and_metrics", LearnerGroup, "update"),
        ("weight_sync", EnvRunnerGroup, "sync_weights"),
        ("rows_and_returns", DialogueReinforce, "training_step"),
        ("rllib_results", Algorithm, "train"),
    )
    spans = Spans()
    with ExitStack() as stack:
        for name, owner, attribute in calls:
            stack.enter_context(patch.object(owner, attribute, spans.timed(name, getattr(owner, attribute))))
        yield spans


class PlainLoop:
    """The same training by hand.

    Args:
        learner: learns from its present weights.
        partner: stays as it is.
        rule: its sizes, rates and weights; what kind of rule it is, is written out here.
        corpus: of the supervised guard.
    """

    def __init__(self, learner: Negotiator, partner: Negotiator, rule: ReinforceConfig, corpus: Corpus) -> None:
        self.learner, self.rule, self.corpus = learner, rule, corpus
        self.partner = NegotiatorAgent(partner, "partner", rule.temperature)
        self.reference = copy.deepcopy(learner).requires_grad_(False)
        self.optimiser = torch.optim.Adam(learner.parameters(), lr=rule.learning_rate)
        self.rewards: list[float] = []
        self.iteration = 0

    def update(self) -> None:
        """Plays, then takes one step."""
        game = self._play()
        advantages = (game.points[:, 0] - game.points[:, 1]).tolist()
        self.rewards += advantages
        mean = sum(self.rewards) / len(self.rewards)
        own, returns = self._returns(game, [advantage - mean for advantage in advantages])
        with torch.random.fork_rng():
            dialogues_so_far = (self.iteration + 1) * len(game)
            torch.manual_seed(derive_seed(SEED, "dropout", dialogues_so_far))
            loss = self._policy_loss(game, own, returns) + self.rule.supervised_weight * self._corpus_loss()
            self.optimiser.zero_grad()
            loss.backward()
        nn.utils.clip_grad_norm_(self.learner.parameters(), self.rule.clip)
        self.optimiser.step()
        self.iteration += 1

    def _play(self) -> NegotiationGame:
        rule, size = self.rule, self.rule.dialogues_per_update
        indices = range(self.iteration * size, (self.iteration + 1) * size)
        scenarios = [random_scenario(stream(SEED, "training scenario", index)) for index in indices]
        seeds = [derive_seed(SEED, "training dialogue", index) for index in indices]
        rules = Rules(max_turns=rule.max_turns, complementary=rule.complementary)
        game = NegotiationGame(scenarios, seeds, self.learner.vocabulary, rules)
        return play(game, (NegotiatorAgent(self.learner.eval(), "learner", rule.temperature), self.partner))

    def _returns(self, game: NegotiationGame, centered: list[float]) -> tuple[np.ndarray, np.ndarray]:
        """Which tokens the learner drew (N, T) bool, and their returns (N, T) float32."""
        width = int(game.num_tokens.max())
        own, returns = np.zeros((len(game), width), dtype=bool), np.zeros((len(game), width), dtype=np.float32)
        for row, reward in enumerate(centered):
            drawn, place_in_utterance = [], 0
            for place in range(game.num_tokens[row]):
                place_in_utterance = place_in_utterance + 1 if game.authors[row, place] == 0 else 0
                # The game closes an utterance that has reached its limit; nobody drew that word.
                if 0 < place_in_utterance <= game.rules.max_words:
                    drawn.append(place)
            own[row, drawn] = True
            returns[row, drawn] = [reward * self.rule.gamma ** (len(drawn) - 1 - k) for k in range(len(drawn))]
        return own, returns

    def _policy_loss(self, game: NegotiationGame, own: np.ndarray, returns: np.ndarray) -> torch.Tensor:
        """REINFORCE and the divergence from the reference on the words that the learner drew."""
        tokens, mine = torch.from_numpy(game.tokens[0, :, : own.shape[1]]), torch.from_numpy(own)
        contexts = torch.from_numpy(np.ascontiguousarray(game.contexts[0]))
        speaking = self._log_probs(self.learner, contexts, tokens, mine)
        with torch.no_grad():
            reference = self._log_probs(self.reference, contexts, tokens, mine)
        log_probs = speaking.gather(1, tokens[mine].unsqueeze(1)).squeeze(1)
        difference = (speaking - reference).masked_fill(torch.isinf(speaking), 0.0)
        divergence = (speaking.exp() * difference).sum(1).mean()
        return -(log_probs * torch.from_numpy(returns)[mine]).sum() / len(game) + self.rule.kl_weight * divergence

    def _log_probs(self, model: Negotiator, contexts: torch.Tensor, tokens: torch.Tensor, mine: torch.Tensor) -> torch.Tensor:
        states = model.read(tokens, model.encode_context(contexts))
        logits = model.word_logits(states[:, :-1][mine[:, 1:]]) / self.rule.temperature
        logits[:, list(model.vocabulary.unspeakable_ids)] = -torch.inf
        return logits.log_softmax(1)

    def _corpus_loss(self) -> torch.Tensor:
        train = self.corpus.splits["train"]
        drawn = stream(SEED, "supervised", self.iteration).choice(len(train), size=self.rule.supervised_batch, replace=False)
        batch = make_batch(train, drawn)
        logits, choice = self.learner.train()(batch.contexts_B6, batch.tokens_BT, batch.lengths_B)
        return supervised_loss(choice, word_nll(logits, batch.tokens_BT), batch.outputs_B6, _SELECTION_WEIGHT)[0]


def measure(options: Options) -> dict[str, Any]:
    """Trains both by turns and compares their weights."""
    from engine.runtime.session import connect

    model, rule = negotiator(options.checkpoint), RULE
    corpus = guard_corpus(model, options.corpus, options.data_root)
    through_rllib, by_hand = Clock(), Clock()
    with tempfile.TemporaryDirectory() as folder, connect(num_cpus=1), clocked_rllib() as spans:
        store(model, Path(folder) / "checkpoint")
        algorithm = _build(Path(folder) / "checkpoint", rule, corpus, options)
        plain = PlainLoop(load_model(Path(folder) / "checkpoint"), model, rule, corpus)
        for number in range(1 + options.updates):
            if number == 1:
                through_rllib, by_hand = Clock(), Clock()
                spans.seconds.clear()
            with through_rllib.running():
                algorithm.train()
            before = dict(spans.seconds)
            with by_hand.running():
                plain.update()
            # The plain loop speaks through the same classes, which are clocked.
            spans.seconds.update(before)
        weights = _learned(algorithm)
        algorithm.stop()
    shares = {name: seconds / through_rllib.wall_s for name, seconds in spans.seconds.items()}
    differences = {name: float((value - weights[name]).abs().max()) for name, value in plain.learner.state_dict().items()}
    return {
        "ratio": by_hand.cpu_s / through_rllib.cpu_s,
        "identical": max(differences.values()) <= 1e-5,
        "largest_difference": max(differences.values()),
        "share_outside_model": 1 - sum(shares[name] for name in MODEL_SPANS),
        "shares": shares,
        "ratio_on_the_wall": by_hand.wall_s / through_rllib.wall_s,
        "cpu_s_per_update": through_rllib.cpu_s / options.updates,
        "plain_cpu_s_per_update": by_hand.cpu_s / options.updates,
        "updates": options.updates,
        "dialogues_per_update": rule.dialogues_per_update,
        "weights": "fitted here" if options.checkpoint is None else "checkpoint",
    }


def _build(checkpoint: Path, rule: ReinforceConfig, corpus: Corpus, options: Options) -> Any:
    from engine.rllib.algorithm import DialogueReinforceConfig

    met = Opponent(name="target", checkpoint=str(checkpoint), reward=rule.reward, complementary=rule.complementary)
    settings = DialogueReinforceConfig().dialogues(
        reinforce=rule,
        roster=TrainingRoster(role="adversary", learner=str(checkpoint), reference=str(checkpoint), opponents=(met,)),
        seed=SEED,
        vocabulary=corpus.vocabulary,
        corpus=options.corpus,
        data_root=options.data_root,
    )
    return settings.build_algo()


def _learned(algorithm: Any) -> dict[str, torch.Tensor]:
    from engine.rllib.state import learned_weights

    return learned_weights(algorithm)


if __name__ == "__main__":
    run("rllib_overhead", Options, measure)
