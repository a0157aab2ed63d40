"""Trainings of a generator beside their controls: `parley evaluate generation` (Li et al. 2017, table 3 and beyond).

Every training, every file of replies and every evaluation of one is a run of its own below the table's folder, and resumes by
itself. `recipes/evaluate_generation.yaml` says which they are; this module says what each row needs, and measures the table.
Rows: the start by seven decoders, at several temperatures, and with one reply to everybody;
after REINFORCE and REGS; and after teacher forcing alone (as many updates, as many likelihood steps, or stopped by
likelihood), with a constant, shuffled or length reward, or a frozen discriminator. Trainings reply by the decoder that picked
their checkpoint, and sampled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import is_dataclass, replace
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
from parley.engine.core.verbs.job import Reporter, Result, Summary, noted
from parley.engine.core.verbs.recipe_job import FAILED, PlannedRecipe, SettingsRecipe
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
from parley.engine.responders.reply import HUMAN_FILE, MACHINE_FILE, REPLY
from parley.envs.core.config import from_dict, to_dict
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
    def name(self) -> str:
        """The beginning of the names of its folders."""
        return f"{self.row}-{self.number}"

    @property
    def replies(self) -> str:
        """The folder of its replies."""
        return f"{self.name}-replies"

    @property
    def judged(self) -> str:
        """The folder of their evaluation."""
        return f"{self.name}-judged"


def _run(stage: str) -> str:
    """Return the run folder of a stage, as the recipe names it."""
    return f"${{{stage}.run}}"


def starts(config: TrainedTableConfig) -> tuple[str, ...]:
    """Return the names of the generators that trainings start from."""
    return config.starts or (_run(START),)


def discriminators(config: TrainedTableConfig, path: Path) -> Iterator[dict[str, Any]]:
    """Yield the discriminators with which trainings begin; those of a start have its number."""
    kinds = _discriminator_kinds(config)
    for number, start in enumerate(starts(config), start=1):
        for prefixes in kinds:
            name, other = f"{DISCRIMINATOR}-{number}", f"{BEGINNINGS}-{number}"
            name, other = (other, name) if prefixes else (name, other)
            # Both learn from the same replies. The first of them decodes these, and the second waits for it.
            replies = _run(other) if prefixes and len(kinds) > 1 else display_path(path / other)
            yield {"discriminator": name, "start": start, "prefixes": prefixes, "replies": replies}


def trainings(config: TrainedTableConfig) -> Iterator[dict[str, Any]]:
    """Yield the trainings of all rows, those of the first seed first."""
    begun = starts(config)
    for number in range(1, config.trainings + 1):
        start = (number - 1) % len(begun)
        for row in (row for row in TRAINED if row in config.row_names):
            settings = {
                key: to_dict(value) if is_dataclass(value) else value for key, value in config.training(row, number).items()
            }
            discriminator = f"{BEGINNINGS if settings['method'] == PARTIAL else DISCRIMINATOR}-{start + 1}"
            settings |= {"start": begun[start], "discriminator": _run(discriminator)}
            # Rows are compared by the judges of the table, and no state is left out.
            settings |= {"num_final_adversaries": 0, "plain_loss": NO_LIMIT}
            yield {"training": f"{row}-{number}", "settings": settings}


def _discriminator_kinds(config: TrainedTableConfig) -> list[bool]:
    return sorted({str(config.training(row, 1)["method"]) == PARTIAL for row in config.row_names if row in TRAINED})


def systems(config: TrainedTableConfig, rows: Collection[str]) -> Iterator[System]:
    """Yield the systems of some rows, in the order of the table."""
    backward, lm = (getattr(config, name) or _run(name) for name in (BACKWARD, LM))
    decoders = {**DECODERS, "mmi": f"mmi:backward={backward}", "mmi-antilm": f"mmi-antilm:lm={lm}"}
    draws = DecoderSettings.parse(config.decoder).draws
    for row in in_order(rows):
        trained = row.removesuffix(SAMPLED)
        if trained not in TRAINED:
            decoder = f"sample:{row.removeprefix(AT)}" if row.startswith(AT) else decoders[row]
            yield from (System(row, number, start, decoder) for number, start in enumerate(starts(config), start=1))
        elif trained == row or not draws:
            for number in range(1, config.trainings + 1):
                decoder = config.decoder if trained == row else "sample"
                yield System(row, number, _run(f"{trained}-{number}"), decoder)


def in_order(rows: Collection[str]) -> list[str]:
    """Return names of rows in the order of the table, with the sampled row of each training."""
    decoded = [row for row in DECODED if row in rows]
    temperatures = sorted((row for row in rows if row.startswith(AT)), key=lambda row: float(row.removeprefix(AT)))
    return [*decoded, *temperatures, *(f"{row}{ending}" for row in TRAINED if row in rows for ending in ("", SAMPLED))]


CONCLUDED, PLACED = "conclusions", "placements"
"""Entries of the summary: the conclusions, and the position of trainings to the temperature curve, in sentences."""
NUM_SHOWN = 20
"""Contexts whose replies are shown together."""
_JUDGED = "-judged"
"""The suffix of an evaluation's folder."""
SYSTEM = label_of(MACHINE_FILE)
"""The label of the row's replies in evaluations."""


