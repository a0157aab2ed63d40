"""The list of jobs: verb and noun on the command line, one line of help, and where the `Job` is defined.

Listing imports nothing heavy; a job's module is imported when it is asked for.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from engine.jobs.job import Job


@dataclass(frozen=True)
class Entry:
    """One job on the command line.

    Args:
        words: what is typed, such as ("train", "negotiator").
        summary: one line of help.
        target: "module:ATTRIBUTE" of the `Job`.
        run_name: the run is runs/RUN_NAME unless told otherwise.
        examples: copy-paste commands.
    """

    words: tuple[str, ...]
    summary: str
    target: str
    run_name: str
    examples: tuple[str, ...]

    def load(self) -> Job:
        """Imports the job."""
        module, _, attribute = self.target.partition(":")
        job: Job = getattr(importlib.import_module(module), attribute)
        return job


ENTRIES = (
    Entry(
        ("train", "negotiator"),
        "fit a negotiation agent to recorded dialogues",
        "engine.jobs.negotiator:TRAIN_NEGOTIATOR",
        "negotiator",
        (
            "parley train negotiator                       # Deal or No Deal, fast recipe",
            "parley train negotiator lewis2017             # the released recipe, 32 epochs",
            "parley train negotiator demo --run runs/small # the embedded corpus",
        ),
    ),
    Entry(
        ("train", "rl"),
        "train a goal-based agent by self-play against a frozen one (RLlib)",
        "engine.jobs.reinforce:TRAIN_RL",
        "rl",
        (
            "parley train rl --target runs/negotiator",
            "parley train rl --target runs/negotiator --env-runners 8 --address 10.0.0.1:6379",
            "parley train rl --target runs/negotiator --set reinforce.updates=1000 --run runs/rl-long",
        ),
    ),
    Entry(
        ("train", "adversary"),
        "train an adversary against a frozen target (RLlib)",
        "engine.jobs.reinforce:TRAIN_ADVERSARY",
        "adversary",
        (
            "parley train adversary --target runs/negotiator",
            "parley train adversary --target runs/rl --learner runs/negotiator --run runs/adversary-rl",
            "parley train adversary --target runs/negotiator --set reinforce.kl_weight=0.05",
        ),
    ),
    Entry(
        ("selfplay",),
        "let two agents negotiate, and measure who gains what",
        "engine.jobs.match:SELFPLAY",
        "selfplay",
        (
            "parley selfplay --adversary scripted --target scripted-tough --dialogues 500",
            "parley selfplay --adversary runs/rl --target runs/negotiator --json",
            "parley selfplay --adversary runs/rl --target runs/negotiator --scenarios dealornodeal --workers 2",
        ),
    ),
    Entry(
        ("attack", "rl"),
        "play a trained adversary against a target",
        "engine.jobs.attack:ATTACK_RL",
        "attack-rl",
        (
            "parley attack rl --target runs/negotiator --speaker runs/adversary",
            "parley attack rl --target runs/rl --speaker runs/adversary-rl --judge runs/negotiator",
            "parley attack rl --target runs/negotiator --speaker runs/adversary --workers 2 --json",
        ),
    ),
    Entry(
        ("attack", "transfer"),
        "plug sentences that won elsewhere into ordinary dialogues",
        "engine.jobs.attack:ATTACK_TRANSFER",
        "attack-transfer",
        (
            "parley attack transfer --target runs/negotiator --speaker runs/negotiator --set transfer.source=runs/attack-rl",
            "parley attack transfer fixed --target runs/negotiator --speaker runs/negotiator",
            "parley attack transfer --target runs/rl --speaker runs/rl --set transfer.turn=5",
        ),
    ),
)


def find(name: str) -> Entry | None:
    """The entry of a job by the name that its run folders carry."""
    return next((entry for entry in ENTRIES if "-".join(entry.words) == name), None)
