"""An audit of perturbations: `parley perturb audit`, and the labels of its sheet: `parley perturb label`.

A strategy that should not change the meaning and does so measures itself and not a model. So an audit says of the contexts of a
corpus how much of them strategies change, and how what they make reads: to a language model, by signs that need no parser, to a
model of entailment, and to people, for whom it draws changed lines (`sheet.py`). A control shows the figures of random words.

`parley perturb label` reads labelled lines back into the run of their audit. A worker turns shards of examples into rows of
`parley.engine.perturb.verbs.config.AUDIT`.

Beside the strategies stands a control (`CONTROL`): in each utterance that was
touched, as many words as one of them changed, drawn, become random words of the corpus.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Protocol

import numpy as np
from tyro import conf

from parley.engine.core.cli.flags import parse
from parley.engine.core.cli.main import Verb
from parley.engine.core.cli.screen import show_result, watching
from parley.engine.core.ray.record import Counts, Rows
from parley.engine.core.ray.worker import Shard
from parley.engine.core.runs.documents import SUMMARY, write_whole
from parley.engine.core.runs.parts import OK, ok_row
from parley.engine.core.runs.remote_sync import fetched_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.rows import selected
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs.checkpoints import require_checkpoint
from parley.engine.core.verbs.export import FlatRows, each_of
from parley.engine.core.verbs.job import TABLE_FILE, Reporter, Result, Summary, noted
from parley.engine.core.verbs.sharded import ItemsJob, Prepared, Sharded, Tally
from parley.engine.perturb.catalogue import Resources, build
from parley.engine.perturb.metrics.audit import (
    CONTROL,
    KEPT,
    KINDS,
    TRIGRAMS,
    WRONG,
    audit_metrics,
    audit_tables,
    describe_audit,
    label_metrics,
)
from parley.engine.perturb.strategies.stopwords import signals
from parley.engine.perturb.strategies.texts import ChangeKind, Span, num_changed, spans
from parley.engine.perturb.strategy import PerturbSettings
from parley.engine.perturb.verbs.config import AUDIT, AuditConfig
from parley.engine.perturb.verbs.models import (
    admitted,
    build_and_run_once,
    chosen_examples,
    perturbed_contexts,
    report_left_out,
    usual_words,
)
from parley.engine.perturb.verbs.sheet import DrawnLine, LabelledSheet, drawn_lines, read_sheet, sheet
from parley.envs.core.config import from_dict
from parley.envs.core.errors import CheckpointError, ConfigError, DataError, RunError
from parley.envs.core.seeds import stream
from parley.envs.core.storage.copies import fetched_file, fetched_model
from parley.envs.core.storage.uris import display_path
from parley.envs.corpora.arrow import data_root
from parley.envs.corpora.pairs.compiled import load_pairs
from parley.envs.corpora.pairs.contexts import OWN_TURNS, said
from parley.envs.corpora.pairs.turns import Example, Turns, Utterance, detokenise, format_turns
from parley.envs.corpora.pairs.vocabulary import PairVocabulary

if TYPE_CHECKING:
    from parley.engine.perturb.strategy import Strategy
    from parley.policies.hugging_face.judges import Entailment


@dataclass(frozen=True, kw_only=True)
class LabelArguments:
    """The run, and the sheets of labels."""

    run: Annotated[conf.Positional[str], conf.arg(metavar="RUN")]
    """Folder or URI of a finished run of parley perturb audit."""
    sheets: Annotated[conf.Positional[tuple[str, ...]], conf.arg(metavar="FILE ...", help_behavior_hint="")]
    """Labelled copies of its sheet.csv, files or URIs, each named after its labeller; labels are ok or wrong, or empty."""
    json: Annotated[conf.FlagCreatePairsOff[bool], conf.arg(help_behavior_hint="")] = False
    """Print the metrics as one JSON object on standard output."""


def run_label(verb: Verb, arguments: Sequence[str]) -> int:
    """Read the sheets, show the tables and write the page; return the exit status."""
    options = parse(LabelArguments, verb, arguments)
    from parley.engine.core.page.page import report_from_run

    if not options.sheets:
        fix = "parley perturb label RUN RUN/sheet.csv, when its column label is filled in"
        raise ConfigError("there is no sheet to read", where=options.run, fix=fix)
    run = fetched_run(options.run)
    with watching() as reporter:
        result = PERTURB_AUDIT.label(run, [fetched_file(name) for name in options.sheets], reporter)
        result = replace(result, files=(report_from_run(run), *result.files))
    show_result(result)
    if options.json:
        metrics = {name: estimate.to_json() for name, estimate in result.metrics.items()}
        sys.stdout.write(f"{json.dumps({'metrics': metrics, 'run': display_path(run)})}\n")
    return 0


class LikelihoodModel(Protocol):
    """A judge of the likelihood of utterances: trigrams of the corpus, or a language model fitted to it."""

    def log_probabilities(self, utterances: Sequence[Utterance]) -> list[np.ndarray]:
        """Return natural logarithms of the probabilities of each utterance's words and its end (words + 1,) float64."""