class EvaluateGeneration(SettingsRecipe):
    """`parley evaluate generation`."""

    item_metrics = JUDGED_ITEMS
    resume_safe = ("data_root", "save_every", "address", "rows", "num_trainings", "published", "workers", "trainers")

    def __init__(self) -> None:
        presets = {"helpdesk": helpdesk_table, "li2017": li2017_table}
        super().__init__("evaluate generation", "generation/evaluate_generation", TrainedTableConfig, presets)
        self.run_name = "generation-table"

    def given(self, config: TrainedTableConfig, path: Path | None) -> dict[str, Any]:
        """Return the models that no run is named for, the discriminators, trainings and systems, and their settings."""
        rows, sizes = config.row_names, config.sizes
        entries = {system: {**system._asdict(), "name": system.name} for system in systems(config, rows)}
        is_asked_back = lacks_backward(config.discriminator_decoder) and bool(_discriminator_kinds(config))
        return {
            **{name: getattr(config, name) for name in ("vocabulary", "limit", "longest", "contexts", "judges")},
            **{name: to_dict(getattr(config, name)) for name in ("sizes", "fit", "discriminator_sizes", "discriminator_fit")},
            "lm_sizes": to_dict(LanguageModelSizes(embed=sizes.embed, hidden=sizes.hidden, max_length=sizes.max_reply)),
            "judge_seed": derive_seed(config.seed, JUDGE_LM),
            "discriminator_decoder": with_backward(config.discriminator_decoder, config.backward or _run(BACKWARD)),
            "no_start": [{}] * (not config.starts),
            "no_backward": [{}] * (("mmi" in rows or is_asked_back) and not config.backward),
            "no_lm": [{}] * ("mmi-antilm" in rows and not config.lm),
            "no_judge_lm": [{}] * (not config.judge_lm),
            "discriminators": list(discriminators(config, path or Path())),
            "trainings": list(trainings(config)),
            "decoded": [entry for system, entry in entries.items() if not system.is_trained],
            "trained": [entry for system, entry in entries.items() if system.is_trained],
        }

    def shared(self, config: TrainedTableConfig) -> dict[str, Any]:
        """Return the settings that mean the same for all stages; one seed draws the same contexts for all systems."""
        shared_names = ["corpus", "data_root", "seed", "threads", "min_reply", "workers", *["address"] * bool(config.workers)]
        return {name: getattr(config, name) for name in shared_names}

    def at_once(self, config: TrainedTableConfig) -> int:
        return max(1, config.trainers) if config.workers else config.trainers

    def pooled(self, prepared: PlannedRecipe) -> Collection[str]:
        """Return all replies and evaluations; those of a start do not wait for the trainings."""
        return [
            name
            for name, (job, _) in prepared.stages.items()
            if prepared.config.workers and job in (REPLY, EVALUATE_ADVERSARIAL)
        ]

    def prepare(self, config: TrainedTableConfig, path: Path, reporter: Reporter) -> PlannedRecipe:
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
        return self.planned(config, path)

    def write(self, run: RunFolder, prepared: PlannedRecipe) -> None:
        """Write nothing before the end, because a language model reads all replies for the table."""

    def measure(self, run: RunFolder, result: PlannedRecipe) -> Summary:
        from parley.policies.seq2seq.scoring import WordScores, load_language_model, load_seq2seq

        path, config, answering = run.path, result.config, systems(result.config, result.config.row_names)
        # A generator that has collapsed may say nothing to most contexts, which judges cannot be fitted to.
        unfit = [system for system in answering if isinstance(result.failures.get(system.judged), DataError)]
        failed = {name: reason for name, reason in result.reasons.items() if name not in {system.judged for system in unfit}}
        done = measured_systems(config, path)
        if not done or JUDGE_LM in failed:
            fix, got = "train the starts longer, or name others with --start", "nothing that judges can be fitted to"
            nothing = DataError("every row is left out", where=display_path(path), got=got, fix=fix)
            raise next((result.failures[name] for name in failed), nothing)
        model = fetched_model(config.judge_lm or display_path(path / JUDGE_LM))
        start = load_seq2seq(fetched_model(next(iter(config.starts), display_path(path / START))))
        reader = _ReplyReader(WordScores(load_language_model(model)), start.vocabulary)
        people = reader.read(path / done[0].replies / HUMAN_FILE)
        judges = list(labels_of(config.judge_names).values())
        rows, unreliable = dict[str, list[AnsweredRow]](), set[str]()
        for system in done:
            replies = reader.read(path / system.replies / MACHINE_FILE)
            figures = reply_figures(replies, people, config.seed)
            figures[EMPTY] = RunFolder.load(path / system.replies).metrics()[EMPTY]
            trained = path / f"{system.row.removesuffix(SAMPLED)}-{system.number}"
            if (trained / SUMMARY).is_file():
                of_training = RunFolder.load(trained).metrics()
                figures |= {NATS: of_training[NATS], ROUND: count(of_training[PICKED].value, 1)}
            judged_metrics = RunFolder.load(path / system.judged).metrics()
            unreliable |= set() if is_reliable(judged_metrics, judges[0]) else {system.row}
            names = {judge: f"{ERE}.{judge}" for judge in (*judges, CONSTANT)}
            errors = {judge: judged_metrics[name] for judge, name in names.items() if name in judged_metrics}
            begun = (system.number - 1) % len(starts(config)) + 1
            answered = AnsweredRow(judged_shares(path, system, judges), figures, errors, system.number, begun)
            rows.setdefault(system.row, []).append(answered)
        recorded = reply_figures(people, people, config.seed)
        recorded[OVERLAP] = count(overlap(people.vectors_NE[::2], people.vectors_NE[1::2], config.seed), len(people.words))
        metrics = table_metrics(rows, judges, recorded)
        learning, num = config.learning, config.trainings
        lost = [f"{row_title(system.row)}, {system.number}" for system in unfit]
        left_out = f"Left out, because judges cannot be fitted to what they say: {'; '.join(lost)}." if lost else ""
        how = f"{learning.rounds:,} rounds of {learning.examples_per_step} examples a step, {num} trained a row"
        return Summary(
            f"trainings of {config.start or 'a small generator'} beside their controls",
            " ".join(
                filter(None, [f"{len(people.words):,} test replies of {config.corpus}; {how}, seed {config.seed}.", left_out])
            ),
            metrics,
            {
                CONCLUDED: conclusions(metrics, judges[0], unreliable),
                PLACED: placements(metrics),
                FAILED: failed,
            },
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
        return replace(super().present(result, run), legend=legend, tables=noted(self.tables(run), self.note(run)))

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
    measurable = systems(config, {row.removesuffix(SAMPLED) for row in named})
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


EVALUATE_GENERATION = EvaluateGeneration()
