"""Adversarial training of a generator against a discriminator: `parley minmax replies` (RLlib).

Source: Li et al. 2017 (arXiv 1701.06547), figure 1. Models that are not named are trained first, as runs below the run's
folder. Updates are events of the run; every `check_every` rounds the generator answers the validation contexts, and judges that
training never sees say how often they are deceived: the best of these states, the start among them, is the checkpoint.

Choices:
  * # Paper: silent on which state is kept. Ours: the best by AdverSuc or by likelihood on the validation split, which may be
    the start, or the last (`keep`); test contexts are answered once, by that state and by the start. A state that foretells
    people's replies much worse than the start (`plain_loss`), or repeats itself, is not kept.

As in every campaign (`engine/core/verbs/campaign.py`) start, control and result meet all known adversaries: the discriminators
that each measurement keeps, fresh ones against result and control, and a linear judge. The validation split chooses the best,
the test split measures the share of replies, people's and the generator's, that it tells right. A control (`control`) is the
start, trained as long with constant rewards. Both sides learn by turns in one algorithm of RLlib, so the generator is always
rewarded by the newest discriminator.

Alarms watch the figures of updates for collapse, and for a discriminator that is too weak or too strong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import (
    BEFORE,
    EXPLOITABILITY,
    KNOWN,
    KNOWN_TABLE,
    AdversaryWords,
    KnownAdversaries,
    Round,
    best_index,
    known_of,
)
from parley.engine.core.stats.statistics import (
    Estimate,
    clustered_rate,
    count,
    mean_count,
    rate_difference,
    refit_spread,
    reply_metrics,
)
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs.campaign import WATCHED
from parley.engine.core.verbs.checkpoints import require_checkpoint, require_word_model, threads
from parley.engine.core.verbs.composite import Composite, Stage, fitting_runners, run_stages
from parley.engine.core.verbs.job import Reporter, Steps, Summary
from parley.engine.core.verbs.repeated import nth_name, nth_seed
from parley.engine.core.verbs.sharded import session
from parley.engine.core.verbs.supervised import STATE, built, make_updates
from parley.engine.core.verbs.trainings import Scalars
from parley.engine.generation.metrics.adversarial import ADVERSUC, RANDOM
from parley.engine.generation.metrics.trained import (
    ADVANTAGE,
    AGAINST_DISCRIMINATOR,
    AS_CONTROL,
    COMMONEST,
    DISTINCT,
    DROP,
    DROP_BEYOND_CONTROL,
    GAIN,
    NATS,
    PICKED,
    REPETITION,
    WATCH,
    WORDS,
    step_figures,
    variety,
)
from parley.engine.generation.verbs.config import (
    BACKWARD,
    NUM_FOLDS,
    REWARDS_OF_WORDS,
    HeldOut,
    MinMaxRepliesConfig,
    PreparedReplies,
    Watch,
    helpdesk,
    li2017,
    prepare_replies,
    released,
    require_decoders,
    training_world,
    word_rewards,
)
from parley.engine.generation.verbs.discriminator import TRAIN_DISCRIMINATOR, TrainDiscriminatorConfig, labelled
from parley.engine.responders.seq2seq import TRAIN_SEQ2SEQ, TrainSeq2SeqConfig
from parley.envs.core.config import from_dict
from parley.envs.core.errors import ConfigError, ParleyError
from parley.envs.core.storage.copies import CHECKPOINT
from parley.envs.core.storage.uris import display_path
from parley.policies.core.responder import DecoderSettings, lacks_backward, with_backward

if TYPE_CHECKING:
    from parley.engine.generation.metrics.adversarial import JudgedScores
    from parley.engine.generation.rl.replies import ReplyMinMax, ReplyMinMaxConfig
    from parley.envs.corpora.pairs.compiled import PairSplit
    from parley.policies.seq2seq.model import Seq2Seq


class CollapseError(ParleyError):
    """A training that went wrong and stops, because `watch.stop` is set."""


class Alarm(NamedTuple):
    """A figure that has been out of bounds too long.

    Args:
        name: of the alarm.
        figure: of an update.
        value: the newest.
    """

    name: str
    figure: str
    value: float


_SIGNS: tuple[tuple[str, str, Callable[[float, Watch], bool]], ...] = (
    ("saturated", "discriminator_accuracy", lambda value, watch: value > watch.saturated),
    ("helpless", "discriminator_accuracy", lambda value, watch: value < watch.helpless),
    ("collapsed", DISTINCT, lambda value, watch: value < watch.min_distinct),
    ("collapsed", COMMONEST, lambda value, watch: value > watch.max_commonest),
    ("collapsed", WORDS, lambda value, watch: value < watch.min_words),
    ("collapsed", "generator_nats", lambda value, watch: value < watch.min_nats),
    ("no advantage", ADVANTAGE, lambda value, watch: value < watch.min_advantage),
)


class Watcher:
    """Counts for how many steps in a row each figure has been out of bounds.

    Args:
        watch: the bounds.
        history: figures of the updates that have been made, in their order.
    """

    def __init__(self, watch: Watch, history: Iterable[Mapping[str, Any]] = ()) -> None:
        self._watch = watch
        self._streaks = [0] * len(_SIGNS)
        for figures in history:
            self.see(figures)

    @property
    def is_calm(self) -> bool:
        """Return whether every figure was within its bounds when it was last seen."""
        return not any(self._streaks)

    def see(self, figures: Mapping[str, Any]) -> list[Alarm]:
        """Return the new alarms of an update; a figure alarms again only after it was within its bounds."""
        alarms = []
        for index, (name, figure, is_out) in enumerate(_SIGNS):
            if figure not in figures:
                continue
            # Events store null for no number, such as distinct-1 of replies without a word.
            value = math.nan if figures[figure] is None else float(figures[figure])
            self._streaks[index] = self._streaks[index] + 1 if is_out(value, self._watch) else 0
            if self._streaks[index] == self._watch.patience:
                alarms.append(Alarm(name, figure, value))
        return alarms


ITERATION, CHECK, ALARM = "iteration", "check", "alarm"
"""Kinds of events: an update, a measurement on the validation split, and something that went wrong."""
GENERATOR, DISCRIMINATOR, BEST, GOOD = "generator", "discriminator", "best", "good"
"""Folders of a run: of the stages that train what is not named, of the best generator so far (the last one, where that is
kept), and beside the last one of the last that was measured before any figure went out of its bounds."""
CONTROL, RESULT, KEPT = "control", "result", "discriminators"
"""Stage of the start, trained as long with constant rewards; prefix of the stages of fresh discriminators of the result; folder
of the discriminators that measurements keep."""
_TARGETS = {BEFORE: "before", AS_CONTROL: "control", "": "after"}
"""The generators that known discriminators meet, by the endings of their metrics."""


def _updates(config: Mapping[str, Any]) -> int | None:
    try:
        return from_dict(MinMaxRepliesConfig, config).steps.updates
    except (KeyError, TypeError, ConfigError):
        # The run of another version can be looked at, and not be resumed.
        return None


LINEAR = "svm-unigram"
"""The linear judge, refitted to the replies of each generator."""
COIN = 0.5
"""The share that a coin tells right."""
DISCRIMINATORS = AdversaryWords(
    cell="Share of the replies, recorded ones and those of the generator of the column, that the discriminator of the line "
    "tells right, on the validation split, which chooses the best: the marked value is too high by luck. A coin: one half.",
    measured="of the test replies told right",
    start="a coin",
)
"""The words in which known discriminators are shown."""


@dataclass(frozen=True)
class DiscriminatorShares:
    """The share of replies told right, by context.

    Args:
        by_split: for val and test (G, A), in the order of `names`.
        names: of the discriminators, and `LINEAR`.
        sources: the source of each context, by split.
    """

    by_split: Mapping[str, np.ndarray]
    names: Sequence[str]
    sources: Mapping[str, Sequence[str]]

    @classmethod
    def of(
        cls,
        generator: Seq2Seq,
        discriminators: Mapping[str, Path],
        held: Mapping[str, HeldOut],
        pairs: Mapping[str, PairSplit],
        seed: int,
    ) -> DiscriminatorShares:
        """Let all discriminators judge the replies of a generator.

        Args:
            generator: in evaluation mode.
            discriminators: folders of their checkpoints, by name.
            held: the contexts of val and test.
            pairs: the same contexts with recorded replies.
            seed: not drawn from for whole replies.
        """
        from parley.policies.generation.discriminator.batches import judge, load_discriminator

        by_split = {}
        for split, contexts in held.items():
            replies = contexts.replies(generator)
            columns = []
            for folder in discriminators.values():
                model = load_discriminator(folder)
                examples = labelled(model, pairs[split], [np.array(reply, dtype=np.int64) for reply in replies], seed)
                judgements = judge(model, examples)
                right = np.where(judgements.human, judgements.log_odds, -judgements.log_odds)
                columns.append(((right > 0) + 0.5 * (right == 0)).reshape(-1, 2).mean(axis=1))
            # A source of many contexts has one share.
            errors = contexts.judged(replies)[ADVERSUC].by_source
            columns.append(np.array([1 - errors.get(source, COIN) for source in contexts.source_names]))
            by_split[split] = np.stack(columns, axis=1)
        return cls(by_split, [*discriminators, LINEAR], {split: contexts.source_names for split, contexts in held.items()})

    @property
    def best(self) -> int:
        """The index of the best discriminator, by the validation split."""
        return best_index(self.by_split["val"])

    @property
    def measured_G(self) -> np.ndarray:
        """The share that the best tells right, by context of the test split."""
        return np.asarray(self.by_split["test"][:, self.best])

    @property
    def measured(self) -> Estimate:
        """The share that the best tells right on the test split."""
        return self.told_right(self.names[self.best], "test")

    def told_right(self, name: str, split: str) -> Estimate:
        """Return the share that a discriminator tells right in a split."""
        right_G = self.by_split[split][:, list(self.names).index(name)]
        return clustered_rate(right_G, self.sources[split], spread=_spread(name))


def _spread(name: str) -> float:
    # The linear judge is fitted to what it judges, in folds.
    return refit_spread(NUM_FOLDS) if name == LINEAR else 1.0


def known_discriminators(judged: Mapping[str, DiscriminatorShares], made_for: Mapping[str, str]) -> KnownAdversaries:
    """Return the known discriminators of start, control and result.

    Args:
        judged: by generator.
        made_for: the generator that a discriminator was trained against, by its name.
    """
    first = next(iter(judged.values()))
    shares = {name: judged[generator].told_right(name, "test") for name, generator in made_for.items() if generator in judged}
    beyond = {name: Estimate(of.value - COIN, of.low - COIN, of.high - COIN, of.n) for name, of in shares.items()}
    return KnownAdversaries(
        targets=list(judged),
        adversaries=first.names,
        gains_TA=[[of.told_right(name, "val") for name in of.names] for of in judged.values()],
        best=[of.best for of in judged.values()],
        measured=[of.measured for of in judged.values()],
        learned=beyond,
        gained=beyond,
        words=DISCRIMINATORS,
    )


def lost(before: DiscriminatorShares, after: DiscriminatorShares) -> Estimate:
    """Return by how much less the best discriminator of one generator tells right than that of another, same contexts."""
    spread = max(_spread(of.names[of.best]) for of in (before, after))
    return rate_difference(before.measured_G, after.measured_G, before.sources["test"], spread=spread)


class MinMaxReplies(Composite[MinMaxRepliesConfig, MinMaxRepliesConfig, Summary]):
    """`parley minmax replies`."""

    words = ("minmax", "replies")
    run_name = "minmax-replies"
    config = MinMaxRepliesConfig
    presets = {"helpdesk": helpdesk, "li2017": li2017, "released": released}
    legend = AGAINST_DISCRIMINATOR
    files = (CHECKPOINT, SUMMARY)
    resume_safe = ("data_root", "save_every", "env_runners", "address")
    steps = Steps(ITERATION, "updates", _updates)

    def prepare(self, config: MinMaxRepliesConfig, path: Path, reporter: Reporter) -> MinMaxRepliesConfig:
        from parley.policies.seq2seq.scoring import load_seq2seq

        if config.discriminator and not config.start:
            what = "a discriminator needs the generator whose replies it was fitted to"
            raise ConfigError(what, where="--discriminator", got="no --start", fix="name the generator with --start RUN")
        start = str(require_word_model(config.start, "--start", "parley train seq2seq")) if config.start else ""
        config = replace(config, sizes=load_seq2seq(Path(start)).sizes) if start else config
        require_decoders(config)
        if start:
            named = config.discriminator
            if named:
                named = str(require_checkpoint(named, "--discriminator", "parley train discriminator"))
            prepare_replies(config, start, named)
        return config

    def stages(self, config: MinMaxRepliesConfig, path: Path) -> Mapping[str, Stage]:
        planned: dict[str, Stage] = {}
        names = ("corpus", "limit", "data_root", "seed", "threads")
        shared_settings: dict[str, Any] = {name: getattr(config, name) for name in names}
        fitted = shared_settings | {name: getattr(config, name) for name in ("sizes", "fit", "min_reply", "vocabulary")}
        fitted |= {"max_reply": config.longest}
        if not config.start:
            # Paper: a start, too, weighs replies by tf-idf. Ours: the one of `parley reproduce li2017`; this one does not.
            planned[GENERATOR] = TRAIN_SEQ2SEQ, TrainSeq2SeqConfig(**fitted)
        if not config.discriminator:
            if lacks_backward(config.discriminator_decoder) and not config.backward:
                planned[BACKWARD] = TRAIN_SEQ2SEQ, TrainSeq2SeqConfig(backward=True, **fitted)
            discriminator_config = TrainDiscriminatorConfig(
                generator=config.start or display_path(path / GENERATOR),
                decoder=with_backward(config.discriminator_decoder, config.backward or display_path(path / BACKWARD)),
                prefixes=config.method == "regs-partial",
                min_reply=config.min_reply,
                sizes=config.discriminator_sizes,
                fit=config.discriminator_fit,
                **shared_settings,
            )
            planned[DISCRIMINATOR] = TRAIN_DISCRIMINATOR, discriminator_config
        return planned

    def last_stages(self, config: MinMaxRepliesConfig, path: Path, generator: str, discriminator: str) -> dict[str, Stage]:
        """Return the control and the fresh discriminators of control and result.

        Args:
            config: the configuration.
            path: the run's folder, with the result.
            generator: the start.
            discriminator: its discriminator.
        """
        planned: dict[str, Stage] = {}
        generators = {RESULT: display_path(path / BEST)}
        if config.control:
            same: dict[str, Any] = {"start": generator, "discriminator": discriminator, "reward": "constant"}
            constant = replace(config, **same, control=False, num_final_adversaries=0, keep="last")
            planned[CONTROL] = MINMAX_REPLIES, constant
            generators[CONTROL] = display_path(path / CONTROL)
        names = ("corpus", "limit", "data_root", "threads", "min_reply")
        for name, place in generators.items():
            for number in range(1, config.num_final_adversaries + 1):
                settings = TrainDiscriminatorConfig(
                    generator=place,
                    # A backward model is not needed to tell replies apart.
                    decoder="greedy",
                    seed=nth_seed(config.seed, number + 1, KEPT),
                    sizes=config.discriminator_sizes,
                    fit=config.discriminator_fit,
                    **{name: getattr(config, name) for name in names},
                )
                planned[nth_name(f"{name}-{DISCRIMINATOR}", number)] = TRAIN_DISCRIMINATOR, settings
        return planned

    def work(self, run: RunFolder, prepared: MinMaxRepliesConfig, reporter: Reporter) -> Summary:
        """Train what is not named, then both by turns; measure, and store the best generator as `checkpoint`.

        Raises:
            DivergenceError: a gradient is not finite.
            CollapseError: a figure was out of its bounds too long, and `watch.stop` is set.
            ClusterError: too little room for env runners, or they keep dying.
        """
        config, path = prepared, run.path
        run_stages(self.stages(config, path), path, reporter)
        generator = require_word_model(config.start or display_path(path / GENERATOR), "--start", "parley train seq2seq")
        named = config.discriminator or display_path(path / DISCRIMINATOR)
        discriminator = require_checkpoint(named, "--discriminator", "parley train discriminator")
        opened = prepare_replies(config, str(generator), str(discriminator))
        if opened.note:
            reporter.say(opened.note)
        with threads(config.threads), session(config.env_runners + 1, config.address) as here:
            runners = fitting_runners(config.env_runners, {"CPU": 0, "GPU": 0}, here, reporter) if config.env_runners else 0
            training = _ReplyTraining(opened, run, reporter)
            training.finish(runners)
            last = self.last_stages(config, path, opened.generator, opened.discriminator)
            run_stages(last, path, reporter)
            metrics = training.figures()
            adversaries = training.known(last)
            for sentence in adversaries.sentences():
                reporter.say(sentence)
            metrics |= training.known_figures()
        kept = {name: metrics[name] for name in self.legend if name in metrics}
        learning = config.steps
        steps = f"{learning.rounds:,} rounds of {', '.join(learning.cycle)}, {learning.examples_per_step} examples a step"
        return Summary(
            f"{config.start or 'a small generator'} against a discriminator, {config.method}",
            " ".join(filter(None, [f"{steps}, on {config.corpus}, reward {config.reward}, seed {config.seed}.", opened.note])),
            kept,
            {KNOWN: adversaries.to_json()},
        )

    def more(self, run: RunFolder) -> dict[str, EstimateTable]:
        adversaries = known_of(run.summary(), DISCRIMINATORS)
        return {} if adversaries is None else {KNOWN_TABLE: adversaries.table()}

    def models(self, config: MinMaxRepliesConfig) -> Mapping[str, str]:
        named = {"start": config.start, "discriminator": config.discriminator, "backward": config.backward}
        return named | DecoderSettings.parse(config.decoder).models


class _ReplyTraining:
    """A training in a run folder, from where it stands to its end."""

    def __init__(self, prepared: PreparedReplies, run: RunFolder, reporter: Reporter) -> None:
        self._prepared, self._run, self._reporter = prepared, run, reporter
        config = prepared.config
        self._config, self._learning = config, config.steps
        how = prepared.model.vocabulary, DecoderSettings.parse(config.decoder), config.longest, config.seed
        self._held = {split: HeldOut(prepared.pairs[split].first(config.checked), *how) for split in ("val", "test")}
        # Updates after the last saved state are made again, and count as they were made last.
        needs: dict[str, dict[str, type]] = {ITERATION: {"number": int}, CHECK: {"number": int, "estimates": dict}}
        events = run.events(needs)
        self._watcher: Watcher | None = None
        self._judged: dict[str, DiscriminatorShares] = {}
        self._has_word_rewards = any(event["kind"] == REWARDS_OF_WORDS for event in events)
        self._history = {event["number"]: event for event in events if event["kind"] == ITERATION}
        self._checks = {
            event["number"]: {name: Estimate.from_json(value) for name, value in event["estimates"].items()}
            for event in events
            if event["kind"] == CHECK
        }
        # Events of earlier versions lack the repetition.
        self._watched = {
            event["number"]: Round(
                event["number"],
                self._checks[event["number"]]
                | {name: count(float(event[name]), 1) for name in (NATS, REPETITION) if event.get(name) is not None},
            )
            for event in events
            if event["kind"] == CHECK
        }

    def finish(self, num_runners: int) -> None:
        """Make the remaining updates."""
        from parley.engine.core.rllib.reproducible import DivergenceError

        updates, has_begun = self._learning.updates, (self._run.path / STATE).exists()
        with built(self._settings(num_runners)) as algorithm:
            try:
                if not has_begun and 0 not in self._checks:
                    self._check(algorithm, 0)
                self._reporter.stage("generator against discriminator", updates, "updates")
                note = partial(self._note, algorithm)
                make_updates(algorithm, self._run, updates, self._config.save_every, self._reporter, note)
                if not self._has_word_rewards:
                    self._record_word_rewards(algorithm)
            except DivergenceError as error:
                fix = f"{error.fix}; {self._best_so_far()}"
                raise DivergenceError(error.what, where=error.where, got=error.got, fix=fix) from error

    def _settings(self, num_runners: int) -> ReplyMinMaxConfig:
        from parley.engine.generation.rl.replies import ReplyMinMaxConfig

        config, prepared = self._config, self._prepared
        make_world = partial(training_world, config, prepared.generator)
        settings = ReplyMinMaxConfig().replies(
            learning=self._learning,
            rewards=config.rewards,
            reward=config.reward,
            make_world=make_world,
            generator=prepared.generator,
            discriminator=prepared.discriminator,
            seed=config.seed,
        )
        settings.env_runners(num_env_runners=num_runners)
        return settings

    def _note(self, algorithm: ReplyMinMax, number: int, scalars: Scalars) -> str:
        """Record the newest update, and measure when it is due."""
        last = algorithm.last
        if self._watcher is None:
            self._watcher = Watcher(self._config.watch, [self._history[n] for n in sorted(self._history) if n < number])
        self._history[number] = {"number": number, **last}
        self._run.event(ITERATION, **self._history[number])
        scalars.add(number, {name: value for name, value in last.items() if name != "phase"})
        for alarm in self._watcher.see(last):
            self._alarm(number, alarm)
        rounds, rest = divmod(number, len(self._learning.cycle))
        if not rest and (rounds % self._config.check_every == 0 or rounds == self._learning.rounds):
            self._check(algorithm, rounds)
        shown = {name: last[name] for name in ("discriminator_accuracy", "reward", WORDS, "teacher_nats") if name in last}
        return ", ".join(f"{name.replace('_', ' ')} {value:.2f}" for name, value in shown.items())

    def _alarm(self, number: int, alarm: Alarm) -> None:
        self._run.event(ALARM, number=number, **alarm._asdict())
        text = f"{alarm.name}: {alarm.figure.replace('_', ' ')} {alarm.value:.3g} for {self._config.watch.patience} steps"
        self._reporter.say(f"update {number}: {text}")
        if self._config.watch.stop:
            what = "the training has gone wrong, and watch.stop is set"
            fix = f"change learning or watch; {self._best_so_far()}"
            raise CollapseError(what, where=f"update {number}", got=text, fix=fix)

    def _check(self, algorithm: ReplyMinMax, rounds: int) -> None:
        """Measure the generator on the validation split, and keep it if it is the best so far."""
        from parley.engine.core.rllib import reproducible as state
        from parley.policies.core.fitting.batches import evaluate
        from parley.policies.seq2seq.model import PairExamples
        from parley.policies.seq2seq.scoring import save_model

        model = self._prepared.model
        model.load_state_dict(state.learned_weights(algorithm))
        replies = self._held["val"].replies(model)
        judged = self._held["val"].judged(replies)
        estimates = {ADVERSUC: judged[ADVERSUC].adversuc(), RANDOM: judged[RANDOM].accuracy()}
        loss = evaluate(model, PairExamples(self._prepared.pairs["val"], model.sizes)).nll
        figures = {**{name: estimate.value for name, estimate in estimates.items()}, NATS: loss, **variety(replies)}
        figures_of = {NATS: count(loss, 1), REPETITION: count(figures[REPETITION], 1)}
        self._watched[rounds] = Round(rounds, {**estimates, **figures_of})
        # Before the event, so that a round that counts as measured has left its models.
        self._keep_discriminator(algorithm, rounds)
        earlier = [number for number in self._playing() if number < rounds]
        better = all(self._merit(rounds) > self._merit(number) for number in earlier)
        if rounds and rounds not in self._playing():
            self._reporter.say(f"round {rounds} may not be the result: {WATCHED}")
        if self._config.keep == "last" or (better and rounds in self._playing()):
            save_model(model, self._run.path / BEST, {"round": rounds})
            if self._watcher is None or self._watcher.is_calm:
                save_model(model, self._run.path / GOOD, {"round": rounds})
        stored = {name: estimate.to_json() for name, estimate in estimates.items()}
        self._run.event(CHECK, number=rounds, estimates=stored, **figures)
        both = f"AdverSuc {estimates[ADVERSUC]}, machine-vs-random {estimates[RANDOM]}"
        alike = f", one reply to {figures[COMMONEST]:.0%} of contexts" * (figures[COMMONEST] > self._config.watch.max_commonest)
        self._reporter.say(f"round {rounds}: {both}, {loss:.3f} nats a word, {figures[WORDS]:.1f} words a reply{alike}")
        self._checks[rounds] = estimates

    def _playing(self) -> list[int]:
        rounds = [self._watched[number] for number in sorted(self._watched)]
        return [entry.number for entry in WATCH.still_playing(rounds, self._config.plain_loss)]

    def _keep_discriminator(self, algorithm: ReplyMinMax, rounds: int) -> None:
        from parley.engine.generation.rl.reply_modules import DISCRIMINATOR as LISTENER
        from parley.policies.generation.discriminator.batches import DISCRIMINATOR as FORMAT

        if rounds == 0 or self._learning.discriminator_steps:
            net = algorithm.env_runner.module[LISTENER].net
            FORMAT.save(net, self._run.path / KEPT / f"{rounds:05d}", {"role": "adversarial", "round": rounds})

    def known(self, last: Mapping[str, Stage]) -> KnownAdversaries:
        """Let start, control and result meet all known discriminators.

        Args:
            last: the stages of the control and of fresh discriminators, which are done.
        """
        from parley.policies.seq2seq.scoring import load_seq2seq

        prepared, path = self._prepared, self._run.path
        kept = {f"round {int(folder.name)}": folder for folder in sorted((path / KEPT).glob("*")) if folder.is_dir()}
        fresh = {name: path / name / CHECKPOINT for name in last if name != CONTROL}
        models = {"before": Path(prepared.generator), "after": path / BEST}
        if self._config.control:
            models["control"] = path / CONTROL / CHECKPOINT
        pairs = {split: prepared.pairs[split].first(self._config.checked) for split in self._held}
        self._judged = {
            name: DiscriminatorShares.of(load_seq2seq(models[name]), {**kept, **fresh}, self._held, pairs, self._config.seed)
            for name in _TARGETS.values()
            if name in models
        }
        made_for = {name: "after" if name.startswith(RESULT) else "control" for name in fresh}
        return known_discriminators(self._judged, {**{name: "before" for name in kept if name == "round 0"}, **made_for})

    def known_figures(self) -> dict[str, Estimate]:
        """Return the metrics of the best known discriminators of start, control and result."""
        judged = self._judged
        metrics = {f"{EXPLOITABILITY}{ending}": judged[name].measured for ending, name in _TARGETS.items() if name in judged}
        metrics[DROP] = lost(judged["before"], judged["after"])
        if "control" in judged:
            metrics[DROP_BEYOND_CONTROL] = lost(judged["control"], judged["after"])
            control = RunFolder.load(self._run.path / CONTROL).metrics()
            metrics[f"test_{ADVERSUC}{AS_CONTROL}"] = control[f"test_{ADVERSUC}"]
        return metrics

    def _record_word_rewards(self, algorithm: ReplyMinMax) -> None:
        """Print the rewards of words of replies at the end, for a reader to look at."""
        from parley.engine.generation.rewards.rewards import limit
        from parley.engine.generation.rl.reply_modules import DISCRIMINATOR as LISTENER
        from parley.engine.generation.rl.reply_modules import GENERATOR as SPEAKER

        config, modules = self._config, algorithm.env_runner.module
        generator, discriminator = modules[SPEAKER].net, modules[LISTENER].net
        most = limit(config.rewards, generator, discriminator)
        shown = word_rewards(config.rewards, generator, discriminator, self._prepared.pairs["test"], most, config.seed)
        self._run.event(REWARDS_OF_WORDS, replies=shown)

    def _best_so_far(self) -> str:
        from parley.policies.seq2seq.scoring import SEQ2SEQ

        good = self._run.path / GOOD
        folder = good if good.exists() else self._run.path / BEST
        number = SEQ2SEQ.provenance(folder)["round"]
        return f"the generator to keep so far, of round {number}, is {display_path(folder)}"

    def _picked(self) -> int:
        if self._config.keep == "last":
            return max(self._checks)
        return max(sorted(self._playing()), key=self._merit)

    def _merit(self, rounds: int) -> float:
        measured = self._watched[rounds].metrics
        return -measured[NATS].value if self._config.keep == "likelihood" else measured[ADVERSUC].value

    def figures(self) -> dict[str, Estimate]:
        """Return the figures of the legend, once all updates are made; store the best generator."""
        from parley.policies.core.fitting.batches import evaluate
        from parley.policies.seq2seq.model import PairExamples
        from parley.policies.seq2seq.scoring import load_seq2seq, save_model

        config, prepared, picked = self._config, self._prepared, self._picked()
        best = load_seq2seq(self._run.path / BEST)
        metrics: dict[str, Estimate] = {}
        judged: dict[str, JudgedScores] = {}
        for suffix, model in ((BEFORE, load_seq2seq(Path(prepared.generator))), ("", best)):
            replies = self._held["test"].replies(model)
            scores = self._held["test"].judged(replies)
            judged[suffix] = scores[ADVERSUC]
            metrics[f"test_{ADVERSUC}{suffix}"] = judged[suffix].adversuc()
            metrics[f"test_{RANDOM}{suffix}"] = scores[RANDOM].accuracy()
            fitness = evaluate(model, PairExamples(prepared.pairs["val"], model.sizes))
            metrics[f"{NATS}{suffix}"] = mean_count(fitness.nll_sums, fitness.units, fitness.num_targets)
            words = [list(map(model.vocabulary.decode, replies)) for replies in (replies, self._held["test"].recorded)]
            figures = reply_metrics(zip(self._held["test"].source_names, *words, strict=True), config.longest)
            metrics |= {f"{name}{suffix}": figure for name, figure in figures.items()}
        sources = sorted(judged[""].by_source)
        after, before = ([judged[suffix].by_source[source] for source in sources] for suffix in ("", BEFORE))
        metrics[GAIN] = rate_difference(after, before, spread=refit_spread(NUM_FOLDS))
        metrics |= {f"validation_{name}": estimate for name, estimate in self._checks[picked].items()}
        metrics[PICKED] = count(picked, len(self._checks))
        metrics |= step_figures([event for _, event in sorted(self._history.items())])
        test = evaluate(best, PairExamples(prepared.pairs["test"], best.sizes))
        who = {"role": "adversarial", "start": config.start, "discriminator": config.discriminator, "corpus": config.corpus}
        how = {"method": config.method, "reward": config.reward, "round": picked, "seed": config.seed, "test_nll": test.nll}
        save_model(best, self._run.path / CHECKPOINT, who | how)
        return metrics


MINMAX_REPLIES = MinMaxReplies()
