"""An audit of perturbations: `parley perturb audit`, and the labels of its sheet: `parley perturb label`.

A strategy that should not change the meaning and does so measures itself and not a model. So an audit says of the contexts of a
corpus how much of them strategies change, and how what they make reads: to a language model, by signs that need no parser, to a
model of entailment, and to people, for whom it draws changed lines (`sheet.py`). A control shows the figures of random words.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from parley.engine.core.runs.documents import write_whole
from parley.engine.core.runs.layout import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.tables import TextTable
from parley.engine.core.verbs.checkpoints import require_checkpoint
from parley.engine.core.verbs.export import FlatRows, each_of
from parley.engine.core.verbs.job import Job, Reporter, Result, Silent, Summary
from parley.engine.core.verbs.sharded import RESUME_SAFE, work_off
from parley.engine.core.verbs.tables import TABLE_FILE, noted
from parley.engine.perturb.metrics.audit import CONTROL, KEPT, KINDS, WRONG, audit_metrics, describe_audit
from parley.engine.perturb.metrics.audit_table import TRIGRAMS, audit_tables
from parley.engine.perturb.metrics.labels import label_metrics
from parley.engine.perturb.settings import PerturbSettings
from parley.engine.perturb.verbs.audit_worker import Auditing, audit_resources, entailment_model, likelihood_model
from parley.engine.perturb.verbs.config import AuditConfig
from parley.engine.perturb.verbs.examples import chosen_examples, tell_of_left_out, tried
from parley.engine.perturb.verbs.models import OWN_TURNS
from parley.engine.perturb.verbs.rows import AUDIT
from parley.engine.perturb.verbs.sheet import DrawnLine, LabelledSheet, drawn_lines, read_sheet, sheet
from parley.envs.core.config import from_dict
from parley.envs.core.errors import ConfigError, DataError, RunError
from parley.envs.core.storage.uris import display_path
from parley.envs.corpora.pairs.compiled import load_pairs
from parley.envs.corpora.pairs.turns import Example
from parley.envs.corpora.root import data_root

SHEET, LABELS_FOLDER = "sheet.csv", "labels"
"""What a person labels, and where the run keeps what came back, a file for each labeller."""
NUM_EXAMPLES, AUDITED, NUM_LINES, LABELLERS = "examples", "audited", "lines", "labellers"
"""Entries of the summary: how many contexts there are, the strategies, how many lines of each were drawn and labelled, and how
many lines each labeller labelled."""


@dataclass(frozen=True)
class PreparedAudit:
    """What is to be done, found and checked.

    Args:
        config: what was asked for, its data root found.
        examples: whose contexts are perturbed.
        strategies: their names.
    """

    config: AuditConfig
    examples: Sequence[Example]
    strategies: Sequence[str]


def _prepare(config: AuditConfig, reporter: Reporter) -> PreparedAudit:
    """Finds out before a run is made whether everything is there and works."""
    config.require_device()
    tell_of_left_out(config, reporter)
    found = replace(config, data_root=data_root(config.data_root))
    chosen, _ = chosen_examples(found, config.corpus, config.contexts.turns or _turns(config.model), reporter)
    shared = audit_resources(found, load_pairs(config.corpus, found.data_root).vocabulary)
    names = [strategy.name for strategy in tried(found, shared, chosen[0])]
    if CONTROL in names:
        raise ConfigError("a strategy bears the name of the control", got=CONTROL, fix="give yours another name")
    # The signs of broken English need its tags, whatever the strategies need.
    shared.lexicon.tag(("word",))
    likelihood_model(found, shared)
    if config.entailment:
        entailment_model(found)
    return PreparedAudit(found, chosen, names)


def _turns(model: str) -> int:
    """Turns of context that a model reads."""
    if not model:
        return OWN_TURNS
    from parley.policies.core.responders import load_responder

    responder = load_responder(require_checkpoint(model, "--model", "parley train seq2seq"))
    return int(getattr(responder, "turns", OWN_TURNS))


def lines_of(run: RunFolder) -> dict[str, DrawnLine]:
    """The lines of a finished run that were drawn for a person to label, by key."""
    strategies = (run.summary() or {})[AUDITED]
    return _drawn(run, from_dict(AuditConfig, run.config, str(run.path)), strategies)


def labels_of(run: RunFolder, lines: Mapping[str, DrawnLine]) -> dict[str, LabelledSheet]:
    """What labellers say of the lines of a run, by their names.

    Raises:
        DataError: a sheet that the run keeps is damaged.
    """
    return {path.stem: read_sheet(path, lines) for path in sorted((run.path / LABELS_FOLDER).glob("*.csv"))}


def _drawn(run: RunFolder, config: AuditConfig, strategies: Sequence[str]) -> dict[str, DrawnLine]:
    rows = (row for part in run.read_parts() for row in part.to_pylist())
    return drawn_lines(rows, strategies, config.num_lines, config.seed)


def _is_begun(path: Path, lines: Mapping[str, DrawnLine]) -> bool:
    """Whether somebody has written into the sheet of a run; what cannot be read somebody has written, too."""
    try:
        return path.is_file() and bool(read_sheet(path, lines).labels)
    except DataError:
        return True


def _keep(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(exist_ok=True)
        write_whole(path, content)
    except OSError as error:
        raise RunError("the sheet cannot be written", where=path, got=error.strerror, fix="free some space") from None


def niu2018() -> AuditConfig:
    """Every context of the test split under the seven strategies by the paper's rules (Niu & Bansal 2018)."""
    return AuditConfig()


