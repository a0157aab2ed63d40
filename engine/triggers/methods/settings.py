"""Settings of the trigger searches. Torch-free, so that help starts fast.

Sources: He & Glass 2018, algorithm 1 and section 5; its released code, read in the repository that its first author published
with later work. Where the two disagree the paper is the default and the released behaviour a named option:

    first_visit_unconditional    the first visit takes the best word of its list even where the initial word is better
    stop_on_batch_mean           a batch of targets stops as one, when a sweep does not lower their mean loss
    satisfied_weight (objective) satisfied words keep a hundredth of their weight
    <unk> (the victim)           may stand in an input

Left out: the released code has dropout active while it takes gradients. That is noise in which words are tried, and a scorer
that replays it could not keep its promise that an input's slopes depend on the input alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from parley.envs.core.config import Configuration, NonNegativeFloat, NumItems, NumItemsOrAll, ShareBelowOne, check

CANDIDATES, CANDIDATES_GCG = 100, 512
"""Default number of inputs tried at each visit: |G| of the paper, and nanoGCG's search width."""
CANDIDATES_AUTOPROMPT, CANDIDATES_ARCA, CANDIDATES_BEAST = 10, 32, 15
"""The same for methods whose released code has other sizes."""
CANDIDATES_BY_METHOD = {
    "gcg": CANDIDATES_GCG,
    "autoprompt": CANDIDATES_AUTOPROMPT,
    "arca": CANDIDATES_ARCA,
    "beast": CANDIDATES_BEAST,
}
"""The default number of candidates of methods for which it is not `CANDIDATES`."""
BEAMS, BEAMS_HOTFLIP, BEAMS_BEAST = 4, 10, 15
"""Default number of inputs that are kept: ours, that of TextAttack's recipe, and that of BEAST's code."""
MOMENTUM_MAC = 0.6
"""Weight of the slopes of earlier steps in MAC."""
PEZ_RATE, PEZ_DECAY = 0.1, 0.1
"""Learning rate and weight decay of AdamW in PEZ (Wen et al. 2023; released). Others are another method."""
L1_WEIGHT, L1_WEIGHT_MALICIOUS = 1.0, 0.1
"""lambda_c of the paper's normal and malicious targets; at 1 no malicious one is hit."""


