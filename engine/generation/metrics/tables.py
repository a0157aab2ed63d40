"""The tables of an adversarial evaluation in the layout of Li et al. 2017 (tables 2 and 3), with similarity of replies.

The file also holds the metrics of discriminator trainings, and similarities that need no judge: of replies to each other, and
of their distribution to that of recorded replies. Sources:
  * Self-BLEU: Zhu et al. 2018 (Texygen, arXiv 1802.01886), section 3.2: BLEU of each reply with all others as references, in
    the mean. As there: up to four words, equal weights; instead of no match a tenth of one (Chen & Cherry 2014, method 1).
    The references of a reply differ by one from those of the next, so that counting once is enough: linear in the words.
  * Histogram overlap: Pillutla et al. 2021 (MAUVE, arXiv 2102.01454), section 3: vectors of both sides are put into clusters
    together, and the area under the divergence curve of the two histograms is taken, with c = 5. Defaults of their code: a
    tenth as many clusters as replies of a side, on the directions that hold 90 % of the variance.
      * # Paper: one k-means with several starts. Ours: the mean over three clusterings, because the area depends on them.
      * # Paper: GPT-2's last state. Ours: the vectors that the caller passes, so that figures compare within a table alone.

Both depend on the number of replies: only samples of one size compare.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

import numpy as np

from parley.engine.core.stats.known import HIGHER, LOWER
from parley.engine.core.stats.statistics import NOTHING, Estimate, Metric, Row, clustered_rate, finished
from parley.engine.core.tables.table import (
    ABSENT,
    STAR,
    THOUSANDTHS,
    Column,
    EstimateTable,
    Form,
    MarkedEstimate,
    TableCell,
    TableRow,
    metric_table,
    published_cell,
    read_published,
)
from parley.engine.generation.metrics.adversarial import (
    ADVERSUC,
    AHEAD,
    AHEAD_RANDOM,
    CALIBRATION,
    CHANCE,
    CONSTANT,
    CUT,
    ERE,
    GOLD,
    LENGTH_ONLY,
    MATCHED,
    RANDOM,
    TAU,
)
from parley.envs.core.seeds import derive_seed

WHOLE, BEGINNINGS = "accuracy", "accuracy_beginnings"
DECODED, SAMPLED = "decoded", "sampled"
BY_DECODER = {DECODED: "found by the decoder", SAMPLED: "sampled"}
"""How a machine's reply came about, by what figures call it."""
DISCRIMINATION = {
    f"validation_{WHOLE}": Metric(
        "accuracy",
        HIGHER,
        "share of validation replies, half of them by people, that are told to be what they are; 0.5 is chance",
        main=True,
    ),
    f"test_{WHOLE}": Metric("accuracy on the test split", HIGHER, "the same on the test split", main=True),
    **{
        f"validation_{WHOLE}_{name}": Metric(f"accuracy, machine replies {how}", HIGHER, "share of them told to be a machine's")
        for name, how in BY_DECODER.items()
    },
    f"validation_{WHOLE}_human": Metric("accuracy, recorded replies", HIGHER, "share of them told to be a person's"),
    f"validation_{BEGINNINGS}": Metric(
        "accuracy on beginnings", HIGHER, "share of validation replies told by a random number of their first words"
    ),
    "validation_nll": Metric("validation loss", LOWER, "nats a reply, the stopping criterion; 0.693 is chance"),
    "test_nll": Metric("test loss", LOWER, "nats a reply"),
}


def accuracy(log_odds: np.ndarray, human: np.ndarray, contexts: np.ndarray) -> Estimate:
    """Return the share of replies judged right; even odds count half.

    Args:
        log_odds: that a person wrote each (R,).
        human: whether a person did (R,) bool.
        contexts: which context each replies to (R,): replies to one are no independent trials.
    """
    right = np.where(human, log_odds, -log_odds)
    return clustered_rate((right > 0) + 0.5 * (right == 0), contexts)