class ChangedUtterance(NamedTuple):
    """An utterance that a strategy changed; `position` counts the utterances of the context from 0."""

    strategy: str
    position: int
    before: Utterance
    after: Utterance


def likelihood_model(config: AuditConfig, shared: Resources) -> LikelihoodModel:
    """Return the judge of edits.

    Args:
        config: the audit, with its data root resolved.
        shared: what strategies share, trigrams of the corpus among it.

    Raises:
        CheckpointError: there is no language model of that name, or it reads several turns.
        DataError: the corpus cannot be read.
    """
    if config.lm:
        return language_model(config.lm, config.corpus, config.device, config.engine.batch_size)
    if shared.trigrams is not None and config.perturb.corpus in ("", config.corpus):
        return shared.trigrams
    from parley.engine.perturb.lexicon.tagger import NGrams

    return NGrams(said(load_pairs(config.corpus, config.data_root, every_word=True), "train"))


def language_model(name: str, corpus: str, device: str, batch_size: int) -> LikelihoodModel:
    """Load a run of parley train lm as a judge of utterances; its errors name `corpus` in their fix.

    Raises:
        CheckpointError: there is no such model, or it reads several turns.
    """
    from parley.policies.seq2seq.scoring import WordScores, load_language_model

    model = load_language_model(require_checkpoint(name, "--lm", "parley train lm")).eval().to(device)
    if model.sizes.turns > 1:
        fix = f"parley train lm --corpus {corpus} makes one of single utterances"
        raise CheckpointError("--lm judges utterances, and this one reads several turns", where=name, fix=fix)
    return WordScores(model, batch_size)


def entailment_model(config: AuditConfig) -> Entailment | None:
    """Return the model that tells whether utterances follow from each other; None where nothing is named."""
    if not config.entailment:
        return None
    from parley.policies.hugging_face.judges import load_entailment

    return load_entailment(fetched_model(config.entailment_folder), config.device, config.engine.batch_size)


def audit_resources(config: AuditConfig, vocabulary: PairVocabulary) -> Resources:
    """Return the resources that the strategies of an audit share.

    Args:
        config: the audit, with its data root resolved.
        vocabulary: of the corpus, most frequent words first.
    """
    words, model_vocabulary = None, vocabulary
    if config.model:
        folder = require_checkpoint(config.model, "--model", "parley train seq2seq")
        model_vocabulary = PairVocabulary.load(folder / "vocabulary.json")
        words = admitted(model_vocabulary)
    common = usual_words(model_vocabulary, vocabulary)
    return Resources(config.perturb, words, common, config.data_root, config.device, config.corpus)


@dataclass(frozen=True)
class AuditTask(Sharded[Example]):
    """Strategies whose edits are judged.

    Args:
        config: the audit, with its data root resolved.
    """

    unit = "examples"
    event = "audited"
    purpose = "audit"
    batch = 256

    config: AuditConfig

    def worker(self) -> AuditWorker:
        return AuditWorker(self)

    def digest(self, rows: Rows) -> Counts:
        done = [row for row in rows if row["status"] == OK]
        counts = Counter(change["strategy"] for row in done for change in row["touched"] if change["strategy"] != CONTROL)
        return counts + Counter({_UTTERANCES: sum(row["num_utterances"] for row in done)})

    def describe(self, tally: Tally) -> str:
        total = tally.total[_UTTERANCES]
        shares = (f"{name} {100 * times / total:.0f} %" for name, times in tally.total.items() if name != _UTTERANCES)
        return f"touched utterances: {', '.join(shares)}" if total else ""


_UTTERANCES = ".utterances"
"""Counted beside strategies; no strategy's name begins with the dot."""


