"""AutoPrompt: gibbs-enum at positions that are drawn (Shin et al. 2020, arXiv 2010.15980, section 2.2).

    e . grad L(x)    ranks the words for a position (equation 3, with HotFlip's estimate); the `candidates` best are tried
    x_t <- the best of them, if that lowers L

The paper averages gradient and loss over prompts, as `parley search universal` does. Its code draws the position of each step
("so the gradients don't get stale") and tries 10 words in each of 100 steps; `settings.autoprompt` has these sizes.
# Released code: gradient and candidates see different batches of prompts, and inputs start from [MASK]. Ours: all prompts, and
drawn inputs. A search ends where every position was visited since it last moved, for no list would then be another.
"""

from __future__ import annotations

from parley.engine.triggers.methods.gibbs_enum import GibbsEnum
from parley.engine.triggers.methods.settings import CANDIDATES_AUTOPROMPT
from parley.engine.triggers.search.batch import Task
from parley.envs.core.seeds import stream


class AutoPrompt(GibbsEnum):
    """The best of the steepest words, at a drawn position."""

    sizes = {"candidates": CANDIDATES_AUTOPROMPT}

    def position(self, task: Task, visit: int) -> int:
        drawn = stream(task.seed, "autoprompt", task.key, task.restart, visit).integers(self.victim.input_length)
        return int(drawn)
