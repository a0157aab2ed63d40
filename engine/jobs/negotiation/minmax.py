"""Adversarial training: `parley minmax` (Cheng et al. 2019, section 6).

A campaign (`campaign.py`) ends after its rounds, or when exploitability has stopped falling; the least exploitable target that
still plays well with an ordinary partner is the result. It and the start are then measured once more, on dialogues that chose
nothing.

The paper gives no schedule, rates or stopping rule: `cheng2019` keeps what it says (the latest adversary, trained on, and
reward -(S_adv - S_ori)); `population` adds what the field found to help since.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine.jobs.checkpoints import require_checkpoint
from engine.jobs.job import Job, Reporter, Steps, Summary
from engine.jobs.negotiation import reinforce, training
from engine.jobs.negotiation.agents import require_agents
from engine.jobs.negotiation.campaign import ROUND, Campaign, MinMaxConfig
from engine.jobs.negotiation.training import PUBLISHED, corpus_words, require_words
from engine.jobs.sharded import session
from engine.metrics.negotiation.campaign import (
    AFTER,
    BEFORE,
    EXPLOITABILITY,
    PERPLEXITY,
    PLAIN_AGREEMENT,
    PLAIN_SCORE,
    ROUND_METRICS,
    Round,
    best_round,
    still_playing,
)
from engine.metrics.statistics import Estimate, Metric, paired_difference
from engine.negotiation.opponents import OpponentConfig
from engine.store.layout import SUMMARY
from engine.store.run_folder import RunFolder
from engine.store.schemas import OK
from envs.core.seeds import derive_seed
from envs.storage.copies import CHECKPOINT
from envs.storage.places import display_path

FINAL = "final"
FINAL_STAGES = {
    "final-attack-before": "fresh adversary, before",
    "final-plain-before": "plain play, before",
    "final-attack": "fresh adversary, after",
    "final-plain": "plain play, after",
}
"""What the stages are called that measure the start and the result once more, on dialogues that chose no round."""
BEFORE_TRAINING = "_before"
"""Ending of the metrics of the target before any training."""
DROP = "exploitability_drop"

_COMPARED = {name: metric for name, metric in ROUND_METRICS.items() if name not in (BEFORE, AFTER)}
_PAIRS = {
    name + ending: metric._replace(title=metric.title + told)
    for name, metric in _COMPARED.items()
    for ending, told in ((BEFORE_TRAINING, ", before"), ("", ""))
}
LEGEND = _PAIRS | {
    DROP: Metric("exploitability lost", "higher: target", "before less after on the same scenarios, mean", main=True),
}
@dataclass(frozen=True)
class Hardened:
    """What a campaign has come to.

    Args:
        config: what was asked for.
        num_rounds: that were made.
        best: the round whose target is the result.
        metrics: of the start and of the result.
    """

    config: MinMaxConfig
    num_rounds: int
    best: int
    metrics: dict[str, Estimate]


def _cpus(config: MinMaxConfig) -> int:
    return max(config.env_runners + 1 + config.threads * config.remote_learner, config.workers)


def _measured_again(
    campaign: Campaign, config: MinMaxConfig, path: Path, rounds: Sequence[Round], best: Round
) -> dict[str, Estimate]:
    """Start and result on dialogues that did not choose the result, each against its own best response."""
    seed = derive_seed(config.seed, FINAL)
    metrics: dict[str, Estimate] = {}
    for ending, number in ((BEFORE_TRAINING, 0), ("", best.number)):
        target = campaign.target(number)
        attacked = campaign.attack(_stage("attack", ending), campaign.best_response(number), target, seed)
        plain = campaign.play(_stage("plain", ending), target, seed)
        metrics |= {
            EXPLOITABILITY + ending: attacked["advantage"],
            PLAIN_SCORE + ending: plain["score_target"],
            PLAIN_AGREEMENT + ending: plain["agreement"],
            PERPLEXITY + ending: rounds[number].metrics[PERPLEXITY],
        }
    before, after = (_advantages(path / _stage("attack", ending)) for ending in (BEFORE_TRAINING, ""))
    keys = sorted(before.keys() & after.keys())
    metrics[DROP] = paired_difference([before[key] for key in keys], [after[key] for key in keys])
    return metrics


def _stage(name: str, ending: str) -> str:
    return f"{FINAL}-{name}{ending.replace('_', '-')}"


def _store(campaign: Campaign, config: MinMaxConfig, path: Path, best: Round) -> None:
    """The result as the campaign's own checkpoint."""
    from policies.negotiator.checkpoints import load_model, provenance, save_model

    folder = require_checkpoint(campaign.target(best.number), "--target")
    origin = {**provenance(folder), "campaign_from": config.target, "round": best.number}
    save_model(load_model(folder), path / CHECKPOINT, origin)