class AuditWorker:
    """Perturbs contexts and judges the edits."""

    def __init__(self, task: AuditTask) -> None:
        self.task, config = task, task.config
        vocabulary = load_pairs(config.corpus, config.data_root).vocabulary
        shared = audit_resources(config, vocabulary)
        self.seed, self.lexicon, self.vocabulary = config.seed, shared.lexicon, frozenset(vocabulary.words)
        self.common = usual_words(vocabulary, vocabulary)
        self.strategies: list[Strategy] = build(config.strategy_names, config.perturb, shared)
        self.likelihood, self.entailment = likelihood_model(config, shared), entailment_model(config)

    def run(self, shard: Shard[Example]) -> list[dict[str, Any]]:
        """Return one row per example."""
        changes: list[list[ChangedUtterance]] = [[] for _ in shard.items]
        for strategy in self.strategies:
            contexts = perturbed_contexts(strategy, shard, self.seed)
            for of_example, example, after in zip(changes, shard.items, contexts, strict=True):
                of_example += changed_utterances(strategy.name, example.context, after)
        for of_example, key in zip(changes, shard.keys, strict=True):
            of_example += self._random_words(key, of_example)
        judged = iter(self._judged(list(chain.from_iterable(changes))))
        return [
            self._row(example, [next(judged) for _ in of_example])
            for example, of_example in zip(shard.items, changes, strict=True)
        ]

    def _row(self, example: Example, changes: list[dict[str, Any]]) -> dict[str, Any]:
        lengths = [len(words) for turn in example.context for words in turn if words]
        return ok_row(example.key, self.task.seed(example.key)) | {
            "context": format_turns(example.context),
            "num_utterances": len(lengths),
            "num_words": sum(lengths),
            "touched": changes,
        }

    def _random_words(self, key: str, changes: Sequence[ChangedUtterance]) -> Iterator[ChangedUtterance]:
        """Yield the control: random words in the utterances that strategies changed."""
        rng = stream(self.seed, "audit control", key)
        for position in sorted({change.position for change in changes}):
            candidates = [change for change in changes if change.position == position]
            like = candidates[int(rng.integers(len(candidates)))]
            words = list(like.before)
            number = min(len(words), num_changed(_spans(like)))
            for chosen in sorted(rng.permutation(len(words))[:number].tolist()):
                drawn = int(rng.integers(len(self.common)))
                # A word is not replaced by itself.
                words[chosen] = self.common[drawn - (self.common[drawn] == words[chosen])]
            if number:
                yield ChangedUtterance(CONTROL, position, like.before, tuple(words))

    def _judged(self, changes: Sequence[ChangedUtterance]) -> Iterator[dict[str, Any]]:
        """Yield the entries of the column `touched`."""
        utterances = sorted({words for change in changes for words in (change.before, change.after)})
        tags = dict(zip(utterances, self.lexicon.tag_all(utterances), strict=True))
        scores = self.likelihood.log_probabilities(utterances)
        nats = {words: -float(log_probabilities.sum()) for words, log_probabilities in zip(utterances, scores, strict=True)}
        signs = {words: signals(words, tags[words], self.vocabulary) for words in utterances}
        for change, kept in zip(changes, self._kept(changes), strict=True):
            log_probabilities = _spans(change)
            replaced, retagged = _retagged(log_probabilities, tags[change.before], tags[change.after])
            yield {
                "strategy": change.strategy,
                "place": change.position,
                "before": " ".join(change.before),
                "after": " ".join(change.after),
                "num_changed": num_changed(log_probabilities),
                "nats_before": nats[change.before],
                "nats_after": nats[change.after],
                "num_replaced": replaced,
                "num_retagged": retagged,
                "signals_before": signs[change.before],
                "signals_after": signs[change.after],
                "kept": kept,
            }

    def _kept(self, changes: Sequence[ChangedUtterance]) -> Sequence[bool | None]:
        """Return whether each utterance follows from the other, both detokenised."""
        if self.entailment is None or not changes:
            return [None] * len(changes)
        before, after = ([detokenise(getattr(change, side)) for change in changes] for side in ("before", "after"))
        both = zip(self.entailment.follows(before, after), self.entailment.follows(after, before), strict=True)
        return [there and back for there, back in both]


def changed_utterances(strategy: str, before: Turns, after: Turns) -> Iterator[ChangedUtterance]:
    """Yield the utterances that differ between a context and its perturbation."""
    pairs = zip(chain.from_iterable(before), chain.from_iterable(after), strict=True)
    return (ChangedUtterance(strategy, position, old, new) for position, (old, new) in enumerate(pairs) if old != new)


def _spans(change: ChangedUtterance) -> list[Span]:
    return spans(((change.before,),), ((change.after,),))


def _retagged(aligned_spans: Sequence[Span], before: Sequence[str], after: Sequence[str]) -> tuple[int, int]:
    """Count the words replaced one by one, and those of them whose tag changed."""
    replaced = changed = old = new = 0
    for span in aligned_spans:
        if span.kind is ChangeKind.REPLACED and len(span.before) == len(span.after):
            replaced += len(span.before)
            sides = zip(before[old : old + len(span.before)], after[new : new + len(span.after)], strict=True)
            changed += sum(tag != other for tag, other in sides)
        old, new = old + len(span.before), new + len(span.after)
    return replaced, changed


