"""Hit rates of He & Glass 2018 (arXiv 1809.04113, tables 1, 3 and 11), which measured ones are shown beside.

Their mal-list differs from ours sentence by sentence, their models were fitted for longer, and their rates carry no interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

NORMAL, MAL, MAL_IO, RANDOM = "normal", "mal", "mal-io", "random"
"""What was searched for: each list under the output objective, and the mal list once more with likely inputs."""

Figures = Mapping[str, Mapping[str, float]]
"""Hit rates in percent by list and type of hit."""

_K = (1, 2)


def _figures(normal: tuple[str, float], greedy: float, mal: Sequence[float], mal_io: Sequence[float]) -> Figures:
    """One line of the table; minimum for k = 1, 2, then average for k = 1, 2."""

    def named(prefix: str, values: Sequence[float]) -> dict[str, float]:
        names = [f"{prefix}-sample-{statistic}-k{k}" for statistic in ("min", "avg") for k in _K]
        return dict(zip(names, values, strict=True))

    return MappingProxyType(
        {
            NORMAL: {normal[0]: normal[1]},
            MAL: {"o-greedy": greedy, **named("o", mal)},
            MAL_IO: named("io", mal_io),
            RANDOM: {"o-greedy": 0.0, **named("o", (0.0, 0.0, 0.0, 0.0))},
        }
    )


_SAMPLED = "o-sample-min-k1"
HIT_RATES: Mapping[str, Mapping[str, Figures]] = {
    "ubuntu": {
        "last-h": _figures(("o-greedy", 65.0), 0.0, (13.6, 19.7, 53.9, 76.7), (9.1, 14.7, 48.6, 73.4)),
        "attention": _figures(("o-greedy", 82.8), 0.0, (16.7, 23.9, 57.7, 79.2), (10.2, 15.2, 49.2, 73.2)),
    },
    "switchboard": {
        "last-h": _figures((_SAMPLED, 99.4), 0.0, (0.0, 0.3, 18.9, 39.2), (0.0, 0.3, 18.7, 38.6)),
        "attention": _figures((_SAMPLED, 100.0), 0.0, (0.1, 0.5, 20.8, 45.0), (0.0, 0.4, 19.6, 41.2)),
    },
    "opensubtitles": {
        "last-h": _figures((_SAMPLED, 99.4), 3.0, (29.4, 36.9, 72.9, 87.1), (8.8, 13.6, 59.4, 76.8)),
        "attention": _figures((_SAMPLED, 100.0), 6.6, (29.4, 37.4, 73.5, 88.2), (9.8, 15.8, 60.8, 80.2)),
    },
}
"""By corpus and model, last-h or with attention: of gibbs-enum."""

RELAXED: Mapping[str, Figures] = {
    "embedding": {NORMAL: {"o-greedy": 95.0}, MAL: {"o-greedy": 7.2}},
    "one-hot": {NORMAL: {"o-greedy": 63.4, "projected-o-greedy": 0.0}, MAL: {"o-greedy": 1.7, "projected-o-greedy": 0.0}},
}
"""By what is optimised: of the continuous relaxation, measured on the Ubuntu model with attention alone."""