@dataclass(frozen=True, kw_only=True)
class RelaxationSettings(Configuration):
    """Settings of a continuous input's descent (He & Glass 2018, appendix A; steps and sizes of the released code)."""

    topic: ClassVar[str] = "relaxation"

    mode: Literal["embedding", "one-hot"] = "one-hot"
    """Free embeddings, or x = sigmoid(z) over the words."""
    l1_weight: NonNegativeFloat | None = None
    """lambda_c of one-hot inputs; when not given the paper's: 0.1 for the list mal, 1 for other targets."""
    rounds: NumItems = 8
    """Times that the momentum starts anew."""
    steps: NumItems = 500
    """Gradient steps of each round."""

    learning_rate: ClassVar[float] = 1.0
    """For the loss of one target; the released code writes it as the batch's size for the mean of the batch."""
    momentum: ClassVar[float] = 0.9
    """Momentum of SGD."""
    weight_decay: ClassVar[float] = 1e-5
    """Weight decay of SGD. The released code's, as the two above."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "mode", self.mode in ("embedding", "one-hot"), "embedding or one-hot")


@dataclass(frozen=True, kw_only=True)
class SearchSizes(Configuration):
    """The settings of a search that campaigns have, too."""

    candidates: NumItems | None = None
    """Inputs tried at each visit, of each input of a beam; when not given 100, gcg 512, arca 32, beast 15, autoprompt 10."""
    max_sweeps: NumItems = 50
    """Sweeps, of as many visits as an input has words, after which a restart ends."""
    restarts: NumItems = 10
    """Searches for each target, from different inputs."""


@dataclass(frozen=True, kw_only=True)
class SearchSettings(SearchSizes):
    """The length and the width of a search."""

    topic: ClassVar[str] = "search"
    constants: ClassVar[Mapping[str, Any]] = {"pez.learning_rate": PEZ_RATE, "pez.weight_decay": PEZ_DECAY}

    max_candidates: NumItemsOrAll = 0
    """Inputs tried by a restart of any method before it ends, to compare methods at one cost; 0 for no such limit."""
    stop_on_hit: bool = True
    """A hit ends its restart and drops the later ones of its target; exact for hit rates, not for the lowest loss."""
    first_visit_unconditional: bool = False
    """gibbs-enum: the first visit takes the best of its list, better or not (released code)."""
    stop_on_batch_mean: bool = False
    """gibbs-enum: batches of targets stop as one when their mean loss stays (released code); needs stop_on_hit off."""
    screening: bool = False
    """gibbs-enum, gcg: bfloat16 finds the best few words of a list, float32 decides among them; the exact search by default."""
    draft: str = ""
    """gibbs-enum, gcg: a draft model ranks a list and the model reads few of it (probe sampling): a number of the model's first
    layers, or hf:FOLDER or gguf:FILE of a smaller model with the same tokens; empty: the model reads all."""
    words_per_position: NumItems = 256
    """gcg: words of each position from which swaps are drawn."""
    num_replaced: NumItems = 1
    """gcg: words of an input that each candidate replaces (nanoGCG's n_replace)."""
    momentum: ShareBelowOne = 0.0
    """gcg: weight of the slopes of earlier steps in a list, by step (MAC); 0 takes those at hand alone."""
    buffer: NumItemsOrAll = 0
    """gcg, arca: best inputs that are kept, each step from the best of them (nanoGCG's buffer_size); 0: from the last one."""
    beams: NumItems | None = None
    """beam, hotflip, beast: inputs that are kept; when not given 4, of hotflip TextAttack's 10, of beast 15."""
    relaxation: RelaxationSettings = field(default_factory=RelaxationSettings)
    """relaxation: how a continuous input is optimised."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "screening", not (self.screening and self.num_replaced > 1), "false while num_replaced is above 1")
        alone = not self.screening and self.num_replaced == 1
        check(self, "draft", not self.draft or alone, "empty while screening is true or num_replaced is above 1")
        check(self, "stop_on_batch_mean", not (self.stop_on_batch_mean and self.stop_on_hit), "false while stop_on_hit is true")


def he2018() -> SearchSettings:
    """gibbs-enum of He & Glass 2018: lists of 100, at most 50 sweeps, 10 restarts."""
    return SearchSettings()


def released() -> SearchSettings:
    """gibbs-enum as the released code runs it by default: 5 restarts, and a sixth sweep before its limit of 5 is looked at."""
    return SearchSettings(max_sweeps=6, restarts=5, stop_on_hit=False, first_visit_unconditional=True, stop_on_batch_mean=True)


def gcg() -> SearchSettings:
    """GCG in nanoGCG's sizes: 512 swaps a step from lists of 256, one start, some 250 steps on inputs of 14 words."""
    return SearchSettings(candidates=512, words_per_position=256, max_sweeps=18, restarts=1)


def mac() -> SearchSettings:
    """GCG with momentum in its lists, in the sizes of our gcg; a weight of 0.6."""
    return replace(gcg(), momentum=MOMENTUM_MAC)


def autoprompt() -> SearchSettings:
    """AutoPrompt as released: lists of 10, one start, some 100 steps on inputs of 14 words."""
    return SearchSettings(candidates=CANDIDATES_AUTOPROMPT, max_sweeps=7, restarts=1)


def arca() -> SearchSettings:
    """ARCA in the sizes of its experiments: slopes at 32 words, lists of 32, one start, 50 rounds over all positions."""
    return SearchSettings(candidates=CANDIDATES_ARCA, max_sweeps=50, restarts=1)


def pez() -> SearchSettings:
    """PEZ as released: one start, some 3000 steps on inputs of 14 words."""
    return SearchSettings(max_sweeps=214, restarts=1)


def beast() -> SearchSettings:
    """BEAST as released: inputs grow once, 15 of them kept, 15 words drawn for each."""
    return SearchSettings(candidates=CANDIDATES_BEAST, beams=BEAMS_BEAST, max_sweeps=1, restarts=1)


def compare() -> SearchSettings:
    """Give every method one cost: one start, 4,200 candidates."""
    return SearchSettings(restarts=1, max_candidates=4200)