def quick() -> AuditConfig:
    """A first look: 500 contexts."""
    return AuditConfig(limit=500)


def demo() -> AuditConfig:
    """Seconds, without any data: 200 contexts of the built-in help desk, the built-in lexicon."""
    return AuditConfig(limit=200, perturb=PerturbSettings(lexicon="built-in"))


class PerturbAudit(Job[AuditConfig, PreparedAudit, PreparedAudit]):
    """`parley perturb audit`."""

    words = ("perturb", "audit")
    run_name = "audit"
    config = AuditConfig
    presets = {"niu2018": niu2018, "quick": quick, "demo": demo}
    argument = "strategies"
    schema = AUDIT
    files = (SHEET, TABLE_FILE, SUMMARY, "rows")
    num_rows_entry = NUM_EXAMPLES
    resume_safe = RESUME_SAFE

    def prepare(self, config: AuditConfig, path: Path, reporter: Reporter) -> PreparedAudit:
        """Contexts, strategies and judges, each strategy tried once."""
        return _prepare(config, reporter)

    def work(self, run: RunFolder, prepared: PreparedAudit, reporter: Reporter) -> PreparedAudit:
        items = {example.key: example for example in prepared.examples}
        work_off(run, Auditing(prepared.config), items, prepared.config, reporter, "perturbing contexts and reading them")
        return prepared

    def measure(self, run: RunFolder, found: PreparedAudit) -> Summary:
        return self.measured(run, found.config, found.strategies)

    def measured(self, run: RunFolder, config: AuditConfig, strategies: Sequence[str]) -> Summary:
        """What a run has come to, the labels that it keeps included; writes its sheet.

        Args:
            run: opened for writing.
            config: what was asked for.
            strategies: the names of those that its rows hold.
        """
        lines = _drawn(run, config, strategies)
        path = run.path / SHEET
        if not _is_begun(path, lines):
            _keep(path, sheet(lines.values()))
        rows = [row for part in run.read_parts() for row in part.to_pylist()]
        labels = {name: each.labels for name, each in labels_of(run, lines).items()}
        drawn = Counter(line.strategy for line in lines.values())
        labelled = Counter(lines[key].strategy for key in set().union(*labels.values()))
        metrics = audit_metrics(rows, strategies, config.max_ratio)
        return Summary(
            f"audit of perturbations on {config.corpus}",
            f"{len(rows):,} {config.split} contexts, {len(strategies)} {'strategy' if len(strategies) == 1 else 'strategies'}, "
            f"seed {config.seed}.",
            {**label_metrics({key: line.strategy for key, line in lines.items()}, labels), **metrics},
            {
                NUM_EXAMPLES: len(rows),
                AUDITED: list(strategies),
                NUM_LINES: {name: {"drawn": drawn[name], "labelled": labelled[name]} for name in strategies},
                LABELLERS: {name: len(said) for name, said in labels.items()},
            },
        )

    def label(self, path: Path, sheets: Sequence[Path], reporter: Reporter) -> Result:
        """Reads labelled sheets into a finished run; what a labeller of that name said before is replaced.

        Args:
            path: the run's folder.
            sheets: the files, each of the labeller that it is named after.
            reporter: who looks on.

        Raises:
            DataError: a sheet is broken, of another run, or has no label; nothing is changed then.
            RunError: there is no finished audit in the folder, or the disk refuses.
        """
        before = RunFolder.load(path)
        if before.job != self.name:
            fix = f"name a run of parley {' '.join(self.words)}"
            raise RunError("only audits of perturbations have lines to label", where=path, got=before.job, fix=fix)
        if (before.summary() or {}).get(AUDITED) is None:
            fix = shlex.join(["parley", "resume", display_path(path)])
            raise RunError("the audit has not come to its end", where=path, fix=fix)
        config, lines = from_dict(AuditConfig, before.config, str(path)), lines_of(before)
        names = Counter(each.stem for each in sheets)
        if twice := [name for name, times in names.items() if times > 1]:
            fix = "name each file after its labeller"
            raise DataError("two sheets bear the same name", where=", ".join(map(str, sheets)), got=twice[0], fix=fix)
        read = {each: read_sheet(each, lines) for each in sheets}
        if empty := [str(each) for each, found in read.items() if not found.labels]:
            fix = "write ok or wrong into the column label"
            raise DataError("the sheet has no label", where=empty[0], got=f"{len(lines):,} lines without one", fix=fix)
        contents = {each.stem: each.read_bytes() for each in sheets}
        with RunFolder.open(
            path, config, job=self.name, schema=self.schema, resume_safe=self.resume_safe, weights=before.weights
        ) as run:
            for each, found in read.items():
                kept = path / LABELS_FOLDER / f"{each.stem}.csv"
                again = ", which replace those of before" if kept.exists() else ""
                reporter.say(f"{each.stem}: {len(found.labels):,} of {len(lines):,} lines are labelled{again}")
                _keep(kept, contents[each.stem])
            self.conclude(run, config, self.measured(run, config, (before.summary() or {})[AUDITED]))
        return self.result(config, path)

    def models(self, config: AuditConfig) -> dict[str, str]:
        paraphraser = config.perturb.paraphraser or ""
        named = {"model": config.model, "lm": config.lm, "entailment": config.entailment_folder}
        return {**named, "perturb.paraphraser": paraphraser}

    def num_items(self, config: AuditConfig) -> int:
        return len(_prepare(config, Silent()).examples)

    def metrics_of(self, config: AuditConfig) -> list[str] | None:
        """Only a run can tell the names of strategies of a user's own, and whether lines were labelled."""
        if any(".py:" in name for name in config.strategy_names):
            return None
        kinds = [kind for kind in KINDS if kind != WRONG and (kind != KEPT or config.entailment)]
        return [f"{kind}.{name}" for name in (*config.strategy_names, CONTROL) for kind in kinds]

    def flat(self, run: RunFolder) -> FlatRows:
        """One utterance that a strategy changed per line."""
        return each_of(AUDIT, "touched")

    def next_commands(self, config: AuditConfig, path: Path) -> tuple[str, ...]:
        label = ["parley", "perturb", "label", display_path(path), display_path(path / SHEET)]
        return (shlex.join(label), *super().next_commands(config, path))

    def tables(self, run: RunFolder) -> dict[str, TextTable]:
        likelihood = run.config["lm"] or TRIGRAMS
        metrics = run.metrics()
        return audit_tables(metrics, run.config["max_ratio"], likelihood) if metrics else {}

    def note(self, run: RunFolder) -> str:
        """Whose labels there are, and of how many lines."""
        summary = run.summary() or {}
        if not summary.get(LABELLERS):
            return f"No line is labelled yet: write ok or wrong into the column label of {SHEET}, then parley perturb label."
        of_each = [f"{each['labelled']:,} of {each['drawn']:,} of {name}" for name, each in summary[NUM_LINES].items()]
        by_each = [f"{name} {number:,}" for name, number in summary[LABELLERS].items()]
        return f"Lines with a label: {', '.join(of_each)}. Labellers: {', '.join(by_each)}."

    def present(self, result: Result, run: RunFolder) -> Result:
        """With what the metrics mean, and the tables in their place."""
        tables = noted(self.tables(run), self.note(run))
        return replace(result, legend={name: describe_audit(name) for name in result.metrics}, tables=tables)


PERTURB_AUDIT = PerturbAudit()
