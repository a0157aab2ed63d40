"""Metrics of trainings of liars, and of bots hardened against liars in rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from parley.engine.core.stats.known import EXPLOITABILITY, AdversaryWords, CampaignMetrics, LanguageWatch, Round
from parley.engine.core.stats.statistics import LOST, NEITHER, Estimate, Metric, clustered_rate, mean_count, rate_difference

TARGET = "lower: target"
HARM, COMPLETION, TURNS, LIES = "harm", "completion", "turns", "lies"
POLICY, RANDOM, HONEST = "", "_random", "_honest"
"""Endings: the trained liar, lies by chance at its rate, and no lies at all."""
GAIN, GAIN_OVER_RANDOM, REPETITION = "gain", "gain_over_random", "repetition"
_WHO = {POLICY: "", RANDOM: ", random lies", HONEST: ", no lies"}
_KINDS = {
    HARM: Metric("harm", TARGET, "1 where nobody agrees, else `delay` times the share of the allowed events; mean", "rate"),
    COMPLETION: Metric("completion", "lower: liar", "share of chats in which both select the common friend", "rate"),
    TURNS: Metric("turns", "higher: liar", "events, selections included, mean over all chats"),
    LIES: Metric("lies", NEITHER, "told in a chat, mean"),
}
LYING = {
    **{
        f"{kind}{who}": metric._replace(title=f"{metric.title}{suffix}", main=kind == HARM)
        for kind, metric in _KINDS.items()
        for who, suffix in _WHO.items()
        if (kind, who) != (LIES, HONEST)
    },
    REPETITION: Metric(
        "repetition, no lies",
        "lower: player",
        "share of the player's 4-grams that its utterance had before, in those chats",
        "rate",
    ),
    GAIN: Metric("harm of the lies", TARGET, "harm less that of the same chats without lies", main=True),
    GAIN_OVER_RANDOM: Metric("more than random lies", TARGET, "harm less that of random lies in the same chats", main=True),
}
"""The metrics of a liar; random lies have the liar's rate, and all claims are equally likely."""


class LiedTo(NamedTuple):
    """Chats on the same scenarios, one after the other.

    Args:
        harm: of each.
        agreed: whether it ended so.
        events: of each.
        lies: told in each.
        repeated: 4-grams in each that an utterance of the player repeats, and all its 4-grams.
    """

    harm: Sequence[float]
    agreed: Sequence[bool]
    events: Sequence[int]
    lies: Sequence[int]
    repeated: Sequence[tuple[int, int]]

    def less(self, other: LiedTo) -> Estimate:
        """Return the harm minus that of other chats on the same scenarios."""
        return rate_difference(self.harm, other.harm)


def lying_metrics(played: Mapping[str, LiedTo]) -> dict[str, Estimate]:
    """Compute all estimates from the chats of each liar: `POLICY`, `RANDOM`, `HONEST`."""
    metrics: dict[str, Estimate] = {}
    for who, chats in played.items():
        metrics[f"{HARM}{who}"] = clustered_rate(chats.harm)
        metrics[f"{COMPLETION}{who}"] = clustered_rate(chats.agreed, range(len(chats.agreed)))
        metrics[f"{TURNS}{who}"] = mean_count(chats.events)
        metrics[f"{LIES}{who}"] = mean_count(chats.lies)
    num_repeated, num_grams = np.array(played[HONEST].repeated).reshape(-1, 2).T
    metrics[REPETITION] = clustered_rate(num_repeated, trials=num_grams)
    metrics[GAIN] = played[POLICY].less(played[HONEST])
    metrics[GAIN_OVER_RANDOM] = played[POLICY].less(played[RANDOM])
    return {name: metrics[name] for name in LYING}