def _advantages(path: Path) -> dict[str, float]:
    rows = RunFolder.load(path).read_rows().to_pylist()
    return {row["item_key"]: row["points_adversary"] - row["points_target"] for row in rows if row["status"] == OK}


def latest() -> MinMaxConfig:
    """The latest adversary, trained on from round to round; reward -(S_adv - S_ori) (Cheng et al. 2019, section 6)."""
    return MinMaxConfig()


def population() -> MinMaxConfig:
    """Fresh best responses, those that win drawn more often, and plain play (Lanctot et al. 2017, Vinyals et al. 2019)."""
    return MinMaxConfig(adversaries="fresh", opponents=OpponentConfig(sampling="prioritised", partner_share=0.25))


def demo() -> MinMaxConfig:
    """One round with the small agents that parley demo trains."""
    rule = reinforce.demo().reinforce
    return replace(
        population(),
        target="runs/demo/target",
        adversary="runs/demo/adversary",
        rounds=1,
        budget=rule.dialogues,
        corpus="embedded",
        attack=rule,
        defence=replace(rule, dialogues=7_680, stalling_penalty=reinforce.hardened().reinforce.stalling_penalty),
    )


class MinMax(Job[MinMaxConfig, MinMaxConfig, Hardened]):
    """`parley minmax`."""

    words = ("minmax",)
    run_name = "minmax"
    config = MinMaxConfig
    presets = {"cheng2019": latest, "population": population, "demo": demo}
    legend = LEGEND
    files = (CHECKPOINT, SUMMARY)
    resume_safe = (*training.RESUME_SAFE, "workers", "retries")
    steps = Steps(ROUND, "rounds", lambda config: config["rounds"] if isinstance(config.get("rounds"), int) else None)

    def prepare(self, config: MinMaxConfig, path: Path, reporter: Reporter) -> MinMaxConfig:
        """Finds out whether the agents can talk with each other, and the corpus guard them."""
        words = require_agents(config, ("target", "adversary", "speaker", "partner", "judge"))
        require_words(config.corpus, config.data_root, words)
        return config

    def work(self, run: RunFolder, prepared: MinMaxConfig, reporter: Reporter) -> Hardened:
        """Does what is left of the campaign, and stores its result as `checkpoint`."""
        with session(_cpus(prepared), prepared.address):
            campaign = Campaign(prepared, run, reporter)
            rounds = campaign.rounds()
            best = best_round(still_playing(rounds, prepared.plain_loss))
            if best.number == 0:
                reporter.say("no round made the target less exploitable and left its plain play: the result is the start")
            metrics = _measured_again(campaign, prepared, run.path, rounds, best)
            _store(campaign, prepared, run.path, best)
        return Hardened(prepared, len(rounds) - 1, best.number, metrics)

    def measure(self, run: RunFolder, found: Hardened) -> Summary:
        """Start and result on dialogues that chose neither."""
        config = found.config
        return Summary(
            f"{config.target} hardened",
            f"Rounds of adversarial training: {found.num_rounds}. The target of round {found.best} is the "
            f"result, measured on {config.dialogues:,} dialogues that chose no round, seed {config.seed}.",
            found.metrics,
        )

    def next_commands(self, config: MinMaxConfig, path: Path) -> tuple[str, ...]:
        """A talk with the result, and every attack on it."""
        table = ["parley", "attack", "table", "--target", display_path(path), *corpus_words(config.corpus, config.data_root)]
        table += ["--judge", config.judge] if config.judge else []
        table += ["--published", "hardened" if config.corpus == PUBLISHED else "none"]
        play = shlex.join(["parley", "play", display_path(path)])
        return (*super().next_commands(config, path), play, shlex.join(table))


MINMAX = MinMax()