SHEET, LABELS_FOLDER = "sheet.csv", "labels"
"""The file that a person labels, and the folder of labelled sheets, one file for each labeller."""
NUM_EXAMPLES, AUDITED, NUM_LINES, LABELLERS = "examples", "audited", "lines", "labellers"
"""Entries of the summary: number of contexts, strategies, drawn and labelled lines of each, labelled lines of each labeller."""


def _turns(model: str) -> int:
    """Return the number of turns of context that a model reads."""
    if not model:
        return OWN_TURNS
    from parley.policies.core.responders import load_responder

    responder = load_responder(require_checkpoint(model, "--model", "parley train seq2seq"))
    return int(getattr(responder, "turns", OWN_TURNS))


def lines_of(run: RunFolder) -> dict[str, DrawnLine]:
    """Return the lines of a finished run that were drawn for labelling, by key."""
    strategies = (run.summary() or {})[AUDITED]
    return _drawn(run, from_dict(AuditConfig, run.config, str(run.path)), strategies)


def labels_of(run: RunFolder, lines: Mapping[str, DrawnLine]) -> dict[str, LabelledSheet]:
    """Return the labels of the lines of a run, by labeller.

    Raises:
        DataError: a sheet that the run keeps is damaged.
    """
    return {path.stem: read_sheet(path, lines) for path in sorted((run.path / LABELS_FOLDER).glob("*.csv"))}


def _drawn(run: RunFolder, config: AuditConfig, strategies: Sequence[str]) -> dict[str, DrawnLine]:
    rows = run.rows()
    return drawn_lines(rows, strategies, config.num_lines, config.seed)


def _has_labels(path: Path, lines: Mapping[str, DrawnLine]) -> bool:
    """Return whether a sheet holds labels, or cannot be read and so was edited."""
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
    """Take a first look: 500 contexts."""
    return AuditConfig(limit=500)


def demo() -> AuditConfig:
    """Seconds, without any data: 200 contexts of the built-in help desk, the built-in lexicon."""
    return AuditConfig(limit=200, perturb=PerturbSettings(lexicon="built-in"))


