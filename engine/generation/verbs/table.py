"""Trainings of a generator beside their controls: `parley evaluate generation` (Li et al. 2017, table 3 and beyond).

Every training, every file of replies and every evaluation of one is a run of its own below the table's folder, and resumes by
itself; the table is what they say. Rows: the start by seven decoders, at several temperatures, and with one reply to everybody;
after REINFORCE and REGS; and after as many steps of teacher forcing alone, with a constant, shuffled or length reward, or a
frozen discriminator. Trainings reply by the decoder that picked their checkpoint, and sampled.

The stages are the models that are trained first, the trainings of rows, the replies of rows, and their evaluations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import count
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs.checkpoints import require_checkpoint, require_word_model
from parley.engine.core.verbs.composite import Composite, Stage, run_stages
from parley.engine.core.verbs.job import TABLE_FILE, Reporter, Result, Summary, noted
from parley.engine.core.verbs.repeated import run_beside
from parley.engine.core.verbs.sharded import session
from parley.engine.generation.metrics.adversarial import CONSTANT, ERE, MATCHED, PER_FOLD, RANDOM, JudgedRows, source_name
from parley.engine.generation.metrics.tables import is_reliable, overlap
from parley.engine.generation.metrics.trained import (
    AT,
    DECODED,
    EMPTY,
    JUDGED,
    OVERLAP,
    PEOPLE,
    PICKED,
    ROUND,
    SAMPLED,
    TRAINED,
    AnsweredRow,
    ReadReplies,
    conclusions,
    describe,
    placements,
    reply_figures,
    row_title,
    table_metrics,
    trained_tables,
)
from parley.engine.generation.verbs.adversarial import EVALUATE_ADVERSARIAL
from parley.engine.generation.verbs.adversarial_config import AdversarialConfig, label_of, labels_of
from parley.engine.generation.verbs.config import DECODERS, TrainedTableConfig, helpdesk_table, li2017_table, require_decoders
from parley.engine.generation.verbs.discriminator import TRAIN_DISCRIMINATOR, TrainDiscriminatorConfig
from parley.engine.generation.verbs.minmax import MINMAX_REPLIES, MinMaxRepliesConfig
from parley.engine.responders.reply import HUMAN_FILE, MACHINE_FILE, NEXT_FILE, REPLY, ReplyConfig
from parley.engine.responders.seq2seq import TRAIN_LM, TRAIN_SEQ2SEQ, TrainLMConfig, TrainSeq2SeqConfig
from parley.envs.core.config import from_dict
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.core.seeds import derive_seed
from parley.envs.core.storage.copies import fetched_model
from parley.envs.core.storage.uris import display_path
from parley.envs.corpora.pairs.compiled import load_pairs, read_replied
from parley.envs.corpora.pairs.contexts import examples
from parley.envs.corpora.pairs.turns import EOT
from parley.policies.core.responder import DecoderSettings, lacks_backward, with_backward
from parley.policies.seq2seq.settings import LanguageModelSizes

if TYPE_CHECKING:
    from parley.envs.corpora.pairs.vocabulary import PairVocabulary
    from parley.policies.seq2seq.scoring import WordScores


START, BACKWARD, LM, JUDGE_LM, DISCRIMINATOR, BEGINNINGS = "start", "backward", "lm", "judge-lm", "discriminator", "beginnings"
"""Folders of models that are trained first."""
FILES = {"human": HUMAN_FILE, "machine": MACHINE_FILE, "next_utterances": NEXT_FILE}
PARTIAL = "regs-partial"


class System(NamedTuple):
    """A row's system that replies.

    Args:
        row: of the table.
        number: of the training or of the start, from 1.
        model: its name.
        decoder: how it replies.
    """

    row: str
    number: int
    model: str
    decoder: str

    @property
    def is_trained(self) -> bool:
        """Return whether it is the outcome of a row's training, and not a start."""
        return self.row.removesuffix(SAMPLED) in TRAINED

    @property
    def replies(self) -> str:
        """The folder of its replies."""
        return f"{self.row}-{self.number}-replies"

    @property
    def judged(self) -> str:
        """The folder of their evaluation."""
        return f"{self.row}-{self.number}-judged"


