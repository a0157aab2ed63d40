"""Trainings of a generator beside their controls: `parley evaluate generation` (Li et al. 2017, table 3 and beyond).

Every training, every file of replies and every evaluation of one is a run of its own below the table's folder, and resumes by
itself; the table is what they say. Rows: the start by seven decoders, at several temperatures, and with one reply to everybody;
after REINFORCE and REGS; and after teacher forcing alone (as many updates, as many likelihood steps, or stopped by
likelihood), with a constant, shuffled or length reward, or a frozen discriminator. Trainings reply by the decoder that picked
their checkpoint, and sampled.

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
from parley.engine.core.runs.parts import OK
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.rows import selected
from parley.engine.core.stats.statistics import count
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs.checkpoints import require_checkpoint, require_word_model
from parley.engine.core.verbs.composite import Composite, Stage, one_after_another, run_stages
from parley.engine.core.verbs.job import TABLE_FILE, Reporter, Result, Summary, noted
from parley.engine.core.verbs.sharded import session
from parley.engine.generation.metrics.adversarial import CONSTANT, ERE, MATCHED, PER_FOLD, RANDOM, JudgedRows, source_name
from parley.engine.generation.metrics.tables import is_reliable, overlap
from parley.engine.generation.metrics.trained import (
    AT,
    DECODED,
    EMPTY,
    JUDGED,
    JUDGED_ITEMS,
    NATS,
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
from parley.engine.generation.verbs.config import (
    DECODERS,
    NO_LIMIT,
    TrainedTableConfig,
    helpdesk_table,
    li2017_table,
    require_decoders,
)
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
    fitted = _shared_settings(config) | {"vocabulary": config.vocabulary, "fit": config.fit}
    lengths: dict[str, Any] = {"min_reply": config.min_reply, "max_reply": config.longest}
    sizes = LanguageModelSizes(embed=config.sizes.embed, hidden=config.sizes.hidden, max_length=config.sizes.max_reply)
    again = fitted | {"seed": derive_seed(config.seed, JUDGE_LM)}
    planned: dict[str, Stage] = {}
    if not config.starts:
        planned[START] = TRAIN_SEQ2SEQ, TrainSeq2SeqConfig(sizes=config.sizes, **fitted, **lengths)
    is_asked_back = lacks_backward(config.discriminator_decoder) and bool(_discriminator_kinds(config))
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
        for prefixes in _discriminator_kinds(config):
            name, other_name = f"{DISCRIMINATOR}-{number}", f"{BEGINNINGS}-{number}"
            name, other_name = (other_name, name) if prefixes else (name, other_name)
            settings = TrainDiscriminatorConfig(
                generator=start,
                decoder=with_backward(config.discriminator_decoder, backward),
                # Both learn from the same replies, and the one that comes first decodes them.
                replies=display_path(path / other_name),
                prefixes=prefixes,
                min_reply=config.min_reply,
                sizes=config.discriminator_sizes,
                fit=config.discriminator_fit,
                **_shared_settings(config),
            )
            planned[name] = TRAIN_DISCRIMINATOR, settings
    return planned


def trainings(config: TrainedTableConfig, path: Path) -> dict[str, Stage]:
    """Return the trainings of all rows, those of the first seed first."""
    planned: dict[str, Stage] = {}
    begun = starts(config, path)
    for number in range(1, config.trainings + 1):
        start = (number - 1) % len(begun)
        for row in (row for row in TRAINED if row in config.row_names):
            settings = config.training(row, number)
            discriminator_name = f"{BEGINNINGS if settings['method'] == PARTIAL else DISCRIMINATOR}-{start + 1}"
            named: dict[str, Any] = {"start": begun[start], "discriminator": display_path(path / discriminator_name)}
            # Rows are compared by the judges of the table, and no state is left out.
            named |= {"num_final_adversaries": 0, "plain_loss": NO_LIMIT}
            planned[f"{row}-{number}"] = MINMAX_REPLIES, MinMaxRepliesConfig(**settings, **named)
    return planned


def measured(config: TrainedTableConfig, path: Path, system: System) -> dict[str, Stage]:
    """Return the stages of a system's replies and of their evaluation."""
    how: dict[str, Any] = {"seed": config.seed, "workers": config.workers, "data_root": config.data_root}
    how["address"] = config.address if config.workers else ""
    reply_config = ReplyConfig(
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
    return {system.replies: (REPLY, reply_config), system.judged: (EVALUATE_ADVERSARIAL, judged)}


def _shared_settings(config: TrainedTableConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in ("corpus", "limit", "data_root", "seed", "threads")}


def _discriminator_kinds(config: TrainedTableConfig) -> list[bool]:
    """Return the kinds of discriminators that the rows need: True for those fitted to beginnings of replies."""
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
    """Return names of rows in the order of the table, with the sampled row of each training."""
    decoded = [row for row in DECODED if row in rows]
    temperatures = sorted((row for row in rows if row.startswith(AT)), key=lambda row: float(row.removeprefix(AT)))
    return [*decoded, *temperatures, *(f"{row}{ending}" for row in TRAINED if row in rows for ending in ("", SAMPLED))]


def starts(config: TrainedTableConfig, path: Path) -> tuple[str, ...]:
    """Return the names of the generators that trainings start from."""
    return config.starts or (display_path(path / START),)


CONCLUDED, PLACED = "conclusions", "placements"
"""Entries of the summary: the conclusions, and the position of trainings to the temperature curve, in sentences."""
NUM_SHOWN = 20
"""Contexts whose replies are shown together."""
_JUDGED = "-judged"
"""The suffix of an evaluation's folder."""
SYSTEM = label_of(MACHINE_FILE)
"""The label of the row's replies in evaluations."""


class EvaluateGeneration(Composite[TrainedTableConfig, TrainedTableConfig, TrainedTableConfig]):
    """`parley evaluate generation`."""

    words = ("evaluate", "generation")
    run_name = "generation-table"
    config = TrainedTableConfig
    presets = {"helpdesk": helpdesk_table, "li2017": li2017_table}
    files = (TABLE_FILE, SUMMARY)
    item_metrics = JUDGED_ITEMS
    resume_safe = ("data_root", "save_every", "address", "rows", "num_trainings", "published", "workers", "trainers")

    def stages(self, config: TrainedTableConfig, path: Path) -> dict[str, Stage]:
        planned = models(config, path) | discriminators(config, path) | trainings(config, path)
        for system in systems(config, path, config.row_names):
            planned |= measured(config, path, system)
        return planned

    def finished(self, config: TrainedTableConfig, path: Path, weights: Mapping[str, str]) -> bool:
        """Return False: rows may be new under another `--rows`, and stages know themselves whether they are finished."""
        return False

    def prepare(self, config: TrainedTableConfig, path: Path, reporter: Reporter) -> TrainedTableConfig:
        begun = [require_word_model(name, "--start", "parley train seq2seq") for name in config.starts]
        for name, option, maker in ((config.lm, "--lm", "parley train lm"), (config.judge_lm, "--judge-lm", "parley train lm")):
            if name:
                require_checkpoint(name, option, maker)
        read = [config.sizes]
        if begun:
            from parley.policies.seq2seq.scoring import load_seq2seq

            read = [load_seq2seq(path).sizes for path in begun]
        config = replace(config, sizes=read[0])
        require_decoders(config)
        longest = max(sizes.max_reply for sizes in read) - 1
        if 0 < config.max_words < longest:
            # A training's replies are cut, and the start's would be longer.
            fix = f"leave it out, or start from generators with sizes.max_reply={config.max_words + 1}"
            got = f"{config.max_words}, a start says up to {longest} words"
            raise ConfigError("replies of a start may be longer than --max-words", got=got, fix=fix)
        lengths = {"min_reply": config.min_reply, "max_reply": config.longest}
        corpus = load_pairs(config.corpus, config.data_root, every_word=True)
        test_examples = examples(corpus, "test", config.sizes.turns, **lengths, unseen=True)
        num, folds = len({example.context for example in test_examples}), AdversarialConfig().folds
        if num < PER_FOLD * folds:
            what, fix = "too few different contexts in the test split for judges", f"{PER_FOLD * folds} are needed"
            raise DataError(what, where=f"{config.corpus}, replies of {config.min_reply} words or more", got=f"{num}", fix=fix)
        return config

    def work(self, run: RunFolder, prepared: TrainedTableConfig, reporter: Reporter) -> TrainedTableConfig:
        config, path = prepared, run.path

        def train(title: str, stages: Mapping[str, Stage], needs: Mapping[str, Sequence[str]]) -> None:
            run_stages(stages, path, reporter, needs=needs, most=config.trainers, address=config.address, title=title)

        first, judging, trained = (stages_of(config, path) for stages_of in (models, discriminators, trainings))
        planned = list(systems(config, path, config.row_names))
        train("models", first, {})
        # Trainings take hours, and begin with what is seen here.
        self._answer(config, path, [system for system in planned if not system.is_trained], reporter)
        numbers = range(1, len(starts(config, path)) + 1)
        pairs = [[name for name in judging if name.endswith(f"-{number}")] for number in numbers]
        train("discriminators", judging, one_after_another(pairs))
        train("trainings", trained, {})
        self._answer(config, path, [system for system in planned if system.is_trained], reporter)
        reporter.stage("computing metrics and their intervals", 0, "")
        return config

    def _answer(self, config: TrainedTableConfig, path: Path, planned: Sequence[System], reporter: Reporter) -> None:
        """Run the replies and evaluations of systems."""
        with session(config.workers, config.address) if config.workers else nullcontext():
            for system in planned:
                reporter.say(f"row {system.row}, {system.number}")
                try:
                    run_stages(measured(config, path, system), path, reporter)
                    share = commonest_share(path / system.replies / MACHINE_FILE)
                    if share > config.watch.max_commonest:
                        reporter.say(f"row {system.row}, {system.number}: one reply to {share:.0%} of contexts; {system.model}")
                except DataError as error:
                    # A generator that has collapsed may say nothing to most contexts, which judges cannot be fitted to.
                    reporter.say(f"{system.row} is left out: {error.what}, {error.got}")

    def measure(self, run: RunFolder, config: TrainedTableConfig) -> Summary:
        from parley.policies.seq2seq.scoring import WordScores, load_language_model, load_seq2seq

        path = run.path
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
            replies = reader.read(path / system.replies / MACHINE_FILE)
            figures = reply_figures(replies, people, config.seed)
            figures[EMPTY] = RunFolder.load(path / system.replies).metrics()[EMPTY]
            trained = path / f"{system.row.removesuffix(SAMPLED)}-{system.number}"
            if (trained / SUMMARY).is_file():
                of_training = RunFolder.load(trained).metrics()
                figures |= {NATS: of_training[NATS], ROUND: count(of_training[PICKED].value, 1)}
            judged_metrics = RunFolder.load(path / system.judged).metrics()
            names = {judge: f"{ERE}.{judge}" for judge in (*judges, CONSTANT)}
            errors = {judge: judged_metrics[name] for judge, name in names.items() if name in judged_metrics}
            begun = (system.number - 1) % len(starts(config, path)) + 1
            answered = AnsweredRow(judged_shares(path, system, judges), figures, errors, system.number, begun)
            rows.setdefault(system.row, []).append(answered)
        recorded = reply_figures(people, people, config.seed)
        recorded[OVERLAP] = count(overlap(people.vectors_NE[::2], people.vectors_NE[1::2], config.seed), len(people.words))
        metrics = table_metrics(rows, judges, recorded)
        learning, num = config.learning, config.trainings
        absent = [system for system in systems(config, path, config.row_names) if system not in done]
        lost = [f"{row_title(system.row)}, {system.number}" for system in absent]
        left_out = f"Left out, because judges cannot be fitted to what they say: {'; '.join(lost)}." if lost else ""
        how = f"{learning.rounds:,} rounds of {learning.examples_per_step} examples a step, {num} trained a row"
        return Summary(
            f"trainings of {config.start or 'a small generator'} beside their controls",
            " ".join(
                filter(None, [f"{len(people.words):,} test replies of {config.corpus}; {how}, seed {config.seed}.", left_out])
            ),
            metrics,
            {CONCLUDED: conclusions(metrics, judges[0], _unreliable(done, path, judges[0])), PLACED: placements(metrics)},
        )

    def item_rows(self, run: RunFolder) -> Iterator[Sequence[Mapping[str, Any]]]:
        """Yield a row for each training and source: the judged shares of all systems of that training."""
        config = from_dict(TrainedTableConfig, run.config)
        sources: dict[tuple[int, str], dict[str, float]] = {}
        for system in measured_systems(config, run.path):
            for (kind, judge), shares in judged_shares(run.path, system, list(labels_of(config.judge_names).values())).items():
                for source, share in shares.items():
                    sources.setdefault((system.number, source), {})[f"{system.row}.{kind}-{judge}"] = share
        yield [
            {"item_key": source, "status": OK, "training": number, "shares": shares}
            for (number, source), shares in sources.items()
        ]

    def tables(self, run: RunFolder) -> dict[str, EstimateTable]:
        config = from_dict(TrainedTableConfig, run.config)
        return trained_tables(run.metrics(), list(labels_of(config.judge_names).values()), config.published == "li2017")

    def note(self, run: RunFolder) -> str:
        summary = run.summary() or {}
        return " ".join((*summary.get(CONCLUDED, ()), *summary.get(PLACED, ())))

    def present(self, result: Result, run: RunFolder) -> Result:
        legend = {name: describe(name) for name in result.metrics}
        return replace(result, legend=legend, tables=noted(self.tables(run), self.note(run)))

    def metrics_of(self, config: TrainedTableConfig) -> None:
        """Return None: rows that were measured before stay."""


class _ReplyReader:
    """Reads replies by a language model, in the words of the start.

    Args:
        scores: of the language model.
        vocabulary: what is not in it is unknown to people too.
    """

    def __init__(self, scores: WordScores, vocabulary: PairVocabulary) -> None:
        self._scores, self._vocabulary = scores, vocabulary

    def read(self, path: Path) -> ReadReplies:
        """Return the replies of a file, scored by the language model."""
        pairs = read_replied(path, normalise=False)
        words = [self._vocabulary.decode(self._vocabulary.encode(list(pair.reply)).tolist()) for pair in pairs]
        nats = [-scores.sum() for scores in self._scores.log_probabilities(words)]
        return ReadReplies(words, np.array(nats), list(map(source_name, pairs)), self._scores.vectors(words))


def measured_systems(config: TrainedTableConfig, path: Path) -> list[System]:
    """Return the measured systems of all rows, without those that were left out."""
    named = [folder.name.removesuffix(_JUDGED).rpartition("-")[0] for folder in path.glob(f"*{_JUDGED}")]
    measurable = systems(config, path, {row.removesuffix(SAMPLED) for row in named})
    return [
        system for system in measurable if all((path / name / SUMMARY).is_file() for name in (system.replies, system.judged))
    ]


def judged_shares(path: Path, system: System, judges: Sequence[str]) -> dict[tuple[str, str], dict[str, float]]:
    """Return the shares of a system by figure, judge and source; a reply without a word counts as recognised."""
    scored = JudgedRows(RunFolder.load(path / system.judged).rows()).scored
    files = (path / system.replies / name for name in (HUMAN_FILE, MACHINE_FILE))
    recorded, answered = ({source_name(pair) for pair in read_replied(file)} for file in files)
    silent = sorted(recorded - answered)
    shares_of = {}
    for kind in JUDGED:
        for judge in judges:
            if (judged := scored.get((f"{kind}.{SYSTEM}", judge))) is not None:
                # Matched lengths leave no counterpart for a reply without a word.
                shares = (judged if kind == MATCHED else judged.with_judged_right(silent)).by_source
                # Random replies count what is right, others what is wrong.
                shares_of[kind, judge] = {name: 1 - share if kind == RANDOM else share for name, share in shares.items()}
    return shares_of


def commonest_share(file: Path) -> float:
    """Return the share of the commonest reply of a file."""
    replies = [pair.reply for pair in read_replied(file, normalise=False)]
    return max(Counter(replies).values()) / len(replies)


def replies_side_by_side(path: Path) -> list[dict[str, Any]]:
    """Return the replies of the table's rows to some contexts: of each its turns, and replies by row, people's first.

    Args:
        path: the folder of the table; of several trainings the first one is read.
    """
    contexts: dict[str, dict[str, Any]] = {}
    ending = "-1-replies"
    there = {folder.name.removesuffix(ending) for folder in path.glob(f"*{ending}") if (folder / SUMMARY).is_file()}
    for row in [row for row in in_order(there) if (path / f"{row}{ending}").is_dir()]:
        rows = selected(RunFolder.load(path / f"{row}{ending}").rows(), "item_key", "context", "truth", "reply")
        for reply_row in sorted(rows, key=lambda reply_row: str(reply_row["item_key"])):
            turns = [turn.strip() for turn in reply_row["context"].split(EOT)]
            entry = {"context": turns, "replies": {PEOPLE: reply_row["truth"]}}
            if reply_row["item_key"] in contexts or len(contexts) < NUM_SHOWN:
                contexts.setdefault(reply_row["item_key"], entry)["replies"][row] = reply_row["reply"]
    return list(contexts.values())


def _unreliable(done: Sequence[System], path: Path, judge: str) -> set[str]:
    """Return the rows in some evaluation of which a judge was no better than a constant."""
    return {system.row for system in done if not is_reliable(RunFolder.load(path / system.judged).metrics(), judge)}


EVALUATE_GENERATION = EvaluateGeneration()
