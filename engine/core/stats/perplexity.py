"""How perplexing texts are, from the likelihoods that a judge gives them."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import numpy as np

from parley.engine.core.stats.statistics import Estimate, count, ratio_of_sums

logger = logging.getLogger(__name__)


def perplexity(
    whose: str, nats: Sequence[float | None], words: Sequence[int], clusters: Sequence[str] | None = None
) -> Estimate:
    """Exp of the negative log likelihood per token over some texts.

    Args:
        whose: the texts' name in a warning.
        nats: negative log likelihood of each text; None where it was not scored, and the text is left out.
        words: tokens of each text.
        clusters: the dialogue that each text belongs to; every text is its own when not given.

    Returns:
        The estimate; NaN, with a warning, when a likelihood is not finite.
    """
    scored = [i for i, value in enumerate(nats) if value is not None]
    known = np.array([nats[i] for i in scored], dtype=np.float64)
    broken = int(np.count_nonzero(~np.isfinite(known)))
    if broken:
        logger.warning("%d of %d likelihoods of %s are not finite: no perplexity", broken, len(scored), whose)
        return count(math.nan, len(scored))
    groups = None if clusters is None else [clusters[i] for i in scored]
    return ratio_of_sums(known, [words[i] for i in scored], groups, transform=np.exp)