def models(config: TrainedTableConfig, path: Path) -> dict[str, Stage]:
    """Return the models that are trained first where no run is named; none of them needs another."""
    fitted = _known(config) | {"vocabulary": config.vocabulary, "fit": config.fit}
    lengths: dict[str, Any] = {"min_reply": config.min_reply, "max_reply": config.longest}
    sizes = LanguageModelSizes(embed=config.sizes.embed, hidden=config.sizes.hidden, max_length=config.sizes.max_reply)
    again = fitted | {"seed": derive_seed(config.seed, JUDGE_LM)}
    planned: dict[str, Stage] = {}
    if not config.starts:
        planned[START] = TRAIN_SEQ2SEQ, TrainSeq2SeqConfig(sizes=config.sizes, **fitted, **lengths)
    is_asked_back = lacks_backward(config.discriminator_decoder) and bool(_told_kinds(config))
    if ("mmi" in config.row_names or is_asked_back) and not config.backward:
        planned[BACKWARD] = TRAIN_SEQ2SEQ, TrainSeq2SeqConfig(sizes=config.sizes, backward=True, **fitted, **lengths)
    if "mmi-antilm" in config.row_names and not config.lm:
        planned[LM] = TRAIN_LM, TrainLMConfig(sizes=sizes, **fitted)
    if not config.judge_lm:
        planned[JUDGE_LM] = TRAIN_LM, TrainLMConfig(sizes=sizes, **again)
    return planned


def discriminators(config: TrainedTableConfig, path: Path) -> dict[str, Stage]:
    """Return the discriminators with which trainings begin; those of a start have its number."""
    planned: dict[str, Stage] = {}
    backward = config.backward or display_path(path / BACKWARD)
    for number, start in enumerate(starts(config, path), start=1):
        for prefixes in _told_kinds(config):
            own, other = f"{DISCRIMINATOR}-{number}", f"{BEGINNINGS}-{number}"
            own, other = (other, own) if prefixes else (own, other)
            told = TrainDiscriminatorConfig(
                generator=start,
                decoder=with_backward(config.discriminator_decoder, backward),
                # Both learn from the same replies, and the one that comes first decodes them.
                replies=display_path(path / other),
                prefixes=prefixes,
                min_reply=config.min_reply,
                sizes=config.discriminator_sizes,
                fit=config.discriminator_fit,
                **_known(config),
            )
            planned[own] = TRAIN_DISCRIMINATOR, told
    return planned


def trainings(config: TrainedTableConfig, path: Path) -> dict[str, Stage]:
    """The trainings of all rows, those of the first seed first."""
    planned: dict[str, Stage] = {}
    begun = starts(config, path)
    for number in range(1, config.trainings + 1):
        start = (number - 1) % len(begun)
        for row in (row for row in TRAINED if row in config.row_names):
            settings = config.training(row, number)
            told = f"{BEGINNINGS if settings['method'] == PARTIAL else DISCRIMINATOR}-{start + 1}"
            named: dict[str, Any] = {"start": begun[start], "discriminator": display_path(path / told)}
            planned[f"{row}-{number}"] = MINMAX_REPLIES, MinMaxRepliesConfig(**settings, **named)
    return planned


def measured(config: TrainedTableConfig, path: Path, system: System) -> dict[str, Stage]:
    """Replies of a system, and their evaluation."""
    how: dict[str, Any] = {"seed": config.seed, "workers": config.workers, "data_root": config.data_root}
    how["address"] = config.address if config.workers else ""
    asked = ReplyConfig(
        model=system.model,
        decoder=system.decoder,
        corpus=config.corpus,
        limit=config.contexts,
        min_reply=config.min_reply,
        max_reply=config.longest,
        # One seed for all: it chooses the contexts, too, and trainings are compared in the same ones.
        **how,
    )
    files: dict[str, Any] = {side: display_path(path / system.replies / name) for side, name in FILES.items()}
    judged = AdversarialConfig(judges=config.judges, published="none", **files, **how)
    return {system.replies: (REPLY, asked), system.judged: (EVALUATE_ADVERSARIAL, judged)}


def _known(config: TrainedTableConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in ("corpus", "limit", "data_root", "seed", "threads")}


def _told_kinds(config: TrainedTableConfig) -> list[bool]:
    """Return whether discriminators are fitted to beginnings of replies: of those that the rows need."""
    return sorted({str(config.training(row, 1)["method"]) == PARTIAL for row in config.row_names if row in TRAINED})