def accuracies(log_odds: np.ndarray, human: np.ndarray, contexts: np.ndarray, kinds: np.ndarray) -> Mapping[str, Estimate]:
    """Return accuracies over all replies, over recorded ones, and over each source of machine replies.

    Args:
        log_odds: as in `accuracy`.
        human: as in `accuracy`.
        contexts: as in `accuracy`.
        kinds: a key of `BY_DECODER` for each reply (R,); that of a person's has no meaning.
    """
    parts = {WHOLE: np.ones_like(human), f"{WHOLE}_human": human}
    parts |= {f"{WHOLE}_{name}": ~human & (kinds == name) for name in BY_DECODER}
    return {name: accuracy(log_odds[chosen], human[chosen], contexts[chosen]) for name, chosen in parts.items()}


LONGEST, SMOOTHED = 4, 0.1
SCALE, STEPS, NUM_CLUSTERINGS, VARIANCE, PER_CLUSTER = 5.0, 100, 3, 0.9, 10

Words = Sequence[str]


def self_bleu(replies: Sequence[Words]) -> np.ndarray:
    """Return the BLEU of each reply (N,), 0 to 1, with all others as references.

    Args:
        replies: words of each, two at least.
    """
    assert len(replies) > 1, "a reply needs others to be compared with"
    lengths = sorted(map(len, replies))
    logs = np.zeros((len(replies), LONGEST))
    silent = np.zeros(len(replies), dtype=bool)
    for size in range(1, LONGEST + 1):
        counts = [Counter(tuple(reply[i : i + size]) for i in range(len(reply) - size + 1)) for reply in replies]
        most = _two_largest(counts)
        for row, runs in enumerate(counts):
            # Where this reply holds the largest count, the others' largest is the second one.
            matches = sum(min(times, most[run][1 if most[run][0] == times else 0]) for run, times in runs.items())
            silent[row] |= size == 1 and not matches
            logs[row, size - 1] = math.log((matches or SMOOTHED) / max(1, runs.total()))
    penalties = np.array([_brevity(len(reply), lengths) for reply in replies])
    return np.where(silent, 0.0, penalties * np.exp(logs.mean(axis=1)))


def _two_largest(counts: Sequence[Counter[tuple[str, ...]]]) -> dict[tuple[str, ...], tuple[int, int]]:
    """Return the largest and the second largest count of each run of words in a reply; equal ones are both."""
    largest: dict[tuple[str, ...], tuple[int, int]] = {}
    for runs in counts:
        for run, times in runs.items():
            first, second = largest.get(run, (0, 0))
            largest[run] = (times, first) if times > first else (first, max(second, times))
    return largest


def _brevity(length: int, lengths: Sequence[int]) -> float:
    """Return the brevity penalty of a reply against the nearest other length, the shorter of two as near.

    Args:
        length: of the reply.
        lengths: of all replies, sorted, itself included once.
    """
    if not length:
        return 0.0
    index = lengths.index(length)
    neighbours = (*lengths[max(0, index - 1) : index], *lengths[index + 1 : index + 2])
    nearest = min(neighbours, key=lambda other: (abs(other - length), other))
    return 1.0 if length > nearest else math.exp(1 - nearest / length)


