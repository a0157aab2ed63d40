"""Two agents play N dialogues: `parley selfplay`, and the evaluation of every attack on the negotiation game.

Dialogues are cut into shards of fixed composition and played by workers (Ray actors, or this process); a worker plays a
shard's dialogues side by side. Each dialogue has its own scenario and seed, by its number and the master seed alone.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from engine.jobs.command import command_line
from engine.jobs.device import require_device
from engine.jobs.job import Job, Reporter, Result
from engine.jobs.negotiation.agents import HUMAN, make_agent, require_negotiator, shared_vocabulary
from engine.jobs.negotiation.judge import NOBODY_JUDGES, judge_of, who_judges
from engine.jobs.negotiation.person import tell_outcome
from engine.jobs.negotiation.rows import DIALOGUES
from engine.jobs.sharded import RESUME_SAFE, ShardedConfig
from engine.metrics.negotiation.dialogues import METRICS, negotiation_metrics
from engine.metrics.statistics import NOTHING, Estimate, count
from engine.runtime.pool import Progress
from engine.runtime.record import record_shards
from engine.runtime.session import connect
from engine.runtime.sharding import Shard, make_shards
from engine.store.layout import SUMMARY
from engine.store.run_folder import RunFolder
from engine.store.schemas import OK, SCHEMA_VERSION
from envs.core.config import check, check_count
from envs.core.errors import ConfigError
from envs.core.play import Session, play_sessions
from envs.core.seeds import derive_seed, stream
from envs.data.lines import read_lines
from envs.negotiation.corpora.compiled import load_corpus
from envs.negotiation.corpora.dealornodeal import parse_scenarios
from envs.negotiation.game import NOBODY, Agent, NegotiationGame, Rules
from envs.negotiation.scenario import ILLEGAL, ITEM_TOKENS, Scenario, random_scenario, selection_table
from envs.negotiation.vocabulary import Vocabulary
from envs.storage.places import display_path

if TYPE_CHECKING:
    from policies.negotiator.model import Negotiator

RANDOM = "random"


@dataclass(frozen=True, kw_only=True)
class MatchConfig(ShardedConfig):
    """Who plays whom, on which scenarios."""

    adversary: str
    """Agent on side 0: run or checkpoint folder, registered name, or path/file.py:Name."""
    target: str
    """Agent on side 1."""
    dialogues: int = 2000
    """Number of dialogues."""
    scenarios: str = RANDOM
    """"random" for random legal scenarios, a corpus name for its self-play scenarios in turn, or a file of them."""
    judge: str = ""
    """Checkpoint whose perplexity measures fluency; when empty the target (or else the adversary), before any reinforcement."""
    temperature: float = 0.5
    """Of the models' word distributions; 0 takes the likeliest word."""
    complementary: bool = False
    """The target alone chooses and the adversary is given the complement (the attacks' rule)."""
    max_turns: int = 20
    """Utterances after which the end of a dialogue is forced."""
    shard_size: int = 250
    """Dialogues side by side, saved together (a person: one); changing it changes rounding in the last digit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self, "dialogues")
        check(self, "temperature", self.temperature >= 0, "at least 0")
        check(self, "max_turns", self.max_turns >= 1, "at least 1")
        check(self, "shard_size", self.shard_size >= 1, "at least 1")


FILES = (SUMMARY, "rows")
PLAYED = "played"
"""Kind of the event that says how long playing took."""


@dataclass(frozen=True)
class Roster:
    """The agents of a match, made afresh in each worker from their names; attacks with agents of their own extend it.

    Args:
        config: who plays whom.
    """

    config: MatchConfig

    def vocabulary(self) -> Vocabulary:
        """What both sides speak.

        Raises:
            CheckpointError: they speak different vocabularies.
        """
        specs = {"the adversary": self.config.adversary, "the target": self.config.target}
        return shared_vocabulary(specs | ({"the judge": self.config.judge} if self.config.judge else {}))

    def check(self) -> None:
        """Finds out before a run is made whether there are agents and scenarios to play.

        Raises:
            ConfigError: an agent or scenarios are not there, or cannot sit where they are wanted.
            CheckpointError: a checkpoint is damaged or of another kind, or vocabularies differ.
            DataError: a file of scenarios or a corpus is missing or broken.
        """
        self.agents()
        match_scenarios(self.config)
        if self.config.judge:
            require_negotiator(self.config.judge, "--judge")
        if people(self.config) and self.config.workers:
            raise ConfigError(
                "a person plays at this terminal, where no worker is", got=f"{self.config.workers} workers", fix="--workers 0"
            )
        if self.config.gpus_per_worker > 0 and not self.config.workers:
            require_device("cuda", "--gpus-per-worker")

    def agents(self, device: str = "cpu") -> tuple[Agent, Agent]:
        """The adversary and the target; models compute on the device."""
        vocabulary, temperature = self.vocabulary(), self.config.temperature
        adversary, target = (
            make_agent(spec, vocabulary, temperature, device) for spec in (self.config.adversary, self.config.target)
        )
        return adversary, target

    def worker(self) -> type[MatchWorker]:
        """What plays the shards."""
        return MatchWorker

    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return DIALOGUES

    def measure(self, run: RunFolder) -> dict[str, Estimate]:
        """The metrics of a run whose dialogues have all been played."""
        return negotiation_metrics(run.read_rows().to_pylist())


class MatchWorker:
    """Plays shards of dialogues and returns their rows."""

    def __init__(self, roster: Roster) -> None:
        self.config, self.vocabulary = roster.config, roster.vocabulary()
        self.device = "cuda" if self.config.gpus_per_worker > 0 else "cpu"
        self.agents = roster.agents(self.device)
        self.judge: Negotiator | None = None
        if self.config.judge:
            from policies.negotiator.checkpoints import load_model

            self.judge = load_model(require_negotiator(self.config.judge, "--judge")).to(self.device)

    def run(self, shard: Shard[Scenario]) -> list[dict[str, Any]]:
        """One row per dialogue, by the schema of the roster."""
        game = self.deal(shard)
        sessions = (self.agents[0].join(game.view(0)), self.agents[1].join(game.view(1)))
        played = play_sessions(game, sessions)
        if seats := people(self.config):
            tell_outcome(played, seats)
        return self.rows(played, sessions, shard.keys)

    def deal(self, shard: Shard[Scenario]) -> NegotiationGame:
        """The shard's dialogues, not yet begun."""
        seeds = [dialogue_seed(self.config.seed, key) for key in shard.keys]
        rules = Rules(max_turns=self.config.max_turns, complementary=self.config.complementary)
        return NegotiationGame(shard.items, seeds, self.vocabulary, rules, self.first_speakers(len(seeds)))

    def first_speakers(self, count: int) -> list[int] | None:
        """Who begins each dialogue; None for a fair coin."""
        return None

    def rows(self, game: NegotiationGame, sessions: tuple[Session, Session], keys: Sequence[str]) -> list[dict[str, Any]]:
        """The finished dialogues as rows (`engine.jobs.negotiation.rows.DIALOGUES`)."""
        rows = [dialogue_row(game, row, key) for row, key in enumerate(keys)]
        if self.judge is not None:
            from policies.negotiator.scoring import utterance_nll

            for side, name in enumerate(("nll_adversary", "nll_target")):
                for row, nats in zip(rows, utterance_nll(self.judge, game, side)[0].tolist(), strict=True):
                    row[name] = nats
        return rows