def systems(config: TrainedTableConfig, path: Path, rows: Collection[str]) -> Iterator[System]:
    """Return the systems of some rows, in the order of the table."""
    backward, lm = (getattr(config, name) or display_path(path / name) for name in (BACKWARD, LM))
    decoders = {**DECODERS, "mmi": f"mmi:backward={backward}", "mmi-antilm": f"mmi-antilm:lm={lm}"}
    draws = DecoderSettings.parse(config.decoder).draws
    for row in in_order(rows):
        trained = row.removesuffix(SAMPLED)
        if trained not in TRAINED:
            decoder = f"sample:{row.removeprefix(AT)}" if row.startswith(AT) else decoders[row]
            yield from (System(row, number, start, decoder) for number, start in enumerate(starts(config, path), start=1))
        elif trained == row or not draws:
            for number in range(1, config.trainings + 1):
                decoder = config.decoder if trained == row else "sample"
                yield System(row, number, display_path(path / f"{trained}-{number}"), decoder)


def in_order(rows: Collection[str]) -> list[str]:
    """Names of rows in the order of the table; of a training also the row whose replies are drawn."""
    decoded = [row for row in DECODED if row in rows]
    temperatures = sorted((row for row in rows if row.startswith(AT)), key=lambda row: float(row.removeprefix(AT)))
    return [*decoded, *temperatures, *(f"{row}{ending}" for row in TRAINED if row in rows for ending in ("", SAMPLED))]


def starts(config: TrainedTableConfig, path: Path) -> tuple[str, ...]:
    """Names of the generators that trainings start from."""
    return config.starts or (display_path(path / START),)


CONCLUDED, PLACED = "conclusions", "placements"
"""Entries of the summary: what the table comes to, and where trainings lie beside the temperature curve, in sentences."""
NUM_SHOWN = 20
"""Contexts whose replies stand side by side."""
_JUDGED = "-judged"
"""Ends the name of the folder of an evaluation."""
SYSTEM = label_of(MACHINE_FILE)
"""What evaluations call the row's replies."""