def overlap(first_PE: np.ndarray, second_QE: np.ndarray, seed: int) -> float:
    """Return the overlap of two samples of vectors: 1 for equal histograms, near 0 where they share no cluster.

    Args:
        first_PE: vectors of the one side.
        second_QE: of the other.
        seed: of the clusterings.
    """
    from sklearn.cluster import KMeans

    lengths = [len(first_PE), len(second_QE)]
    vectors_NE = np.concatenate([first_PE, second_QE]).astype(np.float64)
    projected_ND = _main_directions(vectors_NE / np.maximum(np.linalg.norm(vectors_NE, axis=1, keepdims=True), 1e-12))
    # No more clusters than there are different vectors.
    num = max(1, min(min(lengths) // PER_CLUSTER, len(np.unique(projected_ND.round(9), axis=0))))
    areas = []
    for number in range(NUM_CLUSTERINGS):
        chosen = derive_seed(seed, "clusters", number) % 2**32
        labels_N = KMeans(num, n_init=1, random_state=chosen).fit_predict(projected_ND)
        areas.append(frontier_area(*(np.bincount(part, minlength=num) for part in np.split(labels_N, lengths[:1]))))
    return float(np.mean(areas))


def frontier_area(first_K: np.ndarray, second_K: np.ndarray) -> float:
    """Return the area under the divergence curve of two histograms, 0 to 1.

    The curve has the points (exp(-c KL(q|r)), exp(-c KL(p|r))) for all mixtures r of p and q (equation 2).

    Args:
        first_K: counts of p by cluster.
        second_K: counts of q.
    """
    p_K, q_K = (np.asarray(counts) / np.sum(counts) for counts in (first_K, second_K))
    shares = np.linspace(0, 1, STEPS + 2)[1:-1]
    mixed_SK = shares[:, None] * p_K + (1 - shares[:, None]) * q_K
    x_S, y_S = (np.exp(-SCALE * _divergence(side_K, mixed_SK)) for side_K in (q_K, p_K))
    # Its ends: all of the one side and nothing of the other.
    x, y = np.concatenate([[1.0], x_S, [0.0]]), np.concatenate([[0.0], y_S, [1.0]])
    order = np.lexsort((-y, x))
    return float(np.trapezoid(y[order], x[order]))


def _divergence(side_K: np.ndarray, mixed_SK: np.ndarray) -> np.ndarray:
    there = side_K > 0
    return np.asarray((side_K[there] * np.log(side_K[there] / mixed_SK[:, there])).sum(axis=1))


def _main_directions(vectors_NE: np.ndarray) -> np.ndarray:
    """Project vectors on the directions of largest variance that hold `VARIANCE` of it."""
    centred = vectors_NE - vectors_NE.mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    share = np.cumsum(sizes**2) / max(float((sizes**2).sum()), 1e-12)
    num = int(np.searchsorted(share, VARIANCE)) + 1
    return np.asarray(left[:, :num] * sizes[:num])


Metrics = Mapping[str, Estimate]


def printed_figures() -> Mapping[str, Mapping[str, Mapping[str, float]]]:
    """Return tables 2 and 3 of the paper: ERE by judge; AdverSuc and machine-vs-random of the hierarchical judge."""
    return read_published("parley.engine.generation.metrics", "li2017.csv")


INLINE = Form(places=3, inline=True)
SUCCESS, RELIABILITY, RANKING, AGREEMENT, FEATURES = (
    "AdverSuc and machine-vs-random (table 3)",
    "Reliability of the judges (table 2)",
    "Systems against each other",
    "Rank agreement of the judges",
    "Strongest features of linear judges",
)
_NOTE = (
    "AdverSuc: 1 less the accuracy of telling people's replies from the system's; .5 where the judge cannot, an undecided pair "
    "is half an error. Chance: range of judges with nothing to learn, 95 %. Machine-vs-random: accuracy of telling the "
    "system's replies from human ones to other sources. Matched, cut: AdverSuc where length tells nothing. Calibration: mean "
    "distance of 1 / (1 + exp(-score)) from the share of people's replies. Brackets: 95 % intervals, pairs of a source drawn "
    "together; n: sources."
)
_NOTE_ERE = (
    "ERE: mean distance of AdverSuc from gold over {num} scenarios, equally weighted; gold: .5 where both sides are one "
    "file's, 0 against random replies and next utterances. A judge that says nothing has an ERE of {constant}."
)
_NOTE_PUBLISHED = " Published: Li et al. 2017, OpenSubtitles; AdverSuc before a network; ERE of four scenarios, .250 if silent."
_NOTE_RANKING = "The first system less the second on the sources that both answer; * where the interval leaves 0 out."
_NOTE_TAU = "Kendall's tau-b over the systems' AdverSuc: 1 the same order, -1 the opposite one."
_NOTE_FEATURES = "Weights, mean over folds; s: a word of the source. Above 0 for people's replies."
_NUM_FEATURES = 10
EQUAL = {MATCHED: "with lengths matched", CUT: "with all replies cut to one length"}
"""Scenarios in which length tells nothing, in words; the first one that has pairs enough decides whether length explains a
judge. Cut replies come second, because how they end may tell which of them were cut."""


@dataclass(frozen=True)
class JudgeSpecs:
    """The specifications of all judges.

    Args:
        judges: labels of the judges that were named.
        controls: labels of the controls, which always judge too.
        systems: labels of the machine files.
        published: whether to show published figures.
    """

    judges: Sequence[str]
    controls: Sequence[str]
    systems: Sequence[str]
    published: bool = False

    @property
    def all_judges(self) -> list[str]:
        """Return the named judges, then the controls."""
        return [*self.judges, *self.controls]


def tables(metrics: Metrics, judging: JudgeSpecs, rows: Sequence[Row] = ()) -> dict[str, EstimateTable]:
    """Return all tables that have figures, by their headings.

    Args:
        metrics: those of `adversarial_metrics`.
        judging: the judges and the systems.
        rows: of the run, for the features of linear judges.
    """
    shown = {SUCCESS: _success(metrics, judging), RELIABILITY: _reliability(metrics, judging)}
    if len(judging.systems) > 1:
        shown[RANKING] = _ranking(metrics, judging)
    if any(name.startswith(f"{TAU}.") for name in metrics):
        shown[AGREEMENT] = _agreement(metrics, judging)
    if features := strongest_features(rows):
        shown[FEATURES] = _features(features)
    return shown


def verdicts(metrics: Metrics, judging: JudgeSpecs) -> list[str]:
    """Return the verdicts in sentences: one for the systems of each outcome, one about unreliable judges."""
    systems_of = dict[str, list[tuple[str, str]]]()
    for system in judging.systems:
        if outcome := _of_system(metrics, judging, system):
            systems_of.setdefault(outcome[0], []).append((system, outcome[1]))
    sentences = []
    for outcome_text, systems in systems_of.items():
        if len(systems) == 1:
            sentences += [f"{system}: {outcome_text} ({figures})." for system, figures in systems]
        else:
            listed = "; ".join(f"{system} ({figures})" for system, figures in systems)
            sentences.append(f"{outcome_text.replace('its replies', 'the replies')}: {listed}.")
    if unreliable := [judge for judge in judging.judges if not is_reliable(metrics, judge)]:
        constant = THOUSANDTHS.value(metrics.get(f"{ERE}.{CONSTANT}", NOTHING).value)
        sentences.append(f"ERE no better than that of a constant ({constant}): do not use {', '.join(unreliable)}.")
    return sentences


def is_reliable(metrics: Metrics, judge: str) -> bool:
    """Return whether a judge's ERE is certainly below that of a judge that says nothing."""
    return bool(metrics.get(f"{ERE}.{judge}", NOTHING).high < metrics.get(f"{ERE}.{CONSTANT}", NOTHING).value)


def strongest_features(rows: Sequence[Row]) -> dict[tuple[str, str], list[tuple[str, float]]]:
    """Return by system and linear judge the words of largest mean weight over folds, human ones first."""
    sums: dict[tuple[str, str], dict[str, float]] = {}
    folds: dict[tuple[str, str], int] = {}
    for row in finished(rows):
        kind, _, system = row["scenario"].partition(".")
        if kind == ADVERSUC and row["features"]:
            key = system, row["judge"]
            folds[key] = folds.get(key, 0) + 1
            words = sums.setdefault(key, {})
            for feature in row["features"]:
                words[feature["word"]] = words.get(feature["word"], 0.0) + feature["weight"]
    strongest = {}
    for key, words in sorted(sums.items()):
        order = sorted(((word, weight / folds[key]) for word, weight in words.items()), key=lambda pair: (-pair[1], pair[0]))
        human, machine = order[:_NUM_FEATURES], order[-_NUM_FEATURES:][::-1]
        strongest[key] = [pair for pair in human if pair[1] > 0] + [pair for pair in machine if pair[1] < 0]
    return strongest


def _success(metrics: Metrics, judging: JudgeSpecs) -> EstimateTable:
    columns = [
        Column("AdverSuc", f"{ADVERSUC}.{{judge}}.{{system}}", INLINE),
        Column("chance", cell=_chance),
        Column("machine-vs-random", f"{RANDOM}.{{judge}}.{{system}}", INLINE),
        Column("matched", f"{MATCHED}.{{judge}}.{{system}}", INLINE),
        Column("cut", f"{CUT}.{{judge}}.{{system}}", INLINE),
        Column("calibration", f"{CALIBRATION}.{{judge}}.{{system}}", INLINE),
    ]
    rows = [
        TableRow(f"{_judge_title(judge, judging)}, {system}", {"judge": judge, "system": system})
        for judge in judging.all_judges
        for system in judging.systems
    ]
    if judging.published:
        rows += [_published_row(name, figures) for name, figures in printed_figures()["table 3"].items()]
    note = _NOTE + _NOTE_PUBLISHED * judging.published
    return metric_table(metrics, "judge, system", rows, columns, note, n=f"{ADVERSUC}.{{judge}}.{{system}}", unit="sources")


def _judge_title(judge: str, judging: JudgeSpecs) -> str:
    return f"{judge}{' (control)' * (judge in judging.controls)}"


def _published_row(name: str, figures: Mapping[str, float]) -> TableRow:
    cells: dict[str, str] = {heading: published_cell(value, THOUSANDTHS) for heading, value in figures.items()}
    return TableRow(f"{name}, published", {"judge": "", "system": ""}, cells=cells | {"n": ""})


def _chance(metrics: Metrics, row: TableRow) -> str:
    estimate = metrics.get(f"{CHANCE}.{ADVERSUC}.{row.fields['system']}", NOTHING)
    return TableCell(INLINE.interval(estimate) or ABSENT, MarkedEstimate(estimate))


def _reliability(metrics: Metrics, judging: JudgeSpecs) -> EstimateTable:
    names = [f"{kind}.{{judge}}.{system}" for kind in GOLD for system in judging.systems]
    names += [f"{kind}.{{judge}}" for kind in GOLD]
    shown = [name for name in names if any(name.format(judge=judge) in metrics for judge in judging.all_judges)]
    columns = [Column("ERE", f"{ERE}.{{judge}}", INLINE)]
    columns += [Column(name.replace(".{judge}", "").replace(".", ", "), name, INLINE) for name in shown]
    rows = [TableRow(_judge_title(judge, judging), {"judge": judge}) for judge in judging.all_judges]
    if judging.published:
        rows += [_published_row(name, figures) for name, figures in printed_figures()["table 2"].items()]
    num = len({name.partition(".")[0] for name in shown})
    note = _NOTE_ERE.format(num=num, constant=THOUSANDTHS.value(metrics.get(f"{ERE}.{CONSTANT}", NOTHING).value))
    return metric_table(metrics, "judge", rows, columns, note + _NOTE_PUBLISHED * judging.published)


def _ranking(metrics: Metrics, judging: JudgeSpecs) -> EstimateTable:
    titles = {"AdverSuc": AHEAD, "machine-vs-random": AHEAD_RANDOM}
    columns = [Column(title, cell=partial(_ahead, kind)) for title, kind in titles.items()]
    rows = [
        TableRow(f"{judge}: {left} less {right}", {"pair": f"{judge}.{left}.{right}"})
        for judge in judging.judges
        for left, right in combinations(judging.systems, 2)
    ]
    return metric_table(metrics, "judge, systems", rows, columns, _NOTE_RANKING, n=f"{AHEAD}.{{pair}}", unit="sources")


def _ahead(kind: str, metrics: Metrics, row: TableRow) -> str:
    difference = metrics.get(f"{kind}.{row.fields['pair']}", NOTHING)
    mark = STAR * (difference.low > 0 or difference.high < 0)
    return TableCell(INLINE.cell(difference) + mark, MarkedEstimate(difference, mark))


def _agreement(metrics: Metrics, judging: JudgeSpecs) -> EstimateTable:
    pairs = {tuple(name.split(".")[1:]): estimate for name, estimate in metrics.items() if name.startswith(f"{TAU}.")}
    pairs |= {(right, left): estimate for (left, right), estimate in pairs.items()}
    names = [judge for judge in judging.all_judges if any(judge in pair for pair in pairs)]
    form = replace(THOUSANDTHS, bounded=False)
    rows = [(left, *(form.cell(pairs.get((left, right), NOTHING)) for right in names)) for left in names]
    return EstimateTable(("judge", *names), tuple(rows), _NOTE_TAU)


def _features(features: Mapping[tuple[str, str], Sequence[tuple[str, float]]]) -> EstimateTable:
    rows = []
    for (system, judge), words in features.items():
        sides = [", ".join(f"{word} {weight:+.2f}" for word, weight in words if (weight > 0) == side) for side in (True, False)]
        rows.append((f"{judge}, {system}", *sides))
    return EstimateTable(("judge, system", "people's", "machine's"), tuple(rows), _NOTE_FEATURES)


def by_judge(metrics: Metrics, judges: Collection[str]) -> str:
    """Return the judge of a headline in words, with the rule that chose it of several."""
    judge = headline_judge(metrics, judges)
    rule = "the judge of least ERE" if metrics.get(f"{ERE}.{judge}", NOTHING).n else "the judge named first"
    return f"by {judge}" + f", {rule}" * (len(judges) > 1)


def headline_judge(metrics: Metrics, judges: Iterable[str]) -> str:
    """Return the judge of a headline: that of least ERE, the first of equal ones; its AdverSuc has no say."""
    return min(judges, key=lambda judge: error.value if (error := metrics.get(f"{ERE}.{judge}", NOTHING)).n else math.inf)


def _of_system(metrics: Metrics, judging: JudgeSpecs, system: str) -> tuple[str, str] | None:
    """Return the outcome of a system and its figures; None if no judge has a figure."""
    estimates = {judge: metrics.get(f"{ADVERSUC}.{judge}.{system}", NOTHING) for judge in judging.judges}
    measured = {judge: estimate for judge, estimate in estimates.items() if estimate.n}
    if not measured:
        return None
    share = THOUSANDTHS.value
    chance = metrics[f"{CHANCE}.{ADVERSUC}.{system}"]
    best = headline_judge(metrics, measured)
    figures = f"AdverSuc {share(measured[best].value)} {by_judge(metrics, measured)}"
    beside = f"machine-vs-random {share(metrics.get(f'{RANDOM}.{best}.{system}', NOTHING).value)}"
    coins = f"chance, {share(chance.low)} to {share(chance.high)}; {beside}"
    others = [judge for judge in measured if measured[judge].value < chance.low]
    if measured[best].value > chance.high and not others:
        wrong = "these judges are" if all(estimate.value > chance.high for estimate in measured.values()) else f"{best} is"
        return f"{wrong} wrong more often than coins", f"{figures}, above {coins}; that is no success of the system"
    if others and best not in others:
        figures = f"{figures}, {share(measured[others[0]].value)} by {others[0]}; {coins}"
        return f"{best} cannot tell its replies from people's, {others[0]} can", figures
    if best not in others:
        simple = {judge: metrics.get(f"{ADVERSUC}.{judge}.{system}", NOTHING) for judge in judging.controls}
        # A control is no judge of the user's, so only a certain result of it counts.
        if certain := {judge: share(simple[judge].value) for judge in simple if simple[judge].high < chance.low}:
            control = next(iter(certain))
            figures = f"AdverSuc {certain[control]} by {control}, {figures.removeprefix('AdverSuc ')}"
            return f"{control} (control) tells its replies from people's, these judges cannot", f"{figures}, within {coins}"
        return "these judges cannot tell its replies from people's", f"{figures}, within {coins}"
    # What tells nothing explains nothing, and so few pairs that this judge would be within chance anyway decide nothing.
    equal = {kind: metrics.get(f"{kind}.{best}.{system}", NOTHING) for kind in EQUAL}
    low = {kind: metrics.get(f"{CHANCE}.{kind}.{system}", NOTHING).low for kind in EQUAL}
    alone = metrics.get(f"{ADVERSUC}.{LENGTH_ONLY}.{system}", NOTHING).value
    decides = next((kind for kind in EQUAL if equal[kind].n and measured[best].value < low[kind]), None)
    if alone < chance.low and decides and equal[decides].value >= low[decides]:
        length = f"{share(alone)} by length alone, {share(equal[decides].value)} {EQUAL[decides]}, no better than chance"
        return "length explains it", f"{figures}, {length}; {beside}"
    shown = decides or next((kind for kind in EQUAL if equal[kind].n), None)
    more = f", {share(equal[shown].value)} {EQUAL[shown]}" if shown else ""
    return f"{best} tells its replies from people's", f"{figures}{more}; {beside}"
