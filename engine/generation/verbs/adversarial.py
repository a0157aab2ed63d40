"""Adversarial evaluation: `parley evaluate adversarial` (Li et al. 2017, sections 4 and 5.1).

Judges are fitted to tell the replies of people from those of systems. Each is cross-fitted in folds that no last turn of a
source crosses, so that every pair is judged by one that never saw it; a shard is a few fits, and a row is one judge in one fold
of one scenario; the texts of its pairs stand in a file beside. Beside the judges that are named stand controls that know
length, the first word and the like alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from parley.engine.core.runs.layout import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.runs.schemas import OK
from parley.engine.core.stats.tables import TextTable
from parley.engine.core.verbs.export import FlatRows
from parley.engine.core.verbs.job import Job, Reporter, Result, Silent, Summary
from parley.engine.core.verbs.sharded import RESUME_SAFE, work_off
from parley.engine.core.verbs.tables import TABLE_FILE, noted
from parley.engine.generation.metrics.adversarial import JudgedRows, adversarial_metrics, describe
from parley.engine.generation.metrics.tables import AskedJudges, tables, verdicts
from parley.engine.generation.verbs.adversarial_config import AdversarialConfig, absolute, labels_of
from parley.engine.generation.verbs.adversarial_worker import JUDGED, JudgedFold, Judging
from parley.engine.generation.verbs.judged_pairs import PAIRS_FILE, flat_pairs, write_pairs
from parley.engine.generation.verbs.pooled import Pooled, pooled
from parley.envs.core.config import from_dict
from parley.envs.corpora.own_files import without_options
from parley.envs.corpora.pairs.replied import SAMPLE
from parley.policies.chat.answers import ANSWERS_FOLDER
from parley.policies.chat.usage import by_kind
from parley.policies.generation.judges.judge import CONTROLS
from parley.policies.generation.judges.makers import judge_maker

SYSTEMS, VERDICTS, NOTES, NUM_FITS = "systems", "verdicts", "notes", "fits"
"""Entries of the summary: labels of the machine files; what it comes to; what was left out; how many rows there are."""


@dataclass(frozen=True)
class PreparedJudging:
    """What is to be judged, found and checked.

    Args:
        config: what was asked for.
        pooled: the pairs.
        items: judge by scenario and fold, by key.
    """

    config: AdversarialConfig
    pooled: Pooled
    items: Mapping[str, JudgedFold]


def sample() -> AdversarialConfig:
    """The published sample of 768 sources, beside the published figures (Li et al. 2017)."""
    return AdversarialConfig()


class EvaluateAdversarial(Job[AdversarialConfig, PreparedJudging, PreparedJudging]):
    """`parley evaluate adversarial`."""

    words = ("evaluate", "adversarial")
    run_name = "adversarial-evaluation"
    config = AdversarialConfig
    presets = {"li2017": sample}
    repeatable = ("machine",)
    schema = JUDGED
    files = (TABLE_FILE, SUMMARY, PAIRS_FILE, "rows")
    num_rows_entry = NUM_FITS
    resume_safe = RESUME_SAFE

    def prepare(self, config: AdversarialConfig, path: Path, reporter: Reporter) -> PreparedJudging:
        """The pairs, and each judge made once."""
        config.require_device()
        found = pooled(config)
        for note in found.notes:
            reporter.say(note)
        named = labels_of(config.judge_names)
        for name in named:
            judge_maker(name, config.settings)()
        items = {
            f"{scenario}/{label}/{fold:03d}": JudgedFold(scenario, label, absolute(name), fold)
            for scenario in found.scenarios
            for name, label in {**named, **{name: name for name in CONTROLS}}.items()
            for fold in range(config.folds)
        }
        return PreparedJudging(config, found, items)

    def work(self, run: RunFolder, prepared: PreparedJudging, reporter: Reporter) -> PreparedJudging:
        config = prepared.config
        write_pairs(run.path / PAIRS_FILE, prepared.pooled.scenarios.values())
        settings = replace(config.settings, answers=str(run.path / ANSWERS_FOLDER))
        judging = Judging(prepared.pooled.scenarios, settings, config.seed)
        work_off(run, judging, prepared.items, config, reporter, "fitting and asking judges")
        reporter.stage("computing metrics and their intervals", 0, "")
        return prepared

    def measure(self, run: RunFolder, found: PreparedJudging) -> Summary:
        config, systems = found.config, found.pooled.systems
        asked = asked_of(config, systems)
        metrics = adversarial_metrics(JudgedRows(run.read_rows().to_pylist()), asked.all_judges, systems, config.folds)
        said = verdicts(metrics, asked)
        failed = [f"{num:,} fits failed: {reason}." for reason, num in run.outcomes().errors.most_common()]
        notes = [*found.pooled.notes, *failed, *_unparsable(run)]
        return Summary(
            f"replies of {', '.join(systems)} before judges",
            f"Judges: {', '.join(asked.judges)}; {config.folds} folds, seed {config.seed}.",
            metrics,
            {SYSTEMS: list(systems), VERDICTS: said, NOTES: notes, NUM_FITS: len(found.items)},
        )

    def models(self, config: AdversarialConfig) -> Mapping[str, str]:
        """The files that are judged too: a run keeps to what is in them."""
        files = {"human": config.human, "next utterances": config.next_utterances}
        files |= {f"machine {name}": name for name in config.machine_names}
        judging = {f"judge {name}": name for name in config.judge_names}
        models = {"forward": config.forward, "backward": config.backward}
        named = {option: without_options(name) for option, name in files.items() if not name.startswith(SAMPLE)}
        return {**named, **judging, **models}

    def num_items(self, config: AdversarialConfig) -> int:
        return len(self.prepare(config, Path(self.run_name), Silent()).items)

    def metrics_of(self, config: AdversarialConfig) -> None:
        """Only a run can tell which scenarios there are pairs for."""

    def flat(self, run: RunFolder) -> FlatRows:
        return flat_pairs(run.path / PAIRS_FILE)

    def tables(self, run: RunFolder) -> dict[str, TextTable]:
        """Tables 3 and 2 of the paper, then what else there is something to say in."""
        metrics, summary = run.metrics(), run.summary() or {}
        if not metrics:
            return {}
        config = from_dict(AdversarialConfig, run.config)
        rows = run.read_rows().select(["status", "scenario", "judge", "features"]).to_pylist()
        return tables(metrics, asked_of(config, summary[SYSTEMS]), rows)

    def note(self, run: RunFolder) -> str:
        return " ".join((run.summary() or {})[NOTES])

    def present(self, result: Result, run: RunFolder) -> Result:
        """With what the metrics mean, tables 3 and 2 in their place and what they come to, and which judges judged nothing."""
        legend = {name: describe(name) for name in result.metrics}
        said = (run.summary() or {}).get(VERDICTS, [])
        tables = noted(dict(islice(self.tables(run).items(), 2)), " ".join([*said, *_unparsable(run)]))
        failure = result.failure or "; ".join(f"{judge} judged nothing: {reason}" for judge, reason in _silent(run).items())
        return replace(result, legend=legend, tables=tables, failure=failure)


def _silent(run: RunFolder) -> dict[str, str]:
    """Judges of which every fit failed, with the reason of the first."""
    judged, found = set[str](), dict[str, str]()
    for row in run.read_rows().select(["item_key", "status", "error"]).to_pylist():
        # A row of an error has no columns of its own; its key is that of `prepare`.
        judge = row["item_key"].rsplit("/", 2)[1]
        if row["status"] == OK:
            judged.add(judge)
        else:
            found.setdefault(judge, str(row["error"]).removeprefix(f"{judge}: "))
    return {judge: reason for judge, reason in found.items() if judge not in judged}


def _unparsable(run: RunFolder) -> list[str]:
    """Return of chat models that judge how often they said neither word, and how often they gave no reply."""
    odd, lost = Counter[str](), dict[str, Counter[str]]()
    for row in run.read_rows().select(["judge", "unparsable", "no_reply"]).to_pylist():
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


def asked_of(config: AdversarialConfig, systems: Sequence[str]) -> AskedJudges:
    """Who judged what in a run of a configuration."""
    judges = list(labels_of(config.judge_names).values())
    return AskedJudges(judges, list(CONTROLS), systems, config.shows_published)


EVALUATE_ADVERSARIAL = EvaluateAdversarial()