class EvaluateGeneration(Composite[TrainedTableConfig, TrainedTableConfig, TrainedTableConfig]):
    """`parley evaluate generation`."""

    words = ("evaluate", "generation")
    run_name = "generation-table"
    config = TrainedTableConfig
    presets = {"helpdesk": helpdesk_table, "li2017": li2017_table}
    files = (TABLE_FILE, SUMMARY)
    resume_safe = ("data_root", "save_every", "address", "rows", "num_trainings", "published", "workers", "trainers")

    def stages(self, config: TrainedTableConfig, path: Path) -> dict[str, Stage]:
        """Return the models that are trained first, then the trainings, then replies and their evaluations."""
        planned = models(config, path) | discriminators(config, path) | trainings(config, path)
        for system in systems(config, path, config.row_names):
            planned |= measured(config, path, system)
        return planned

    def finished(self, config: TrainedTableConfig, path: Path, weights: Mapping[str, str]) -> bool:
        """Rows that were measured under another `--rows` may have joined: the stages say themselves what is finished."""
        return False

    def prepare(self, config: TrainedTableConfig, path: Path, reporter: Reporter) -> TrainedTableConfig:
        """Checks what is named, and takes the sizes of what is trained beside from the first start."""
        from parley.policies.seq2seq.scoring import load_seq2seq

        begun = [require_word_model(name, "--start", "parley train seq2seq") for name in config.starts]
        for name, option, maker in (
            (config.lm, "--lm", "parley train lm"),
            (config.judge_lm, "--judge-lm", "parley train lm"),
        ):
            if name:
                require_checkpoint(name, option, maker)
        read = [load_seq2seq(path).sizes for path in begun] or [config.sizes]
        config = replace(config, sizes=read[0])
        require_decoders(config)
        longest = max(sizes.max_reply for sizes in read) - 1
        if 0 < config.max_words < longest:
            # What a training says is cut, and what the start says would be longer than all of it.
            fix = f"leave it out, or start from generators with sizes.max_reply={config.max_words + 1}"
            got = f"{config.max_words}, a start says up to {longest} words"
            raise ConfigError("replies of a start may be longer than --max-words", got=got, fix=fix)
        lengths = {"min_reply": config.min_reply, "max_reply": config.longest}
        corpus = load_pairs(config.corpus, config.data_root, every_word=True)
        asked = examples(corpus, "test", config.sizes.turns, **lengths, unseen=True)
        num, folds = len({each.context for each in asked}), AdversarialConfig().folds
        if num < PER_FOLD * folds:
            what, fix = "too few different contexts in the test split for judges", f"{PER_FOLD * folds} are needed"
            raise DataError(what, where=f"{config.corpus}, replies of {config.min_reply} words or more", got=f"{num}", fix=fix)
        return config

    def work(self, run: RunFolder, prepared: TrainedTableConfig, reporter: Reporter) -> TrainedTableConfig:
        """Does what is left of the stages: rows of the starts, then trainings, side by side where there are trainers."""
        config, path = prepared, run.path

        def train(title: str, stages: Mapping[str, Stage], chains: Sequence[Sequence[str]]) -> None:
            run_beside(stages, chains, path, config.trainers, reporter, title, config.address)

        first, told, trained = (each(config, path) for each in (models, discriminators, trainings))
        asked = list(systems(config, path, config.row_names))
        train("models", first, [[name] for name in first])
        # Trainings take hours, and begin with what is seen here.
        self._answer(config, path, [system for system in asked if not system.is_trained], reporter)
        pairs = [[name for name in told if name.endswith(f"-{number}")] for number in range(1, len(starts(config, path)) + 1)]
        train("discriminators", told, pairs)
        train("trainings", trained, [[name] for name in trained])
        self._answer(config, path, [system for system in asked if system.is_trained], reporter)
        reporter.stage("computing metrics and their intervals", 0, "")
        return config

    def _answer(self, config: TrainedTableConfig, path: Path, asked: Sequence[System], reporter: Reporter) -> None:
        """Replies of some systems, and what judges say of them."""
        with session(config.workers, config.address) if config.workers else nullcontext():
            for system in asked:
                reporter.say(f"row {system.row}, {system.number}")
                try:
                    run_stages(measured(config, path, system), path, reporter)
                    share = commonest_share(path / system.replies / MACHINE_FILE)
                    if share > config.watch.max_commonest:
                        reporter.say(f"row {system.row}, {system.number}: one reply to {share:.0%} of contexts; {system.model}")
                except DataError as error:
                    # A generator that has collapsed may say nothing to most contexts, which judges cannot be fitted to.
                    reporter.say(f"{system.row} is left out: {error.what}, {error.got}")

    def measure(self, run: RunFolder, found: TrainedTableConfig) -> Summary:
        """The figures of every row that is finished, whichever `--rows` it was measured under."""
        from parley.policies.seq2seq.scoring import WordScores, load_language_model, load_seq2seq

        config, path = found, run.path
        done = measured_systems(config, path)
        if not done:
            fix = "train the starts longer, or name others with --start"
            raise DataError(
                "every row is left out", where=display_path(path), got="nothing that judges can be fitted to", fix=fix
            )
        model = fetched_model(config.judge_lm or display_path(path / JUDGE_LM))
        start = load_seq2seq(fetched_model(starts(config, path)[0]))
        reader = _ReplyReader(WordScores(load_language_model(model)), start.vocabulary)
        people = reader.read(path / done[0].replies / HUMAN_FILE)
        judges = list(labels_of(config.judge_names).values())
        rows: dict[str, list[AnsweredRow]] = {}
        for system in done:
            said = reader.read(path / system.replies / MACHINE_FILE)
            figures = reply_figures(said, people, config.seed)
            figures[EMPTY] = RunFolder.load(path / system.replies).metrics()[EMPTY]
            trained = path / f"{system.row.removesuffix(SAMPLED)}-{system.number}"
            if (trained / SUMMARY).is_file():
                figures[ROUND] = count(RunFolder.load(trained).metrics()[PICKED].value, 1)
            told = RunFolder.load(path / system.judged).metrics()
            errors = {judge: told[name] for judge in (*judges, CONSTANT) if (name := f"{ERE}.{judge}") in told}
            begun = (system.number - 1) % len(starts(config, path)) + 1
            answered = AnsweredRow(judged_shares(path, system, judges), figures, errors, system.number, begun)
            rows.setdefault(system.row, []).append(answered)
        recorded = reply_figures(people, people, config.seed)
        recorded[OVERLAP] = count(overlap(people.vectors_NE[::2], people.vectors_NE[1::2], config.seed), len(people.words))
        metrics = table_metrics(rows, judges, recorded)
        learning, num = config.learning, config.trainings
        lost = [f"{row_title(each.row)}, {each.number}" for each in systems(config, path, config.row_names) if each not in done]
        left_out = f"Left out, because judges cannot be fitted to what they say: {'; '.join(lost)}." if lost else ""
        how = f"{learning.rounds:,} rounds of {learning.examples_per_step} examples a step, {num} trained a row"
        return Summary(
            f"trainings of {config.start or 'a small generator'} beside their controls",
            " ".join(
                filter(None, [f"{len(people.words):,} test replies of {config.corpus}; {how}, seed {config.seed}.", left_out])
            ),
            metrics,
            {
                CONCLUDED: conclusions(metrics, judges[0], _unreliable(done, path, judges[0])),
                PLACED: placements(metrics),
            },
        )

    def tables(self, run: RunFolder) -> dict[str, EstimateTable]:
        config = from_dict(TrainedTableConfig, run.config)
        return trained_tables(run.metrics(), list(labels_of(config.judge_names).values()), config.published == "li2017")

    def note(self, run: RunFolder) -> str:
        """Return the conclusion of the tables."""
        summary = run.summary() or {}
        return " ".join((*summary.get(CONCLUDED, ()), *summary.get(PLACED, ())))

    def present(self, result: Result, run: RunFolder) -> Result:
        """With what the metrics mean, and the tables in their place."""
        legend = {name: describe(name) for name in result.metrics}
        return replace(result, legend=legend, tables=noted(self.tables(run), self.note(run)))

    def metrics_of(self, config: TrainedTableConfig) -> None:
        """Rows that were measured before stay."""


