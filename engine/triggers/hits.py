"""Hits: the conditions under which a model counts as saying a target sentence (He & Glass 2018, section 4).

    o-greedy            every word of the target is the model's likeliest one, so that greedy decoding gives the target
    o-sample-min-k      min_t log P(y_t | y_<t, x) >= T_out - log k
    o-sample-avg-k      1/m sum_t log P(y_t | y_<t, x) >= T_out - log k
    io-sample-*-k       the same, and 1/n sum_t log P_LM(x_t | x_<t) >= T_in - log k

T_out and T_in are the mean log probabilities of a word of the test set under the model and under the language model. k = 2
means that a proper sentence takes T samples while the target takes T 2^m.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from parley.engine.triggers.methods.objective import TriggerObjective
from parley.envs.core.config import Configuration, NonPositiveFloat
from parley.envs.core.errors import ConfigError
from parley.envs.core.registry import nearest

_NAME = re.compile(r"(?P<io>io|o)-sample-(?P<statistic>avg|min)-k(?P<k>[1-9][0-9]*)")


@dataclass(frozen=True, kw_only=True)
class Thresholds(Configuration):
    """The log probabilities of usual words, in nats per word; both at most 0.

    Args:
        t_out: mean log probability of a word of the test replies under the model; None if only o-greedy is needed.
        t_in: mean log probability of a word of the test utterances under the language model; None without one.
    """

    t_out: NonPositiveFloat | None = None
    t_in: NonPositiveFloat | None = None


@dataclass(frozen=True)
class Reading:
    """The log probabilities of a target after an input.

    Args:
        word_log_probability: log P(y_t | y_<t, x) of each word of the target, its end included, nats.
        likeliest: True for each that is the model's likeliest word.
        input_log_probability: 1/n sum_t log P_LM(x_t | x_<t), nats; None without a language model.
    """

    word_log_probability: Sequence[float]
    likeliest: Sequence[bool]
    input_log_probability: float | None = None


@dataclass(frozen=True)
class HitType:
    """A type of hit.

    Args:
        statistic: of the words' log probabilities; "greedy" asks for the likeliest words instead.
        k: factor of samples per word that a hit may take; 1 for greedy.
        limits_input: True if the input must be likely too.
    """

    statistic: Literal["greedy", "avg", "min"]
    k: int = 1
    limits_input: bool = False

    @classmethod
    def parse(cls, name: str) -> HitType:
        """Return the type of that name, such as "o-greedy" or "io-sample-min-k2".

        Raises:
            ConfigError: no type is called so.
        """
        if name == "o-greedy":
            return cls("greedy")
        if match := _NAME.fullmatch(name):
            statistic: Literal["avg", "min"] = "avg" if match["statistic"] == "avg" else "min"
            return cls(statistic, int(match["k"]), match["io"] == "io")
        names = ("o-greedy", *(f"{io}-sample-{statistic}-k1" for io in ("o", "io") for statistic in ("avg", "min")))
        raise ConfigError(
            f"no type of hit is called {name!r}{nearest(name, names)}",
            fix=f"known: {', '.join(names)}; any whole number may stand after k",
        )

    @property
    def name(self) -> str:
        """Return the name that `parse` reads."""
        if self.statistic == "greedy":
            return "o-greedy"
        return f"{'io' if self.limits_input else 'o'}-sample-{self.statistic}-k{self.k}"

    def is_hit(self, reading: Reading, thresholds: Thresholds) -> bool:
        """Return True if a target after an input is a hit of this type."""
        if self.statistic == "greedy":
            return all(reading.likeliest)
        assert thresholds.t_out is not None, "there is no threshold for the reply"
        statistic = np.min if self.statistic == "min" else np.mean
        likely = statistic(reading.word_log_probability) >= thresholds.t_out - math.log(self.k)
        if not self.limits_input:
            return bool(likely)
        assert reading.input_log_probability is not None, "the input was not read"
        assert thresholds.t_in is not None, "there is no threshold for the input"
        return bool(likely and reading.input_log_probability >= thresholds.t_in - math.log(self.k))

    def objective(
        self, thresholds: Thresholds, *, lm_weight: float | None = None, satisfied_weight: float = 0.0
    ) -> TriggerObjective:
        """Return the objective of a search for such hits.

        The stronger sample-min is searched for the averages too, as in the paper.

        Args:
            thresholds: of the model and the language model.
            lm_weight: lambda_in; 1 where the type limits the input and 0 elsewhere when None. Of an input that no type limits
                the language model's term is never satisfied: it asks for fluent inputs.
            satisfied_weight: weight of satisfied terms; greedy drops them always.

        Raises:
            ConfigError: there is no threshold for the reply or, where the type limits the input, for that.
        """
        if lm_weight is None:
            lm_weight = float(self.limits_input)
        if self.statistic == "greedy":
            return TriggerObjective(kind="greedy", lm_weight=lm_weight)
        if thresholds.t_out is None:
            raise ConfigError(
                f"{self.name} compares the target's words with a usual word, and the model does not say how likely that is",
                fix="--set objective.t_out=NATS, minus its loss per word on replies it was not fitted to; --corpus NAME "
                "measures it of a Hugging Face model; or --hit o-greedy",
            )
        t_out = thresholds.t_out - math.log(self.k)
        if not self.limits_input:
            return TriggerObjective(kind="sample", t_out=t_out, lm_weight=lm_weight, satisfied_weight=satisfied_weight)
        if thresholds.t_in is None:
            fix = "name a language model with --lm; a Hugging Face one with --corpus NAME or --set objective.t_in=NATS"
            raise ConfigError(f"{self.name} limits the input", fix=fix)
        t_in = thresholds.t_in - math.log(self.k)
        return TriggerObjective(kind="sample", t_out=t_out, lm_weight=lm_weight, t_in=t_in, satisfied_weight=satisfied_weight)
