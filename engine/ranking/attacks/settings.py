"""Settings of attacks on rankers, free of torch so that `--help` starts fast."""

from __future__ import annotations

from dataclasses import dataclass, field

from parley.envs.core.config import Configuration, NumItems, PositiveFloat, Share, check
from parley.envs.ranking.edit_game import GoalKind, Target

POLICY = "editor:"
"""Prefix of a trained editing policy as a method or a rule of a training: editor:RUN."""
MOVES: dict[GoalKind, tuple[str, ...]] = {
    "promote": ("context", "synonym", "insertion", "deletion", "swap"),
    "demote": ("synonym",),
}
"""Default moves: a wrong reply stays wrong under any edit, a right one stays right under synonyms."""


@dataclass(frozen=True, kw_only=True)
class GasliteSizes(Configuration):
    """The sizes of a GASLITE search; the paper's code has 100, 50, 20 and 128, for thousands of queries."""

    num_words: NumItems = 10
    """Words behind the reply, each one token of the encoder; of random-steps and random-words, too."""
    num_gradients: NumItems = 10
    """Texts whose slopes are averaged in a step; they are no queries and are counted separately."""
    num_positions: NumItems = 5
    """Positions of a step whose words may change; of random-steps, too."""
    num_candidates: NumItems = 10
    """Words tried at each position; of random-steps, too."""


@dataclass(frozen=True, kw_only=True)
class AttackDetails(Configuration):
    """The attacked reply and the constraints of its edits."""

    rank: NumItems = 1
    """Number of ranks that count as the top."""
    target: Target = "best"
    """The edited reply: the best-ranked one of its kind, or a random one."""
    beams: NumItems = 4
    """beam: number of drafts kept."""
    gaslite: GasliteSizes = field(default_factory=GasliteSizes)
    """Sizes of gaslite, random-steps and random-words."""
    keep_tags: bool = True
    """Every word keeps its tag in the edited reply, and a replacement has the tag of its word; appended words are exempt."""
    max_perplexity_ratio: PositiveFloat | None = None
    """Most perplexity under trigrams of the training split, as a multiple of the original's; no limit by default."""
    min_cosine: Share | None = None
    """Least cosine of the edited reply's word vectors with the original's; no limit by default."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "target", self.target in ("best", "random"), "one of best, random")


@dataclass(frozen=True, kw_only=True)
class AttackSettings(AttackDetails):
    """The goal, edits and budget of an attack."""

    goal: GoalKind = "promote"
    """Promote a wrong reply to the top, or demote the right one below it."""
    method: str = "greedy"
    """greedy (not exhaustive), beam, random, gradient (rankers that give slopes alone), gaslite, random-steps or random-words
    (bi-encoders alone), or path/file.py:Name of your own."""
    moves: tuple[str, ...] = ()
    """Edits: context (a context word of the same tag), synonym, insertion, deletion, swap; by default those of the goal."""
    edits: NumItems = 3
    """Words changed at most: replaced, inserted or deleted, two for a swap; gaslite appends gaslite.num_words."""
    budget: NumItems = 500
    """Most queries; a query is one context and candidate scored."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "moves", set(self.moves) <= set(MOVES["promote"]), f"of {', '.join(MOVES['promote'])}")
        check(self, "goal", self.goal in MOVES, f"one of {', '.join(MOVES)}")
