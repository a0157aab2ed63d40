"""Adversarial evaluation: `parley evaluate adversarial` (Li et al. 2017, sections 4 and 5.1).

Judges are fitted to tell the replies of people from those of systems. Each is cross-fitted in folds that no last turn of a
source crosses, so that every pair is judged by one that never saw it; a shard is a few fits, and a row is one judge in one fold
of one scenario; the texts of its pairs stand in a file beside. Beside the judges that are named stand controls that know
length, the first word and the like alone.

A row of `JUDGED` is a judge in a fold of a scenario; its k-th source, label and score are of the pair of that scenario and fold
with the `place` k. Texts stand here once and not in the rows of every judge; a flat file (`parley rows`) has both.

A worker turns shards of (scenario, judge, fold) into rows of `JUDGED`. A row depends on its item and the seed alone: a judge
is made anew, fitted on the other folds, and judges its own.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from parley.engine.core.ray.worker import Shard
from parley.engine.core.runs.documents import SUMMARY, whole, write_whole
from parley.engine.core.runs.parts import OK, error_row, fields_of, ok_row, row_schema
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.rows import selected
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs.export import FlatRows, Line, Row
from parley.engine.core.verbs.job import TABLE_FILE, Reporter, Result, Summary, noted
from parley.engine.core.verbs.sharded import ItemsJob, Prepared, Sharded
from parley.engine.generation.metrics.adversarial import (
    ADVERSUC,
    SOURCE_ITEMS,
    JudgedRows,
    JudgedScenario,
    adversarial_metrics,
    describe,
    source_rows,
)
from parley.engine.generation.metrics.tables import JudgeSpecs, tables, verdicts
from parley.engine.generation.verbs.adversarial_config import AdversarialConfig, absolute, labels_of, pooled
from parley.envs.core.config import from_dict
from parley.envs.core.errors import RefusedModelError, RunError
from parley.envs.corpora.own_files import without_options
from parley.envs.corpora.pairs.compiled import SAMPLE
from parley.policies.chat.model import NO_REPLIES, by_kind
from parley.policies.generation.judges.judge import CONTROLS, Answering, Featured, Judge, Parsing, scores_by
from parley.policies.generation.judges.prompted import judge_maker

PAIRS_FILE = "pairs.parquet"
# The pair's number, from 0, in its fold; hash of the source, and whether the pair is of the first side; all turns before the
# reply, and the reply, as judges read them.
_PAIR = {"place": int, "source": str, "label": bool}
_TEXTS = {"context": [str], "reply": str}
JUDGED_PAIRS = pa.schema(fields_of({"scenario": str, "fold": int, **_PAIR, **_TEXTS}))
"""The columns of the file of pairs."""


def write_pairs(path: Path, scenarios: Iterable[JudgedScenario]) -> None:
    """Write the pairs of all scenarios.

    Args:
        path: the file.
        scenarios: with their pairs in the order of judging.

    Raises:
        RunError: the disk refuses.
    """
    rows = []
    for scenario in scenarios:
        places: Counter[int] = Counter()
        for sided, fold in zip(scenario.pairs, scenario.folds.tolist(), strict=True):
            texts = {"context": [" ".join(turn) for turn in sided.pair.context], "reply": " ".join(sided.pair.reply)}
            keys = {"scenario": scenario.name, "fold": fold, "place": places[fold]}
            rows.append({**keys, "source": sided.source, "label": sided.label, **texts})
            places[fold] += 1
    content = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=JUDGED_PAIRS), content, compression="zstd")
    try:
        write_whole(path, content.getvalue())
    except OSError as error:
        fix = "free some space, then the same command writes it"
        raise RunError("the judged pairs cannot be written", where=path, got=error.strerror, fix=fix) from None


FLAT_JUDGED = row_schema(
    {
        # As `parley.engine.generation.metrics.adversarial`; the file of its system, null in scenarios of people alone; the
        # judge; the fold whose pairs it has not seen.
        "scenario system judge": str,
        "fold": int,
        # As in `JUDGED_PAIRS`; the judge's score, above 0 for the first side.
        **_PAIR,
        "score": float,
        **_TEXTS,
    }
)
"""One pair per line, as one judge scored it in one scenario."""


def flat_pairs(path: Path) -> FlatRows:
    """Turn rows of `JUDGED` into lines of `FLAT_JUDGED`.

    Args:
        path: the file of the run's pairs.

    Raises:
        RunError: it is not there, or damaged.
    """
    with whole(path, "the command that made the run writes it again"):
        pairs = pq.read_table(path, schema=JUDGED_PAIRS)
        # Numbers of lines: as Python's own values all texts would take several times as much memory.
        numbers_of: dict[tuple[str, int], list[int]] = {}
        for number, key in enumerate(zip(pairs["scenario"].to_pylist(), pairs["fold"].to_pylist(), strict=True)):
            numbers_of.setdefault(key, []).append(number)

    def lines(row: Row) -> Iterator[Line]:
        about = {"judge": row["judge"], "system": row["scenario"].partition(".")[2] or None}
        with whole(path):
            texts = pairs.take(numbers_of[row["scenario"], row["fold"]]).to_pylist()
            yield from (about | pair | {"score": score} for pair, score in zip(texts, row["scores"], strict=True))

    return FlatRows(FLAT_JUDGED, lines)


NUM_EXAMPLES, NUM_FEATURES = 3, 50

# A reply of the system, all turns before it, and its score.
_EXAMPLE = {**_TEXTS, "score": float}
_FEATURE = {"word": str, "weight": float}
JUDGED = row_schema(
    {
        # As `parley.engine.generation.metrics.adversarial`; label of the judge; the fold whose pairs it has not seen.
        "scenario judge": str,
        "fold": int,
        # Of each pair of the fold, in the order of the file of their texts: a hash of its source, whether
        # it is of the first side, the judge's score.
        "sources": [str],
        "labels": [bool],
        "scores": [float],
        # Replies of the system that the judge finds most human and most machine-like, of each of them three; empty in other
        # scenarios than "adversuc".
        "examples": [_EXAMPLE],
        # Pairs of the fold of which a judge that asks a chat model could not read the answer; 0 of other judges.
        "unparsable": int,
        # Those of which the chat model gave no reply, by the kind of its answer; null of other judges.
        "no_reply": {kind.column: int for kind in NO_REPLIES},
        # Of a linear judge the words of largest weight.
        "features": [_FEATURE],
    }
)
"""One judge in one fold of one scenario per row."""


class JudgedFold(NamedTuple):
    """An item: a judge in a fold of a scenario.

    Args:
        scenario: its name.
        judge: the judge's label.
        name: as `load_judge` knows it.
        fold: whose pairs it judges.
    """

    scenario: str
    judge: str
    name: str
    fold: int


@dataclass(frozen=True)
class JudgingTask(Sharded[JudgedFold]):
    """Judges that are fitted and asked.

    Args:
        config: of the evaluation.
        scenarios: by name.
        answers: folder in which answers of chat models are kept.
    """

    unit = "fits"
    event = "judged"
    purpose = "judge"
    # A fit of a network takes up to a minute, and a lost shard should cost no more.
    batch = 1

    config: AdversarialConfig
    scenarios: Mapping[str, JudgedScenario]
    answers: str = field(default="", kw_only=True)

    def worker(self) -> JudgingWorker:
        return JudgingWorker(self)


class JudgingWorker:
    """Fits judges and asks them."""

    def __init__(self, judging: JudgingTask) -> None:
        self._judging = judging
        self._settings = replace(judging.config.settings, answers=judging.answers)
        self._makers: dict[str, Callable[[], Judge]] = {}

    def run(self, shard: Shard[JudgedFold]) -> list[dict[str, Any]]:
        """Return one row per item; a judge that fails costs no other its row."""
        rows = []
        for key, item in zip(shard.keys, shard.items, strict=True):
            seed = self._judging.seed(key)
            try:
                rows.append(ok_row(key, seed) | self._columns(item, seed))
            except RefusedModelError:
                raise
            except Exception as error:
                rows.append(error_row(key, seed, f"{item.judge}: {type(error).__name__}: {error}"))
        return rows

    def _maker(self, name: str) -> Callable[[], Judge]:
        if name not in self._makers:
            self._makers[name] = judge_maker(name, self._settings)
        return self._makers[name]

    def _columns(self, item: JudgedFold, seed: int) -> dict[str, Any]:
        scenario = self._judging.scenarios[item.scenario]
        labels = np.array([pair.label for pair in scenario.pairs])
        seen, unseen = (np.flatnonzero((scenario.folds == item.fold) == held_out) for held_out in (False, True))
        judge = self._maker(item.name)()
        judge.fit([scenario.pairs[row].pair for row in seen], labels[seen], seed)
        judged = [scenario.pairs[row] for row in unseen]
        pairs = [pair.pair for pair in judged]
        scores = scores_by(judge, pairs)
        lost = judge.no_replies(pairs) if isinstance(judge, Answering) else None
        return {
            "scenario": item.scenario,
            "judge": item.judge,
            "fold": item.fold,
            "unparsable": judge.num_unparsable(pairs) if isinstance(judge, Parsing) else 0,
            "no_reply": None if lost is None else {kind.column: lost.get(kind.column, 0) for kind in NO_REPLIES},
            "sources": [pair.source for pair in judged],
            "labels": labels[unseen].tolist(),
            "scores": scores.tolist(),
            "examples": self._examples(item, judged, scores),
            "features": [
                {"word": word, "weight": weight}
                for word, weight in (judge.features(NUM_FEATURES) if isinstance(judge, Featured) else [])
            ],
        }

    def _examples(self, item: JudgedFold, judged: Sequence[Any], scores: np.ndarray) -> list[dict[str, Any]]:
        if item.scenario.partition(".")[0] != ADVERSUC:
            return []
        order = sorted((row for row, pair in enumerate(judged) if not pair.label), key=lambda row: -scores[row])
        chosen = dict.fromkeys([*order[:NUM_EXAMPLES], *order[-NUM_EXAMPLES:]])
        return [
            {
                "context": [" ".join(turn) for turn in judged[row].pair.context],
                "reply": " ".join(judged[row].pair.reply),
                "score": float(scores[row]),
            }
            for row in chosen
        ]


SYSTEMS, VERDICTS, NOTES, NUM_FITS, RETRIEVED = "systems", "verdicts", "notes", "fits", "retrieved"
"""Entries of the summary: labels of the machine files, conclusions, notes on what was left out, number of rows, and the systems
that repeat people's replies to other sources, of which there is no conclusion."""


