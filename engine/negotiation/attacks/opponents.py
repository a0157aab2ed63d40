"""The opponents of a learner and their sampling.

Adversarial training against the latest adversary alone (Cheng et al. 2019, section 6) forgets the earlier ones and ordinary
play. Fictitious play draws from all adversaries so far; prioritised fictitious self-play draws stronger ones more often;
"weighted" draws from a given mixture (`engine/core/stats/known.py`).

Shapes: N dialogues of an update, K opponents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from parley.engine.core.stats.known import hard_weights
from parley.engine.negotiation.attacks.settings import DefenceConfig
from parley.envs.core.config import Configuration, PositiveInt, Share, check
from parley.envs.core.errors import ConfigError
from parley.envs.core.seeds import stream
from parley.policies.chat.settings import ChatSeat

Reward = Literal["points", "advantage"]
"""The learner's own points, or those less the other side's."""
MEMORY = 0.7
"""Weight of an adversary's earlier record after an update against it; the update has the rest."""


@dataclass(frozen=True, kw_only=True)
class Opponent:
    """A frozen agent that the learner plays with: a checkpoint, or any other agent by its name."""

    name: str
    """Its name in metrics, distinct among a learner's opponents."""
    checkpoint: str = ""
    """Its checkpoint folder; empty for an agent without weights."""
    agent: str = ""
    """The name of an agent without weights, registered or path/file.py:Name, in place of a checkpoint."""
    reward: Reward
    """The learner's reward against it."""
    complementary: bool
    """True if the target alone chooses and the adversary is given the complement (the attacks' rule)."""
    ordinary: bool = False
    """True for the partner of plain play beside a population of adversaries."""
    defence: DefenceConfig = field(default_factory=DefenceConfig)
    """Its defences."""
    judge: str = ""
    """Judge of its filter, if it has one: a checkpoint folder, or the address of a chat model."""

    def __post_init__(self) -> None:
        assert bool(self.checkpoint) != bool(self.agent), "an opponent is a checkpoint or an agent of another kind"


@dataclass(frozen=True, kw_only=True)
class OpponentConfig(Configuration):
    """Sampling of opponents while a target is hardened."""

    topic: ClassVar[str] = "train target"

    sampling: Literal["latest", "uniform", "prioritised", "weighted"] = "latest"
    """The newest (paper), any of the pool alike (fictitious play), those that win more often, or by weights (a mixture)."""
    weights: tuple[float, ...] = ()
    """For weighted: the weight of each opponent, in order; parley evaluate population computes such weights."""
    pool: PositiveInt = 8
    """Newest opponents that are drawn from, unless by weights; older ones are forgotten."""
    partner_share: Share = 0.0
    """Share of the dialogues that are ordinary play with a partner, in which both choose, for own points; 1 for no other."""

    def __post_init__(self) -> None:
        super().__post_init__()
        weighted = self.sampling == "weighted"
        fits = bool(self.weights) == weighted and all(weight >= 0 for weight in self.weights)
        check(self, "weights", fits and (not weighted or sum(self.weights) > 0), "none below 0, some above, for weighted alone")


@dataclass(frozen=True, kw_only=True)
class TrainingRoster:
    """The learner of a training, the checkpoint that its words stay near, and its opponents."""

    role: Literal["adversary", "target"]
    """The learner's side of the game."""
    learner: str
    """Checkpoint folder that it starts from."""
    reference: str
    """Checkpoint folder that the KL guard keeps it near."""
    opponents: tuple[Opponent, ...]
    """The opponents, the newest adversary last; at most one is ordinary."""
    drawing: OpponentConfig = OpponentConfig()
    """Draw of the opponents."""
    chat: ChatSeat = field(default_factory=ChatSeat)
    """Settings of chat models among them."""
    answers: Path | None = None
    """Folder that stores their answers; None stores none."""

    def __post_init__(self) -> None:
        num, weights = sum(not opponent.ordinary for opponent in self.opponents), self.drawing.weights
        if weights and len(weights) != num:
            fix = "give as many weights as there are opponents, in their order"
            raise ConfigError("opponents are drawn by weights", where="weights", got=f"{len(weights)} for {num}", fix=fix)

    @property
    def side(self) -> int:
        """Return the learner's side as a number."""
        return ("adversary", "target").index(self.role)

    @property
    def drawable(self) -> tuple[Opponent, ...]:
        """Return the opponents that can be drawn: the ordinary one and the pool; no others are loaded."""
        ordinary, adversaries = (
            [opponent for opponent in self.opponents if opponent.ordinary == kind] for kind in (True, False)
        )
        if self.drawing.sampling == "weighted":
            drawn = [opponent for opponent, weight in zip(adversaries, self.drawing.weights, strict=True) if weight > 0]
            return (*ordinary, *drawn)
        return (*ordinary, *adversaries[-1 if self.drawing.sampling == "latest" else -self.drawing.pool :])


