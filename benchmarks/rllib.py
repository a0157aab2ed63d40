"""What RLlib costs and gives: the same training as a plain loop, through RLlib in one process, and with env runners.

An adversary learns as `parley train adversary` lets it. First `engine/core/rllib` in this process and the plain loop by turns:
every call that computes with a network is clocked by itself, and so is what stands around it. Then with one env runner beside
the process, and with two. As every random number is named by the seed, all must arrive at the same weights: with runners bit
for bit; by the plain loop, which adds up in another order, so nearly that "relative_difference", the length of the difference
by that of what was learned, stays below a thousandth. Single weights may differ by more than they would by rounding, which
"largest_difference" shows: Adam makes a whole step where a gradient is nothing but rounding. At the published size, one of
1.6 million weights did so, in the first update.

With `--env-runners 1 2 4 --learners 2 --overlap` the trainings with env runners have learners of their own, or play while they
learn; then their weights are others, and only how fast they are is compared. "updates_per_s" is of whole updates on the wall.

"ratio" is plain seconds / RLlib seconds of this process, at most about 1; "share_outside_model" is the share of RLlib's wall
time that is neither speaking nor a forward or backward pass in training. "runner_ratio" is of the dialogues a second played by
two runners to those of one, on the wall; "dialogues_per_s" is of whole updates, playing and learning, with 0, 1 and 2 runners.
With `--overlap` "runner_ratio" and "dialogues_played_per_s" are left out: what is played while learning goes on is not clocked.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.measure import BenchmarkOptions, Clock, Result, Spans, run
from benchmarks.plain_reinforce import SEED, PlainLoop
from benchmarks.weights import EMBEDDED, guard_corpus, negotiator, store
from parley.engine.negotiation.attacks.opponents import Opponent, TrainingRoster
from parley.engine.negotiation.attacks.settings import ReinforceConfig
from parley.envs.negotiation.corpora.catalogue import Corpus
from parley.policies.negotiator.speaker import NegotiatorAgent, load_model

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


@dataclass(frozen=True, kw_only=True)
class Training(BenchmarkOptions):
    """What is trained from where."""

    checkpoint: Path | None = None
    """Checkpoint folder that both sides start from; one fitted on the spot when not given."""
    corpus: str = EMBEDDED
    """Corpus of the supervised guard, with the checkpoint's vocabulary."""
    data_root: Path | None = None
    """Where corpora lie; the usual places when not given."""


@dataclass(frozen=True, kw_only=True)
class Options(Training):
    """An adversary trained by a plain loop, and through RLlib with 0, 1 and 2 env runners."""

    env_runners: tuple[int, ...] = (1, 2)
    """Env runners of the trainings that follow the one in this process."""
    learners: int = 0
    """Learners in actors of their own, in those trainings; 0 learns in this process."""
    overlap: bool = False
    """Whether in those trainings play and learning go on at the same time."""
    dialogues_per_update: int = RULE.dialogues_per_update
    """Two runners need something to share: more than on a laptop show what they give."""

    @property
    def updates(self) -> int:
        """Updates that are measured; one more warms up."""
        return 6 if self.quick else 30


@contextmanager
def clocked_rllib() -> Iterator[Spans]:
    """Clocks the calls that an update through RLlib consists of."""
    from ray.rllib.algorithms.algorithm import Algorithm
    from ray.rllib.core.learner.learner_group import LearnerGroup
    from ray.rllib.env.env_runner_group import EnvRunnerGroup

    from parley.engine.negotiation.rl.algorithm import DialogueReinforce
    from parley.engine.negotiation.rl.learner import DialogueLearner, NegotiatorModule
    from parley.engine.negotiation.rl.runner import DialogueEnvRunner
    from parley.policies.negotiator.speaker import NegotiatorSession

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


def measure(options: Options) -> Result:
    """Trains in all ways and compares the weights."""
    from parley.engine.core.ray.session import connect

    model, rule = negotiator(options.checkpoint), replace(RULE, dialogues_per_update=options.dialogues_per_update)
    corpus = guard_corpus(model, options.corpus, options.data_root)
    with tempfile.TemporaryDirectory() as folder, connect(num_cpus=max(options.env_runners) + 1 + options.learners):
        start = Path(folder) / "checkpoint"
        store(model, start)
        plain = PlainLoop(load_model(start), model, rule, corpus)
        figures, steps, weights = _beside_plain(start, plain, options)
        taken = {0: steps}
        same = []
        shared = replace(rule, overlap=options.overlap)
        for number in options.env_runners:
            taken[number], learned = _trained(start, shared, corpus, options, number)
            if options.learners < 2 and not options.overlap:
                same += [learned[name].equal(value) for name, value in weights.items()]
    by_hand, begun = plain.learner.state_dict(), model.state_dict()
    apart = {name: value - weights[name] for name, value in by_hand.items()}
    relative = _length(apart) / _length({name: value - begun[name] for name, value in by_hand.items()})
    figures |= {
        "relative_difference": relative,
        "largest_difference": max(float(value.abs().max()) for value in apart.values()),
        **({} if options.overlap else rates_of_play(list(taken.values()))),
        "dialogues_per_s": [_rate(steps, "seconds") for steps in taken.values()],
        "updates_per_s": [len(steps) / sum(step["seconds"] for step in steps) for steps in taken.values()],
        "env_runners": list(taken),
        "learners": options.learners,
        "overlap": options.overlap,
        "updates": options.updates,
        "dialogues_per_update": rule.dialogues_per_update,
        "weights": "fitted here" if options.checkpoint is None else "checkpoint",
    }
    return Result(ratio=figures.pop("ratio"), identical=relative <= 1e-3 and all(same), figures=figures)