class PerturbAudit(ItemsJob[AuditConfig, AuditTask, Example]):
    """`parley perturb audit`."""

    words = ("perturb", "audit")
    run_name = "audit"
    config = AuditConfig
    presets = {"niu2018": niu2018, "quick": quick, "demo": demo}
    argument = "strategies"
    schema = AUDIT
    files = (SHEET, TABLE_FILE, SUMMARY, "rows")
    num_rows_entry = NUM_EXAMPLES
    doing = "perturbing contexts and reading them"

    def prepare(self, config: AuditConfig, path: Path, reporter: Reporter) -> Prepared[AuditTask, Example]:
        config.require_device()
        report_left_out(config, reporter)
        located = replace(config, data_root=data_root(config.data_root))
        chosen, _ = chosen_examples(located, config.corpus, config.contexts.turns or _turns(config.model), reporter)
        shared = audit_resources(located, load_pairs(config.corpus, located.data_root).vocabulary)
        names = [strategy.name for strategy in build_and_run_once(located, shared, chosen[0])]
        if CONTROL in names:
            raise ConfigError("a strategy bears the name of the control", got=CONTROL, fix="give yours another name")
        # The signs of broken English need its tags, whatever the strategies need.
        shared.lexicon.tag(("word",))
        likelihood_model(located, shared)
        if config.entailment:
            entailment_model(located)
        return Prepared(AuditTask(located), {example.key: example for example in chosen}, {AUDITED: names})

    def measure(self, run: RunFolder, prepared: Prepared[AuditTask, Example]) -> Summary:
        return self.measured(run, prepared.task.config, prepared.facts[AUDITED])

    def measured(self, run: RunFolder, config: AuditConfig, strategies: Sequence[str]) -> Summary:
        """Return the metrics of a run, the labels that it keeps included; write its sheet.

        Args:
            run: opened for writing.
            config: of the audit.
            strategies: the names of those that its rows hold.
        """
        lines = _drawn(run, config, strategies)
        path = run.path / SHEET
        if not _has_labels(path, lines):
            _keep(path, sheet(lines.values()))
        rows = run.rows()
        labels = {name: sheet_labels.labels for name, sheet_labels in labels_of(run, lines).items()}
        drawn = Counter(line.strategy for line in lines.values())
        labelled = Counter(lines[key].strategy for key in set().union(*labels.values()))
        metrics = audit_metrics(rows, strategies, config.max_ratio)
        texts = {row["item_key"]: row["context"] for row in selected(rows, "item_key", "context")}
        contexts = {key: texts[line.context] for key, line in lines.items()}
        return Summary(
            f"audit of perturbations on {config.corpus}",
            f"{len(rows):,} {config.split} contexts, {len(strategies)} {'strategy' if len(strategies) == 1 else 'strategies'}, "
            f"seed {config.seed}.",
            {**label_metrics({key: line.strategy for key, line in lines.items()}, labels, contexts), **metrics},
            {
                NUM_EXAMPLES: len(rows),
                AUDITED: list(strategies),
                NUM_LINES: {name: {"drawn": drawn[name], "labelled": labelled[name]} for name in strategies},
                LABELLERS: {name: len(sheet_labels) for name, sheet_labels in labels.items()},
            },
        )

    def label(self, path: Path, sheets: Sequence[Path], reporter: Reporter) -> Result:
        """Read labelled sheets into a finished run; they replace earlier sheets of the same labellers.

        Args:
            path: the run's folder.
            sheets: the files, each of the labeller that it is named after.
            reporter: of the number of labels.

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
        names = Counter(sheet_path.stem for sheet_path in sheets)
        if twice := [name for name, times in names.items() if times > 1]:
            fix = "name each file after its labeller"
            raise DataError("two sheets bear the same name", where=", ".join(map(str, sheets)), got=twice[0], fix=fix)
        read = {sheet_path: read_sheet(sheet_path, lines) for sheet_path in sheets}
        if empty := [str(sheet_path) for sheet_path, sheet_labels in read.items() if not sheet_labels.labels]:
            fix = "write ok or wrong into the column label"
            raise DataError("the sheet has no label", where=empty[0], got=f"{len(lines):,} lines without one", fix=fix)
        contents = {sheet_path.stem: sheet_path.read_bytes() for sheet_path in sheets}
        with RunFolder.open(
            path, config, job=self.name, schema=self.schema, resume_safe=self.resume_safe, weights=before.weights
        ) as run:
            for sheet_path, sheet_labels in read.items():
                kept = path / LABELS_FOLDER / f"{sheet_path.stem}.csv"
                again = ", which replace those of before" if kept.exists() else ""
                reporter.say(f"{sheet_path.stem}: {len(sheet_labels.labels):,} of {len(lines):,} lines are labelled{again}")
                _keep(kept, contents[sheet_path.stem])
            self.conclude(run, config, self.measured(run, config, (before.summary() or {})[AUDITED]))
        return self.result(config, path)

    def models(self, config: AuditConfig) -> dict[str, str]:
        paraphraser = config.perturb.paraphraser or ""
        named = {"model": config.model, "lm": config.lm, "entailment": config.entailment_folder}
        return {**named, "perturb.paraphraser": paraphraser}

    def metrics_of(self, config: AuditConfig) -> list[str] | None:
        if any(".py:" in name for name in config.strategy_names):
            return None
        kinds = [kind for kind in KINDS if kind != WRONG and (kind != KEPT or config.entailment)]
        return [f"{kind}.{name}" for name in (*config.strategy_names, CONTROL) for kind in kinds]

    def flat(self, run: RunFolder) -> FlatRows:
        return each_of(AUDIT, "touched")

    def next_commands(self, config: AuditConfig, path: Path) -> tuple[str, ...]:
        label = ["parley", "perturb", "label", display_path(path), display_path(path / SHEET)]
        return (shlex.join(label), *super().next_commands(config, path))

    def tables(self, run: RunFolder) -> dict[str, EstimateTable]:
        likelihood = run.config["lm"] or TRIGRAMS
        metrics = run.metrics()
        return audit_tables(metrics, run.config["max_ratio"], likelihood) if metrics else {}

    def note(self, run: RunFolder) -> str:
        summary = run.summary() or {}
        if not summary.get(LABELLERS):
            return f"No line is labelled yet: write ok or wrong into the column label of {SHEET}, then parley perturb label."
        of_each = [f"{counts['labelled']:,} of {counts['drawn']:,} of {name}" for name, counts in summary[NUM_LINES].items()]
        by_each = [f"{name} {number:,}" for name, number in summary[LABELLERS].items()]
        return f"Lines with a label: {', '.join(of_each)}. Labellers: {', '.join(by_each)}."

    def present(self, result: Result, run: RunFolder) -> Result:
        tables = noted(self.tables(run), self.note(run))
        return replace(result, legend={name: describe_audit(name) for name in result.metrics}, tables=tables)


PERTURB_AUDIT = PerturbAudit()