PreparedJudging = Prepared[JudgingTask, JudgedFold]


def sample() -> AdversarialConfig:
    """Judge the published sample of 768 sources, beside the published figures (Li et al. 2017)."""
    return AdversarialConfig()


class EvaluateAdversarial(ItemsJob[AdversarialConfig, JudgingTask, JudgedFold]):
    """`parley evaluate adversarial`."""

    words = ("evaluate", "adversarial")
    run_name = "adversarial-evaluation"
    config = AdversarialConfig
    presets = {"li2017": sample}
    repeatable = ("machine",)
    schema = JUDGED
    item_metrics = SOURCE_ITEMS
    files = (TABLE_FILE, SUMMARY, PAIRS_FILE, "rows")
    num_rows_entry = NUM_FITS
    doing = "fitting and asking judges"

    def prepare(self, config: AdversarialConfig, path: Path, reporter: Reporter) -> PreparedJudging:
        config.require_device()
        prepared_pairs = pooled(config)
        for note in prepared_pairs.notes:
            reporter.say(note)
        named = labels_of(config.judge_names)
        for name in named:
            judge_maker(name, config.settings)()
        items = {
            f"{scenario}/{label}/{fold:03d}": JudgedFold(scenario, label, absolute(name), fold)
            for scenario in prepared_pairs.scenarios
            for name, label in {**named, **{name: name for name in CONTROLS}}.items()
            for fold in range(config.folds)
        }
        facts = {SYSTEMS: list(prepared_pairs.systems), NOTES: prepared_pairs.notes, NUM_FITS: len(items)}
        facts |= {RETRIEVED: list(prepared_pairs.retrieved)}
        return Prepared(JudgingTask(config, prepared_pairs.scenarios), items, facts)

    def work(self, run: RunFolder, prepared: PreparedJudging, reporter: Reporter) -> PreparedJudging:
        write_pairs(run.path / PAIRS_FILE, prepared.task.scenarios.values())
        return super().work(run, prepared, reporter)

    def measure(self, run: RunFolder, prepared: PreparedJudging) -> Summary:
        config, systems = prepared.task.config, prepared.facts[SYSTEMS]
        specs = judge_specs(config, systems)
        metrics = adversarial_metrics(JudgedRows(run.rows()), specs.all_judges, systems, config.folds)
        sentences = verdicts(
            metrics, replace(specs, systems=[name for name in systems if name not in prepared.facts[RETRIEVED]])
        )
        failed = [f"{num:,} fits failed: {reason}." for reason, num in run.outcomes().errors.most_common()]
        notes = [*prepared.facts[NOTES], *failed, *_unparsable(run)]
        return Summary(
            f"replies of {', '.join(systems)} before judges",
            f"Judges: {', '.join(specs.judges)}; {config.folds} folds, seed {config.seed}.",
            metrics,
            {**prepared.facts, VERDICTS: sentences, NOTES: notes},
        )

    def item_rows(self, run: RunFolder) -> Iterator[Sequence[Mapping[str, Any]]]:
        yield source_rows(run.rows(), run.config["folds"])

    def models(self, config: AdversarialConfig) -> Mapping[str, str]:
        files = {"human": config.human, "next utterances": config.next_utterances}
        files |= {f"machine {name}": name for name in config.machine_names}
        judging = {f"judge {name}": name for name in config.judge_names}
        models = {"forward": config.forward, "backward": config.backward}
        named = {option: without_options(name) for option, name in files.items() if not name.startswith(SAMPLE)}
        return {**named, **judging, **models}

    def metrics_of(self, config: AdversarialConfig) -> None:
        """Return None: only a run knows which scenarios have pairs."""

    def flat(self, run: RunFolder) -> FlatRows:
        return flat_pairs(run.path / PAIRS_FILE)

    def tables(self, run: RunFolder) -> dict[str, EstimateTable]:
        metrics, summary = run.metrics(), run.summary() or {}
        if not metrics:
            return {}
        config = from_dict(AdversarialConfig, run.config)
        rows = selected(run.rows(), "scenario", "judge", "features")
        return tables(metrics, judge_specs(config, summary[SYSTEMS]), rows)

    def note(self, run: RunFolder) -> str:
        return " ".join((run.summary() or {})[NOTES])

    def present(self, result: Result, run: RunFolder) -> Result:
        legend = {name: describe(name) for name in result.metrics}
        sentences = (run.summary() or {}).get(VERDICTS, [])
        tables = noted(dict(islice(self.tables(run).items(), 2)), " ".join([*sentences, *_unparsable(run)]))
        failure = result.failure or "; ".join(f"{judge} judged nothing: {reason}" for judge, reason in _silent(run).items())
        return replace(result, legend=legend, tables=tables, failure=failure)