class _ReplyReader:
    """Reads replies by a language model, in the words of the start.

    Args:
        scores: of the language model.
        vocabulary: what is not in it is unknown to people too.
    """

    def __init__(self, scores: WordScores, vocabulary: PairVocabulary) -> None:
        self._scores, self._vocabulary = scores, vocabulary

    def read(self, path: Path) -> ReadReplies:
        """The replies of a file."""
        said = [pair.reply for pair in read_replied(path, normalise=False)]
        words = [self._vocabulary.decode(self._vocabulary.encode(list(reply)).tolist()) for reply in said]
        nats = [-each.sum() for each in self._scores.log_probabilities(words)]
        return ReadReplies(words, np.array(nats), self._scores.vectors(words))


def measured_systems(config: TrainedTableConfig, path: Path) -> list[System]:
    """The systems of all rows that were measured, whichever of them was left out."""
    named = [folder.name.removesuffix(_JUDGED).rpartition("-")[0] for folder in path.glob(f"*{_JUDGED}")]
    found = systems(config, path, {row.removesuffix(SAMPLED) for row in named})
    return [each for each in found if all((path / name / SUMMARY).is_file() for name in (each.replies, each.judged))]


def judged_shares(path: Path, system: System, judges: Sequence[str]) -> dict[tuple[str, str], dict[str, float]]:
    """Return the judged shares of a system by figure and judge, for each source; a reply without a word counts as told."""
    scored = JudgedRows(RunFolder.load(path / system.judged).read_rows().to_pylist()).scored
    files = (path / system.replies / name for name in (HUMAN_FILE, MACHINE_FILE))
    recorded, said = ({source_name(each) for each in read_replied(file)} for file in files)
    silent = sorted(recorded - said)
    found = {}
    for kind in JUDGED:
        for judge in judges:
            if (judged := scored.get((f"{kind}.{SYSTEM}", judge))) is not None:
                # Where lengths are matched nothing stands beside no word.
                shares = (judged if kind == MATCHED else judged.with_told(silent)).by_source
                # Of random replies it is told what is right, of others what is wrong.
                found[kind, judge] = {name: 1 - share if kind == RANDOM else share for name, share in shares.items()}
    return found


def commonest_share(file: Path) -> float:
    """Return the share of the commonest reply of a file."""
    said = [pair.reply for pair in read_replied(file, normalise=False)]
    return max(Counter(said).values()) / len(said)


def replies_side_by_side(path: Path) -> list[dict[str, Any]]:
    """Return the replies of the table's rows to some contexts: of each its turns, and replies by row, people's first.

    Args:
        path: the folder of the table; of several trainings the first one is read.
    """
    found: dict[str, dict[str, Any]] = {}
    ending = "-1-replies"
    there = {folder.name.removesuffix(ending) for folder in path.glob(f"*{ending}") if (folder / SUMMARY).is_file()}
    for row in [row for row in in_order(there) if (path / f"{row}{ending}").is_dir()]:
        rows = RunFolder.load(path / f"{row}{ending}").read_rows().select(["item_key", "context", "truth", "reply"]).to_pylist()
        for each in sorted(rows, key=lambda each: str(each["item_key"])):
            known = {"context": [turn.strip() for turn in each["context"].split(EOT)], "replies": {PEOPLE: each["truth"]}}
            if each["item_key"] in found or len(found) < NUM_SHOWN:
                found.setdefault(each["item_key"], known)["replies"][row] = each["reply"]
    return list(found.values())


def _unreliable(done: Sequence[System], path: Path, judge: str) -> set[str]:
    """Rows in one evaluation of which a judge was no better than a constant."""
    return {each.row for each in done if not is_reliable(RunFolder.load(path / each.judged).metrics(), judge)}


EVALUATE_GENERATION = EvaluateGeneration()
