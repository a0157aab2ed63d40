"""Small white-box attacks on models made up for them."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from parley.engine.core.verbs.job import Silent
from parley.engine.negotiation.attacks.settings import AttackKind, SearchConfig
from parley.engine.negotiation.verbs.whitebox import JOBS, WhiteBoxAttackConfig
from parley.envs.negotiation.dealornodeal_rules import NO_AGREEMENT_ID
from parley.envs.negotiation.domain import EOS_ID, SELECTION_ID
from parley.envs.negotiation.scripted.wording import bargainer_vocabulary
from parley.policies.core.checkpoint import Checkpoint
from parley.policies.negotiator.settings import KIND
from tests.engine.core.verbs.made_up import TINY, rows
from tests.engine.negotiation.speakers import leaning

KINDS = list(JOBS)
CHANGES: dict[str, Any] = {"goal": 2.0, "preemptive_goal": 1.0, "replies": 3, "finalists": 3}


def save_leaning(folder: Path, seed: int, ending: float, refusing: float = 0.0) -> Path:
    """Stores a random negotiator that speaks briefly and leans towards `<selection>`, and refusals, by so many logits."""
    words = bargainer_vocabulary()
    model = leaning(words, TINY, seed, {EOS_ID: 3.0, SELECTION_ID: ending})
    model.selection_heads.bias.data.view(model.domain.num_heads, -1)[:, NO_AGREEMENT_ID] += refusing
    Checkpoint(KIND, asdict(TINY), {"role": "made up"}, words, model.state_dict()).save(folder)
    return folder


def save_target(folder: Path) -> Path:
    """Ends the talk after some sentences and not after others."""
    return save_leaning(folder / "checkpoint", seed=5, ending=3.5)


def save_hasty(folder: Path) -> Path:
    """Ends the talk after many sentences, so that a search by chance finds some."""
    return save_leaning(folder / "checkpoint", seed=5, ending=6.0)


def save_speaker(folder: Path) -> Path:
    """Speaks for the adversary."""
    return save_leaning(folder / "checkpoint", seed=2, ending=1.0)


def asked(kind: AttackKind, target: Path, speaker: Path, preset: str = "cheng2019", **changes: Any) -> WhiteBoxAttackConfig:
    """A small attack of that kind; changes to the search or to the rest of a preset by their names."""
    config = JOBS[kind].presets[preset]()
    search = {name: changes.pop(name) for name in list(changes) if name in SearchConfig.__dataclass_fields__}
    few: dict[str, Any] = {"dialogues": 8, "shard_size": 4, "max_turns": 5, "temperature": 1.0}
    who = {"target": str(target), "speaker": str(speaker)}
    return replace(config, **{**who, **few, **changes}, search=replace(config.search, **{**CHANGES, **search}))


def attack(kind: AttackKind, config: WhiteBoxAttackConfig, path: Path) -> list[dict[str, Any]]:
    """Makes it; its rows."""
    JOBS[kind].run(config, path, Silent())
    return rows(path)