def _silent(run: RunFolder) -> dict[str, str]:
    """Return the judges whose every fit failed, with the reason of the first."""
    judged, reasons = set[str](), dict[str, str]()
    for row in selected(run.rows(), "item_key", "error"):
        # A row of an error has no columns of its own; its key is that of `prepare`.
        judge = row["item_key"].rsplit("/", 2)[1]
        if row["status"] == OK:
            judged.add(judge)
        else:
            reasons.setdefault(judge, str(row["error"]).removeprefix(f"{judge}: "))
    return {judge: reason for judge, reason in reasons.items() if judge not in judged}


def _unparsable(run: RunFolder) -> list[str]:
    """Report how often each chat judge said neither word, and how often it gave no reply."""
    odd, lost = Counter[str](), dict[str, Counter[str]]()
    for row in selected(run.rows(), "judge", "unparsable", "no_reply"):
        odd[row["judge"]] += row["unparsable"] or 0
        kinds = {name.replace("_", " "): num for name, num in (row["no_reply"] or {}).items()}
        lost.setdefault(row["judge"], Counter()).update(kinds)
    unread = [f"{judge} said neither human nor machine of {num:,} pairs, asked twice." for judge, num in odd.items() if num]
    no_reply = [
        f"{judge} gave no reply of {kinds.total():,} pairs, which says nothing of them ({by_kind(kinds)})."
        for judge, kinds in lost.items()
        if kinds.total()
    ]
    return unread + no_reply


def judge_specs(config: AdversarialConfig, systems: Sequence[str]) -> JudgeSpecs:
    """Return the judges of a run of a configuration, and its systems."""
    judges = list(labels_of(config.judge_names).values())
    return JudgeSpecs(judges, list(CONTROLS), systems, config.shows_published)


EVALUATE_ADVERSARIAL = EvaluateAdversarial()
