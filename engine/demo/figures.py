"""What the stages of the demonstration come to, side by side: `parley.engine.demo.demo` makes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.runs.schemas import OK
from parley.engine.core.stats.exploitability import EXPLOITABILITY, MEAN_FRESH
from parley.engine.core.stats.statistics import FOR_ADVERSARY, FOR_BOTH, Estimate, Metric, paired_difference
from parley.engine.core.stats.training import BEFORE
from parley.engine.generation.metrics.scenarios import ADVERSUC, RANDOM
from parley.engine.mutual_friends.channels.strategies import CONFUSING
from parley.engine.mutual_friends.metrics.chats import NORMAL
from parley.engine.negotiation.metrics.attack import ATTACK_METRICS
from parley.engine.negotiation.metrics.campaign import PLAIN_AGREEMENT
from parley.engine.negotiation.metrics.dialogues import METRICS
from parley.engine.negotiation.verbs import minmax
from parley.engine.negotiation.verbs.exploitability import NUM_IDLE, NUM_KNOWN
from parley.engine.perturb.metrics.robustness import BASE, TOUCHED_CHANGE_RATE
from parley.engine.perturb.verbs.models import label_of
from parley.engine.ranking.metrics.ranking import CLEAN
from parley.engine.ranking.metrics.searched import BASELINE, SUCCESS

GAIN = "advantage_gain"
LEAST_AGREEMENT = 0.5
"""Share of its dialogues with itself in which the target has to agree, so that it is worth an attack."""
HARDENED = (
    *(name + ending for name in (PLAIN_AGREEMENT, EXPLOITABILITY, MEAN_FRESH) for ending in minmax.TARGETS),
    *(minmax.DROP, minmax.DROP_BEYOND_CONTROL, NUM_KNOWN, NUM_IDLE),
)
"""How the target plays, and what adversaries gain from it: before, after plain play alone, and after hardening."""
HITS = {"normal": "o-greedy", "mal": "o-sample-min-k1"}
"""The type of hit that each trigger search looks for, and is told by here and on its page."""
SWAP, ANTONYM = "random-swap", "antonym"
"""The perturbation that should not change a reply, and the one that should."""
_BEFORE = "_before_training"
MATCHER, TERMS = "matcher", "tfidf"
_RANKERS = {MATCHER: "a matching model", TERMS: "TF-IDF"}
"""The rankers: one by the name of its stage, and one that counts words."""
RULE = "iiw"
QUERIES = 50
FOUND = {"friend_found": NORMAL, "friend_found_confused": CONFUSING}
"""How often the common friend is found under which condition."""
VS_RANDOM = "machine_vs_random"
REPLIES = {
    f"{here}{suffix}": f"test_{kind}{suffix}"
    for here, kind in ((ADVERSUC, ADVERSUC), (VS_RANDOM, RANDOM))
    for suffix in (BEFORE, "")
}
"""How often a judge takes a generator's replies for a person's, and tells them from random ones: by the name here and that of
its own run. The one is never shown without the other, which a generator that says anything at random has low."""
_TAKEN = "replies that a judge of words takes for a person's"
_TOLD = "replies, the generator's and people's to other contexts, that a judge of words tells right"
_THE_SAME = "  the same, trained against it"
LEGEND = METRICS | {
    GAIN: Metric("advantage gained", FOR_ADVERSARY, "advantage less the target's against itself on the same scenario, mean"),
    "reactive_advantage": Metric("advantage, reactive attack", FOR_ADVERSARY, "the white-box attack's, played live"),
    "reactive_forced_advantage": Metric(
        "the same, end forced", FOR_ADVERSARY, "the target made to end the talk where that is its likeliest answer"
    ),
    "reactive_attack_ppl": ATTACK_METRICS["attack_ppl"]._replace(title="  its sentences' perplexity"),
    **{name: minmax.LEGEND[name] for name in HARDENED},
    "hits_normal": Metric("trigger found, usual replies", FOR_ADVERSARY, "o-greedy hits among a model's own replies", "share"),
    "hits_mal": Metric("trigger found, rude sentences", FOR_ADVERSARY, "o-sample-min-k1 hits among malicious targets", "share"),
    **{
        f"{name}{suffix}": Metric(
            title if suffix else _THE_SAME, "lower: better", f"share of contexts in which {what}", "share"
        )
        for name, title, what in (
            ("oversensitive", "other reply to swapped words", "words changed places and the reply changed"),
            ("overstable", "same reply to an antonym", "a word became its opposite and the reply stayed the same"),
        )
        for suffix in (_BEFORE, "")
    },
    **{
        f"first_{ranker}{ending}": Metric(title, "higher: better", what, "share")
        for ranker, of in _RANKERS.items()
        for ending, title, what in (
            ("", f"right reply of ten first, {of}", "the reply that was given is ranked first, ties by chance"),
            (f"_{RULE}", "  the same, context words in wrong ones", f"the same under rule {RULE}, which edits wrong replies"),
        )
    },
    **{
        f"lifted_{ranker}": Metric(
            f"wrong reply lifted to the top, {of}",
            FOR_ADVERSARY,
            f"random edits of three words at most lift it with {QUERIES} queries at most",
            "share",
        )
        for ranker, of in _RANKERS.items()
    },
    **{
        f"{name}{suffix}": Metric(title, "higher: better", what, "share")
        for name, suffix, title, what in (
            (ADVERSUC, BEFORE, "replies taken for a person's", _TAKEN),
            (ADVERSUC, "", "  the same, after ten rounds of REGS", _TAKEN),
            (VS_RANDOM, BEFORE, "told from random human replies", _TOLD),
            (VS_RANDOM, "", "  the same, after ten rounds of REGS", _TOLD),
        )
    },
    "friend_found": Metric("common friend found", FOR_BOTH, "share of the chats of two scripted bots that find it", "share"),
    "friend_found_confused": Metric("  the same, names misheard", FOR_BOTH, "the same, other names heard for names", "share"),
}


def _dialogues(path: Path) -> dict[str, Mapping[str, Any]]:
    return {row["item_key"]: row for row in RunFolder.load(path).read_rows().to_pylist() if row["status"] == OK}


_COMPARED: dict[str, Callable[[Mapping[str, Any]], float]] = {
    "advantage": lambda row: row["points_adversary"] - row["points_target"],
    "agreement": lambda row: row["agreed"],
    "score_adversary": lambda row: row["points_adversary"],
    "score_target": lambda row: row["points_target"],
    "turns": lambda row: row["num_turns"],
}
"""Metrics that are means over all dialogues, and so have a difference for each scenario."""


def differences(path: Path) -> dict[str, Estimate]:
    """The attack less the target against itself, over pairs of dialogues on one scenario."""
    before, after = (_dialogues(path / name) for name in ("selfplay", "attack"))
    pairs = [(before[key], after[key]) for key in sorted(before.keys() & after.keys())]
    return {name: _difference(pairs, number) for name, number in _COMPARED.items()}


def _difference(
    pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], number: Callable[[Mapping[str, Any]], float]
) -> Estimate:
    return paired_difference([number(after) for _, after in pairs], [number(before) for before, _ in pairs])


def answers(metrics: Mapping[str, Estimate]) -> dict[str, Estimate]:
    """How often replies changed where they should not have, and stayed where they should have changed."""
    found = {}
    for suffix, model in ((_BEFORE, BASE), ("", label_of((SWAP, ANTONYM)))):
        changed = {strategy: metrics[f"{TOUCHED_CHANGE_RATE}.{model}.{strategy}"] for strategy in (SWAP, ANTONYM)}
        other = changed[ANTONYM]
        found[f"oversensitive{suffix}"] = changed[SWAP]
        found[f"overstable{suffix}"] = Estimate(1 - other.value, 1 - other.high, 1 - other.low, other.n)
    return {name: found[name] for name in LEGEND if name in found}


def choices(ranked: Mapping[str, Estimate], searched: Mapping[str, Estimate]) -> dict[str, Estimate]:
    """How often rankers put a right reply first, and how often a wrong one can be lifted above it."""
    right = {
        f"first_{ranker}{ending}": ranked[f"r@1.{ranker}.{rule}"]
        for ranker in _RANKERS
        for ending, rule in (("", CLEAN), (f"_{RULE}", RULE))
    }
    return right | {f"lifted_{ranker}": searched[f"{SUCCESS}{QUERIES}.{ranker}.{BASELINE}"] for ranker in _RANKERS}


def failure(metrics: Mapping[str, Estimate]) -> str:
    """Which promises of the demonstration do not hold; nothing where all do."""
    agreement, lost = metrics[PLAIN_AGREEMENT + minmax.BEFORE_TRAINING], metrics[minmax.DROP]
    promises = {
        f"the target agrees with itself in less than {LEAST_AGREEMENT:.0%} of its dialogues: {agreement}": (
            agreement.value >= LEAST_AGREEMENT
        ),
        f"the adversary has no certain advantage over its target: {metrics['advantage']}": metrics["advantage"].low > 0,
        f"hardening did not certainly lower what the best known adversary gains: {lost} points lost": lost.low > 0,
    }
    return "; ".join(what for what, kept in promises.items() if not kept)