def require_enough(lost: Mapping[int, tuple[str, str]], met: Mapping[int, str], max_lost: float) -> None:
    """Raise an error if opponents failed in too many dialogues of an update.

    Args:
        lost: the opponent's name and the reason, by dialogue.
        met: name of the opponent of each dialogue of the update, lost ones included.
        max_lost: share of them that may be lost, but never all of an opponent.

    Raises:
        ConfigError: more dialogues are lost.
    """
    finished = {name for index, name in met.items() if index not in lost}
    if len(lost) <= max_lost * len(met) and finished == set(met.values()):
        return
    name, reason = next(iter(lost.values()))
    # On one line and without its own "fix", because this error is about opponents.
    reasons = ", ".join(" ".join(line.split()) for line in reason.splitlines() if not line.startswith("  fix:"))
    raise ConfigError(
        "opponents fail in too many dialogues to learn from the rest",
        where=f"opponent {name}",
        got=f"{len(lost)} of {len(met)} dialogues of an update are lost, {max_lost:.0%} may be; {reasons}",
        fix="mend the agent",
    )


class OpponentDraw:
    """The draw of the opponent of each dialogue of each update, with the opponents' records.

    The adversary is drawn once an update, so that its dialogues can be played side by side.

    Args:
        roster: the opponents.
        seed: seed of the draws.
    """

    def __init__(self, roster: TrainingRoster, seed: int) -> None:
        self._seed, self._drawing = seed, roster.drawing
        self._pool = [opponent.name for opponent in roster.drawable if not opponent.ordinary]
        self._ordinary = [opponent.name for opponent in roster.drawable if opponent.ordinary]
        self.wins: dict[str, float] = {}
        """Share of latest dialogues that each played adversary won; a draw counts half."""

    def names(self, update: int, size: int) -> list[str]:
        """Return the name of the opponent for each of `size` dialogues of an update."""
        drawn = str(stream(self._seed, "opponent", update).choice(self._pool, p=self._probabilities()))
        # At least one dialogue is against the adversary; the others give no information about it.
        num_ordinary = min(round(self._drawing.partner_share * size), size - 1) if self._ordinary else 0
        return self._ordinary * num_ordinary + [drawn] * (size - num_ordinary)

    def note(self, names: Sequence[str], leads_N: np.ndarray) -> None:
        """Add an update's dialogues to the records.

        Args:
            names: the opponent of each dialogue.
            leads_N: points of the opponent less those of the learner.
        """
        for name in self._pool:
            met = np.array([name == other for other in names])
            if met.any():
                won = float(((np.sign(leads_N[met]) + 1) / 2).mean())
                before = self.wins.get(name, won)
                self.wins[name] = MEMORY * before + (1 - MEMORY) * won

    def restore(self, wins: Mapping[str, Any]) -> None:
        """Restore the records of a saved training."""
        self.wins = {name: float(share) for name, share in wins.items()}

    def _probabilities(self) -> np.ndarray:
        if self._drawing.sampling == "weighted":
            weights = np.array([weight for weight in self._drawing.weights if weight > 0])
            return weights / weights.sum()
        if self._drawing.sampling == "prioritised":
            # An opponent without a record counts as one that always wins.
            return hard_weights(np.array([self.wins.get(name, 1.0) for name in self._pool]))
        return np.full(len(self._pool), 1 / len(self._pool))