BOT, HIGHER = "lower: bot", "higher: bot"
ROUND_METRICS = {
    HARM: Metric("fresh liar", BOT, "harm of a liar that learned to mislead this bot", "rate"),
    f"{HARM}{RANDOM}": Metric("random lies", BOT, "harm of as many random lies", "rate"),
    f"{HARM}{HONEST}": Metric("no lies", BOT, "harm of chats without lies: the time that they take", "rate"),
    COMPLETION: Metric("completion, fresh liar", HIGHER, LYING[COMPLETION].definition, "rate"),
    f"{COMPLETION}{HONEST}": Metric("completion, no lies", HIGHER, LYING[COMPLETION].definition, "rate"),
    TURNS: Metric("turns, fresh liar", BOT, LYING[TURNS].definition),
    REPETITION: LYING[REPETITION]._replace(title="repetition", direction=BOT),
}
"""The metrics of a bot after a round, and of start, controls and result at the end."""
MEASURES = {
    EXPLOITABILITY: Metric("best known liar", BOT, "harm of the best of all known, in chats that did not choose it", "rate"),
    **ROUND_METRICS,
}
"""The metrics of start, controls and result."""
BEFORE_HARDENING, AS_CONTROL, BY_CHANCE, RESULT = "_before", "_control", "_by_chance", ""
WITHOUT_LIES, ON_RANDOM_LIES = "trained without lies", "trained on random lies"
ENDINGS = {"before": BEFORE_HARDENING, WITHOUT_LIES: AS_CONTROL, ON_RANDOM_LIES: BY_CHANCE, "after": RESULT}
"""Endings of the metrics of start, controls and result, by column."""
GAIN_OVER_CONTROL, GAIN_OVER_CHANCE = "gain_over_control", "gain_over_chance"
GAINS = {"before": GAIN, WITHOUT_LIES: GAIN_OVER_CONTROL, ON_RANDOM_LIES: GAIN_OVER_CHANCE}
CAMPAIGN = {
    **{
        f"{name}{ending}": metric._replace(title=f"{metric.title}{suffix}", main=name in (EXPLOITABILITY, HARM))
        for name, metric in MEASURES.items()
        for ending, suffix in (
            (BEFORE_HARDENING, ", before"),
            (AS_CONTROL, ", control"),
            (BY_CHANCE, ", random control"),
            (RESULT, ""),
        )
    },
    GAIN: Metric("less harm", HIGHER, "harm of the best known liar to the start less to the result, same chats", main=True),
    GAIN_OVER_CONTROL: Metric("  than the control", HIGHER, "of the bot that was trained as long without lies", main=True),
    GAIN_OVER_CHANCE: Metric("  than by random lies", HIGHER, "of the bot that was trained as long on random ones", main=True),
}
"""The metrics of a campaign."""


def harmed(round_: Round) -> float:
    """Return the harm of a fresh liar in a round; hardening is to lower it."""
    return round_.metrics[HARM].value


LIARS = AdversaryWords(
    cell="Harm of the liar of the line to the bot of the column, in the chats that chose the best: the marked value is too "
    "high by luck. 00-liar learned against the bot before any hardening, 01-liar against that of round 1; the others against "
    "start, result and controls. Random lies are told at the rate of the first liar; no lies: the time that chats take.",
    measured="harm in chats that did not choose it",
    start="random lies",
)
"""The words in which known liars are shown."""
FRIENDS = CampaignMetrics(
    what="bot",
    of_round=ROUND_METRICS,
    at_end=MEASURES,
    endings=ENDINGS,
    gains=(f"{MEASURES[EXPLOITABILITY].title}: harm of this, less after", GAINS),
    loss=harmed,
    watch=LanguageWatch(plain=f"{COMPLETION}{HONEST}", repetition=REPETITION),
    stalled="the harm of a fresh liar has not fallen",
    note_rounds="Round 0 is the bot before any hardening. Harm: 1 for a chat that ends without agreement, else the setting "
    "game.delay times its share of the events that are allowed. The result is the round whose bot is harmed least by the best "
    "of all rounds' liars, in other chats. Repetition: share of the bot's 4-grams in chats without lies that its utterance "
    f"had before; above {LOST:g} it has lost its language. Brackets: 95 % intervals.",
    note_outcome="Trained without lies, on random lies: the start, trained as long on chats as they are, and on random lies. "
    "The best known liar is the best of all in the run, chosen on other scenarios; a fresh one learned against the bot of its "
    "column alone, all of one seed. All on scenarios that chose no round. Brackets: 95 % intervals.",
    known=LIARS,
)