def _length(weights: Mapping[str, torch.Tensor]) -> float:
    return float(sum(value.double().square().sum() for value in weights.values())) ** 0.5


Steps = list[dict[str, Any]]


def _beside_plain(start: Path, plain: PlainLoop, options: Options) -> tuple[dict[str, Any], Steps, dict[str, torch.Tensor]]:
    """Trains through RLlib and by hand, by turns: figures of both, RLlib's updates and its weights."""
    from parley.engine.core.rllib.reproducible import learned_weights

    algorithm = build(start, plain.rule, plain.corpus, options)
    steps: Steps = []
    through_rllib, by_hand = Clock(), Clock()
    with clocked_rllib() as spans:
        for number in range(1 + options.updates):
            if number == 1:
                through_rllib, by_hand, steps = Clock(), Clock(), []
                spans.seconds.clear()
            with through_rllib.running():
                algorithm.train()
            steps.append(algorithm.last)
            before = dict(spans.seconds)
            with by_hand.running():
                plain.update()
            # The plain loop speaks through the same classes, which are clocked.
            spans.seconds.update(before)
    weights = learned_weights(algorithm)
    algorithm.stop()
    shares = {name: seconds / through_rllib.wall_s for name, seconds in spans.seconds.items()}
    figures = {
        "ratio": by_hand.cpu_s / through_rllib.cpu_s,
        "share_outside_model": 1 - sum(shares[name] for name in MODEL_SPANS),
        "shares": shares,
        "ratio_on_the_wall": by_hand.wall_s / through_rllib.wall_s,
        "cpu_s_per_update": through_rllib.cpu_s / options.updates,
        "plain_cpu_s_per_update": by_hand.cpu_s / options.updates,
    }
    return figures, steps, weights


def _trained(
    start: Path, rule: ReinforceConfig, corpus: Corpus, options: Options, runners: int
) -> tuple[Steps, dict[str, torch.Tensor]]:
    """Trains with env runners: what its updates were, but for the first, and its weights."""
    from parley.engine.core.rllib.reproducible import learned_weights

    algorithm = build(start, rule, corpus, options, runners, options.learners)
    steps = []
    for _ in range(1 + options.updates):
        algorithm.train()
        steps.append(algorithm.last)
    weights = learned_weights(algorithm)
    algorithm.stop()
    return steps[1:], weights


def build(
    start: Path,
    rule: ReinforceConfig,
    corpus: Corpus,
    options: Training,
    runners: int = 0,
    learners: int = 0,
    *,
    learner: Path | None = None,
    seed: int = SEED,
) -> Any:
    """Return an algorithm whose adversary learns against the checkpoint that it starts from.

    Args:
        start: the checkpoint.
        rule: how it learns.
        corpus: of the supervised guard.
        options: the corpus' name and place.
        runners: env runners in actors.
        learners: in actors; 0 learns in this process.
        learner: the checkpoint that the adversary starts from, where it is another.
        seed: of the training.
    """
    from parley.engine.negotiation.rl.algorithm import DialogueReinforceConfig

    met = Opponent(name="target", checkpoint=str(start), reward=rule.reward, complementary=rule.complementary)
    settings = DialogueReinforceConfig().dialogues(
        reinforce=rule,
        roster=TrainingRoster(role="adversary", learner=str(learner or start), reference=str(start), opponents=(met,)),
        seed=seed,
        vocabulary=corpus.vocabulary,
        corpus=options.corpus,
        data_root=options.data_root,
    )
    settings.env_runners(num_env_runners=runners)
    settings.learners(num_learners=learners)
    return settings.build_algo()


def rates_of_play(taken: list[Steps]) -> dict[str, Any]:
    """Dialogues played a second, and by the most runners beside by the fewest; of trainings that play and learn by turns."""
    playing = [_rate(steps, "seconds_sampling") for steps in taken]
    return {"runner_ratio": playing[-1] / playing[1], "dialogues_played_per_s": playing}


def _rate(steps: Steps, seconds: str) -> float:
    return sum(step["dialogues"] for step in steps) / sum(step[seconds] for step in steps)


if __name__ == "__main__":
    run("rllib", Options, measure)
