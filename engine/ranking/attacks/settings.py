"""Settings of attacks on rankers, free of torch so that `--help` starts fast."""

from __future__ import annotations

from dataclasses import dataclass, field

from parley.envs.core.config import Configuration, NumItems, PositiveFloat, Share, check
from parley.envs.ranking.edit_game import GoalKind, Target

POLICY = "editor:"
"""Begins the name of a method, or of a rule of a training, that is a trained editing policy: editor:RUN."""
MOVES: dict[GoalKind, tuple[str, ...]] = {
    "promote": ("context", "synonym", "insertion", "deletion", "swap"),
    "demote": ("synonym",),
}
"""Moves where none are named: a wrong reply stays wrong whatever is done to it, a right one stays right under synonyms."""


@dataclass(frozen=True, kw_only=True)
class GasliteSizes(Configuration):
    """The sizes of a GASLITE search; the paper's code has 100, 50, 20 and 128, for thousands of queries."""

    num_words: NumItems = 10
    """Words behind the reply, each one token of the encoder; of random-steps and random-words, too."""
    num_gradients: NumItems = 10
    """Texts that slopes are averaged over in a step; no queries, but counted beside them."""
    num_positions: NumItems = 5
    """Places of a step whose words may change; of random-steps, too, as the words tried."""
    num_candidates: NumItems = 10
    """Words that are tried at each place."""


@dataclass(frozen=True, kw_only=True)
class AttackDetails(Configuration):
    """The attacked reply and the constraints of its edits."""

    rank: NumItems = 1
    """How many places are the top."""
    target: Target = "best"
    """Which reply is edited: the one of its kind that the ranker likes best, or one at random."""
    beams: NumItems = 4
    """beam: drafts that are kept."""
    gaslite: GasliteSizes = field(default_factory=GasliteSizes)
    """gaslite, random-steps and random-words: what they append."""
    keep_tags: bool = True
    """Every word keeps its tag in the edited reply, and one that replaces another has its tag; not of words behind it."""
    max_perplexity_ratio: PositiveFloat | None = None
    """The reply's perplexity under trigrams of the training split, as a multiple of what it was; no limit when not given."""
    min_cosine: Share | None = None
    """The cosine of the edited reply's word vectors with the original's; no limit when not given."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "target", self.target in ("best", "random"), "one of best, random")


@dataclass(frozen=True, kw_only=True)
class AttackSettings(AttackDetails):
    """The goal, edits and budget of an attack."""

    goal: GoalKind = "promote"
    """Bring a wrong reply to the top, or the right one away from it."""
    method: str = "greedy"
    """greedy, beam, random, gradient (rankers that give slopes alone), gaslite, random-steps or random-words
    (bi-encoders alone), or path/file.py:Name of your own."""
    moves: tuple[str, ...] = ()
    """Edits: context (a context word of the same tag), synonym, insertion, deletion, swap; by default what suits the goal."""
    edits: NumItems = 3
    """Words changed at most: replaced, inserted or deleted, two for a swap; gaslite appends gaslite.num_words."""
    budget: NumItems = 500
    """Queries at most, a query is one context and candidate scored."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "moves", set(self.moves) <= set(MOVES["promote"]), f"of {', '.join(MOVES['promote'])}")
        check(self, "goal", self.goal in MOVES, f"one of {', '.join(MOVES)}")