def people(config: MatchConfig) -> list[int]:
    """The sides on which a person sits at the terminal."""
    return [side for side, agent in enumerate((config.adversary, config.target)) if agent == HUMAN]


def dialogue_seed(seed: int, key: str) -> int:
    """The seed of a dialogue, by the master seed and its key."""
    return derive_seed(seed, "dialogue", key)


def dialogue_row(game: NegotiationGame, row: int, key: str) -> dict[str, Any]:
    """A finished dialogue as a row of `engine.jobs.negotiation.rows.DIALOGUES`; likelihoods are left null."""
    scenario = game.scenarios[row]
    written = game.authors[row]
    table = selection_table(scenario.counts)
    adversary, target = (
        [ILLEGAL] if illegal else [ITEM_TOKENS[token] for token in table[selection]]
        for selection, illegal in zip(game.selections[row], game.illegal_selections[row], strict=True)
    )
    return {
        "item_key": key,
        "status": OK,
        "error": None,
        "seed": game.seeds[row],
        "schema_version": SCHEMA_VERSION,
        "counts": list(scenario.counts),
        "values_adversary": list(scenario.values[0]),
        "values_target": list(scenario.values[1]),
        "first_speaker": int(game.first_speakers[row]),
        "turns": [{"side": side, "words": " ".join(words)} for side, words in game.transcript(row)],
        "agreed": bool(game.agreed[row]),
        "forced": bool(game.forced[row]),
        "ended_by": NOBODY if game.forced[row] else int(game.to_move[row]),
        "points_adversary": int(game.points[row, 0]),
        "points_target": int(game.points[row, 1]),
        "selection_adversary": adversary,
        "selection_target": target,
        "pareto": game.is_pareto(row),
        "num_turns": int(game.num_turns[row]),
        "num_words_adversary": int(np.count_nonzero(written == 0)),
        "num_words_target": int(np.count_nonzero(written == 1)),
        **dict.fromkeys(("nll_adversary", "nll_target")),
    }


def match_scenarios(config: MatchConfig) -> dict[str, Scenario]:
    """The scenario of each dialogue by its key, "000000" onwards.

    Raises:
        ConfigError: `scenarios` names neither a corpus nor a file.
        DataError: the file or corpus is missing or broken.
    """
    keys = [f"{number:06d}" for number in range(config.dialogues)]
    if config.scenarios == RANDOM:
        return {key: random_scenario(stream(config.seed, "scenario", key)) for key in keys}
    path = Path(config.scenarios)
    if path.is_file():
        scenarios, errors = parse_scenarios(read_lines(path), str(path))
        if errors:
            raise errors[0]
    else:
        scenarios = load_corpus(config.scenarios, config.data_root).selfplay
    if not scenarios:
        fix = "name a file of context lines, two a scenario"
        raise ConfigError("there are no scenarios to play", where=config.scenarios, fix=fix)
    return {key: scenarios[number % len(scenarios)] for number, key in enumerate(keys)}


def tally(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """What the rows of dialogues add to a run's meters; attacked ones say how many sentences were tried in them."""
    played = [row for row in rows if row["status"] == OK]
    return {"dialogues": len(played), "candidates": sum(row.get("reads", 0) for row in played)}


def play_match(run: RunFolder, roster: Roster, reporter: Reporter, title: str) -> None:
    """Plays what the run does not hold yet; the title is what the reporter is shown.

    Raises:
        ClusterError: Ray cannot be reached or lacks room for the workers.
        RunError: the disk refuses.
    """
    config = roster.config
    # A person talks to one partner at a time, and each of the dialogues is saved when it is over.
    shards = make_shards(match_scenarios(config), 1 if people(config) else config.shard_size)
    reporter.stage(title, config.dialogues, "dialogues")
    before = run.num_done

    def on_progress(progress: Progress) -> None:
        workers = f"{progress.num_workers} of {config.workers} workers" if config.workers else ""
        failed = f"{progress.num_failed} failed" if progress.num_failed else ""
        reporter.advance(before + progress.num_done, ", ".join(filter(None, (workers, failed))))

    record = partial(
        record_shards,
        run,
        roster.worker(),
        (roster,),
        shards,
        seed_of=partial(dialogue_seed, config.seed),
        num_workers=config.workers,
        num_gpus_per_worker=config.gpus_per_worker,
        digest=tally,
        meter=dict,
        on_progress=on_progress,
    )
    if config.workers == 0:
        seconds = _timed(record)
    else:
        with connect(config.address or None, num_cpus=None if config.address else max(config.workers, os.cpu_count() or 1)):
            seconds = _timed(record)
    run.event(PLAYED, seconds=seconds, dialogues=config.dialogues - before, workers=max(config.workers, 1))


def seconds_per_dialogue(run: RunFolder) -> Estimate:
    """Seconds that a worker spent on a dialogue, its start and summary included, over all sessions that came to their end."""
    needs = {PLAYED: {"dialogues": int, "seconds": float, "workers": int}}
    played = [event for event in run.events(needs) if event["kind"] == PLAYED and event["dialogues"]]
    dialogues = sum(event["dialogues"] for event in played)
    return count(sum(event["seconds"] * event["workers"] for event in played) / dialogues, dialogues) if played else NOTHING


def _timed(work: Callable[[], Any]) -> float:
    start = time.monotonic()
    work()
    return time.monotonic() - start


def run(config: MatchConfig, path: Path, reporter: Reporter) -> Result:
    """Plays the match into the run folder `path` and summarises it."""
    partner = "itself" if config.adversary == config.target else config.target
    title = f"{config.adversary} against {partner}"
    return run_match(SELFPLAY, config, Roster(config), path, reporter, title)


def run_match(job: Job, config: Any, roster: Roster, path: Path, reporter: Reporter, title: str) -> Result:
    """Plays what is left of a match into a run folder and summarises it.

    Args:
        job: whose run it is.
        config: that job's configuration.
        roster: who plays; whom it names no judge for, gets one here.
        path: run folder.
        reporter: who looks on.
        title: heading of the result.
    """
    if earlier := job.finished(config, path, reporter):
        return earlier
    roster = replace(roster, config=replace(roster.config, judge=_judge(roster.config)))
    roster.check()
    with RunFolder.open(
        path, config, job=job.name, schema=roster.schema(), resume_safe=job.resume_safe, weights=job.weights(config)
    ) as folder:
        if not roster.config.judge:
            reporter.say(NOBODY_JUDGES)
        play_match(folder, roster, reporter, title)
        match = roster.config
        chooses = "; the target alone chooses" if match.complementary else ""
        about = {
            "title": title,
            "description": f"{match.dialogues} dialogues on {match.scenarios} scenarios, seed {match.seed}{chooses}; "
            f"{who_judges(match.judge)}.",
            "command": command_line(job, config, path),
        }
        folder.write_summary(roster.measure(folder), about)
    return job.result(config, path)


def match_job(name: str, config: type, presets: Mapping[str, Callable[[], Any]], run: Callable[..., Result]) -> Job:
    """A job whose rows are the dialogues of a match."""
    return Job(
        name,
        config,
        presets,
        run,
        METRICS,
        FILES,
        next_commands,
        resume_safe=RESUME_SAFE,
        models=match_models,
        num_rows=attrgetter("dialogues"),
    )


def match_models(config: Any) -> dict[str, str]:
    """The models of a match, or of an attack that is one; those of its settings that it has."""
    by_option = {name: getattr(config, name) for name in ("adversary", "speaker", "target") if hasattr(config, name)}
    return by_option | {"judge": _judge(config)}


def _judge(config: Any) -> str:
    others = [getattr(config, name) for name in ("adversary", "speaker") if hasattr(config, name)]
    return judge_of(config.judge, (config.target, *others))


def next_commands(config: Any, path: Path) -> tuple[str, ...]:
    """What to type after a match."""
    return (shlex.join(["parley", "report", display_path(path)]),)


def scripted() -> MatchConfig:
    """A fair scripted bargainer against a tough one; needs no training."""
    return MatchConfig(adversary="scripted", target="scripted-tough")


SELFPLAY = match_job("selfplay", MatchConfig, {"scripted": scripted}, run)
