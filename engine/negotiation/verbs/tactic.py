"""An attacker model that refines tactics for a chat model against any target: `parley attack tactic` (after PAIR).

In every round each stream of each attacker writes a tactic (`engine/negotiation/attacks/tactics.py`); all of them are tried in
the same development dialogues. Then the best tactic of each attacker plays the held-out dialogues, and so does the player
without a tactic. An attacker's texts are recorded as events before they are tried, so that a resumed run reads them there.

A row is a dialogue of one tactic. All tactics play the same dialogues: the number of a dialogue decides its scenario and its
draws. Shards of development dialogues come first, in the order in which the tactics were written, then those of held-out ones.
So a round only adds shards to the earlier ones.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, cast

from parley.engine.core.ray.record import Counts, Rows
from parley.engine.core.ray.worker import Shard
from parley.engine.core.runs.documents import CONFIG, SUMMARY
from parley.engine.core.runs.parts import OK, row_schema
from parley.engine.core.runs.remote_sync import fetched_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs.job import TABLE_FILE, Job, Reporter, Result, Summary
from parley.engine.core.verbs.sharded import RESUME_SAFE, Sharded, run_items
from parley.engine.core.verbs.transcripts import TranscriptRule
from parley.engine.negotiation.attacks.settings import TacticSettings
from parley.engine.negotiation.attacks.tactics import (
    ARMS,
    ATTACKERS,
    NONE,
    REFINED,
    TriedTactic,
    WrittenTactic,
    questions,
    repair_request,
    spread_out,
    transcript,
)
from parley.engine.negotiation.metrics.dialogues import COSTS, LEGEND, TacticResults, tactics_table
from parley.engine.negotiation.verbs.agents import require_partner, split_names, who_judges
from parley.engine.negotiation.verbs.match import (
    DIALOGUES,
    RANDOM,
    SELFPLAY,
    MatchConfig,
    MatchWorker,
    OneMatchConfig,
    Roster,
    dialogue_seed,
    dialogue_transcript,
    match_scenarios,
)
from parley.engine.negotiation.verbs.whitebox import AttackConfig
from parley.envs.core.config import NumItems, shared
from parley.envs.core.errors import ConfigError, RunError
from parley.envs.core.registry import nearest
from parley.envs.core.seeds import derive_seed
from parley.envs.core.storage.uris import display_path
from parley.envs.negotiation.agents import is_chat_model
from parley.envs.negotiation.domain import Scenario, domain_of
from parley.policies.chat.model import ANSWERS_FOLDER, ChatDecoding, ChatModel
from parley.policies.chat.negotiator import ChatNegotiator
from parley.policies.chat.questions import read_line, written_lines
from parley.policies.chat.seat import chat_model, require_address

TACTICS = row_schema({"tactic": str, "tactic_number": int, "held_out": bool, "dialogue": int}, DIALOGUES)
"""A dialogue with a tactic: the text, the number of the tactic (0 for none), whether it is held out, the dialogue's number."""
_MOST_SIDE_BY_SIDE = 32


class TriedDialogue(NamedTuple):
    """One dialogue of one tactic."""

    tactic: str
    tactic_number: int
    held_out: bool
    dialogue: int
    scenario: Scenario


@dataclass(frozen=True)
class TacticTrials(Sharded[TriedDialogue]):
    """A chat model and its target, which play with one tactic after the other.

    Args:
        match: the settings of their match; its dialogues are those of development.
        num_held_out: number of dialogues after these.
        answers: folder of the run that stores chat models' answers.
    """

    unit = "dialogues"
    event = "played"

    match: MatchConfig
    num_held_out: int
    answers: Path | None = None

    def seed(self, key: str) -> int:
        return dialogue_seed(self.match.seed, key.rpartition("-")[2])

    def worker(self) -> TacticWorker:
        return TacticWorker(self)

    def checkpoints(self) -> tuple[str, ...]:
        return self.roster.checkpoints()

    def shard_size(self, num_items: int, num_workers: int) -> int:
        """Return the largest size that divides a tactic's dialogues, so that later tactics change no shard."""
        return max(size for size in range(1, _MOST_SIDE_BY_SIDE + 1) if self.match.dialogues % size == 0)

    def digest(self, rows: Rows) -> Counts:
        return Counter(dialogues=sum(row["status"] == OK for row in rows))

    @property
    def roster(self) -> Roster:
        """The agents of the match."""
        return Roster(self.match, answers=self.answers)

    def development(self, tactics: Iterable[tuple[int, str]]) -> dict[str, TriedDialogue]:
        """Return the development dialogues of some tactics, by key."""
        wanted = list(self.scenarios().items())[: self.match.dialogues]
        return {
            f"dev-{number:04d}-{key}": TriedDialogue(text, number, False, int(key), scenario)
            for number, text in tactics
            for key, scenario in wanted
        }

    def held_out(self, tactics: Mapping[int, str]) -> dict[str, TriedDialogue]:
        """Return the held-out dialogues of some tactics, by key; their numbers follow those of development."""
        wanted = list(self.scenarios().items())[self.match.dialogues :]
        return {
            f"held-{number:04d}-{key}": TriedDialogue(text, number, True, int(key), scenario)
            for number, text in tactics.items()
            for key, scenario in wanted
        }

    def scenarios(self) -> dict[str, Scenario]:
        """Return the scenarios of all dialogues by key, those of development first."""
        both = replace(self.match, dialogues=self.match.dialogues + self.num_held_out)
        return match_scenarios(both, self.roster.game)


class TacticWorker:
    """A worker that plays shards of dialogues."""

    def __init__(self, trials: TacticTrials) -> None:
        self._worker = MatchWorker(trials.roster)

    def run(self, shard: Shard[TriedDialogue]) -> list[dict[str, Any]]:
        """Return one row per dialogue, by `TACTICS`; dialogues of a tactic are played side by side."""
        rows = []
        speaker, target = self._worker.agents
        for tactic, group in groupby(zip(shard.keys, shard.items, strict=True), lambda pair: pair[1].tactic):
            keys, items = zip(*group, strict=True)
            self._worker.agents = cast("ChatNegotiator", speaker).with_tactic(tactic), target
            numbers = tuple(key.rpartition("-")[2] for key in keys)
            played = self._worker.run(Shard(shard.name, numbers, tuple(item.scenario for item in items)))
            for key, item, row in zip(keys, items, played, strict=True):
                about = {name: value for name, value in item._asdict().items() if name != "scenario"}
                rows.append(row | about | {"item_key": key})
        self._worker.agents = speaker, target
        return rows


Stream = tuple[str, int]
"""An attacker and the number of its stream, from 1."""
WRITTEN, CHOSEN = "tactic", "chosen"
"""Kinds of events: a written tactic, and the tactics of the held-out dialogues, by arm."""
_KINDS: Mapping[str, type] = {"str": str, "int": int}
_NEEDS: Mapping[str, Mapping[str, type]] = {
    WRITTEN: {column.name: _KINDS[str(column.type)] for column in fields(WrittenTactic)},
    CHOSEN: {"numbers": dict},
}
_SEEDS = 2**31
"""Seeds of answers are smaller: servers take no larger ones."""
_SHOWN = 200
"""Characters that are stored of an answer without a tactic."""


@dataclass(frozen=True, kw_only=True)
class TacticConfig(AttackConfig):
    """Settings of an attack by tactics: the target, the writer of tactics and the player."""

    attacker: str = ""
    """Chat model that writes the tactics: hf:FOLDER, gguf:FILE, openai:URL#MODEL, or path/file.py:Name of your own."""
    speaker: str = ""
    """Chat model that plays with a tactic; the attacker when empty."""
    source: str = ""
    """Run of parley attack tactic whose tactics are played against this target (transferred); no new ones are written."""
    dialogues: NumItems = 20
    """Development dialogues, in which each tactic is tried; the same for all."""
    held_out: NumItems = 200
    """Held-out dialogues, in which the best tactic of each attacker is measured."""
    search: TacticSettings = field(default_factory=TacticSettings)
    """How tactics are written."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in split_names(self.search.controls):
            if name not in self._controls:
                fix = f"search.controls: {','.join(self._controls)}"
                raise ConfigError(f"no control is called {name!r}{nearest(name, self._controls)}", fix=fix)
        if self.shard_size and self.dialogues % self.shard_size:
            what = "a shard holds dialogues of one tactic, so that its size divides their number"
            got = f"shard_size={self.shard_size}, dialogues={self.dialogues}"
            raise ConfigError(what, got=got, fix="leave out shard_size, or take a divisor")

    _controls = tuple(name for name in ATTACKERS if name != REFINED)

    @property
    def arms(self) -> list[str]:
        """The requested attackers, in the order of the table."""
        return [name for name in ATTACKERS if name == REFINED or name in split_names(self.search.controls)]

    @property
    def match(self) -> MatchConfig:
        """The development dialogues as a match under the attacks' rule."""
        sides: dict[str, Any] = {"adversary": self.speaker or self.attacker, "target": self.target, "complementary": True}
        return MatchConfig(**sides, **shared(self, OneMatchConfig)).match


@dataclass(frozen=True)
class TacticAttack:
    """An attack whose settings have been checked.

    Args:
        config: the settings.
        answers: folder of the run that stores answers; None before there is a run.
    """

    config: TacticConfig
    answers: Path | None = None

    @property
    def trials(self) -> TacticTrials:
        """The dialogues in which tactics are tried."""
        return TacticTrials(self.config.match, self.config.held_out, self.answers)

    @cached_property
    def attacker(self) -> ChatModel:
        """The writer of tactics, in this process; it takes the device only if no actor computes."""
        settings = self.config.chat.on("cpu" if self.config.workers else self.config.device)
        return chat_model(self.config.attacker, settings, answers=self.answers)

    def ask(self, streams: Mapping[Stream, Sequence[TriedTactic]], number: int) -> dict[Stream, WrittenTactic]:
        """Ask for the tactics of a round, which have no numbers yet: -1 marks a usable tactic, 0 an unusable answer.

        Args:
            streams: the tried tactics of each stream, by attacker and stream.
            number: the number of the round.

        Raises:
            ModelError: the attacker does not answer.
            ConfigError: even the shortest question is too long for it.
        """
        settings = self.config.search
        rules = domain_of(self.trials.roster.game).how_to_play
        seeds = {stream: derive_seed(self.config.seed, "attacker", stream[1], number) % _SEEDS for stream in streams}
        prompts = [(list(questions(stream[0], rules, tried, settings)), seeds[stream]) for stream, tried in streams.items()]
        decoding = ChatDecoding(temperature=settings.temperature, max_tokens=settings.max_tokens)
        lines = written_lines(
            self.attacker,
            prompts,
            decoding,
            lambda answer: read_line(answer, "tactic", settings.max_words),
            lambda problem: repair_request(problem, settings.max_words),
        )
        return {
            stream: WrittenTactic(
                *stream,
                number,
                0 if line.problem else -1,
                line.text[:_SHOWN] if line.problem else line.text,
                line.problem,
                len(line.answers),
                sum(answer.num_prompt_tokens or 0 for answer in line.answers),
                sum(answer.num_tokens or 0 for answer in line.answers),
            )
            for stream, line in zip(streams, lines, strict=True)
        }


def pair() -> TacticConfig:
    """Use three streams of five rounds, and as many tactics of each control (after Chao et al. 2023)."""
    return TacticConfig(target="scripted")


def quick() -> TacticConfig:
    """Use two streams of two rounds over few dialogues, which a small model on this machine plays in minutes."""
    return TacticConfig(target="scripted", dialogues=4, held_out=12, search=TacticSettings(rounds=2, streams=2))


class AttackTactic(Job[TacticConfig, TacticAttack, TacticAttack]):
    """`parley attack tactic`."""

    words = ("attack", "tactic")
    run_name = "attack-tactic"
    config = TacticConfig
    presets = {"pair": pair, "quick": quick}
    schema = TACTICS
    legend = LEGEND
    files = (TABLE_FILE, SUMMARY, "rows")
    resume_safe = RESUME_SAFE

    def transcripts(self, run: RunFolder) -> TranscriptRule:
        return dialogue_transcript

    def prepare(self, config: TacticConfig, path: Path, reporter: Reporter) -> TacticAttack:
        require_partner(config.target, "--target")
        attack = TacticAttack(config)
        if config.source:
            _source(config)
        elif not config.attacker:
            fix = "name one with --attacker: hf:FOLDER, gguf:FILE, openai:URL#MODEL, or path/file.py:Name"
            raise ConfigError("no attacker is named to write the tactics", where="--attacker", fix=fix)
        else:
            require_address(config.attacker)
            _ = attack.attacker
        if not is_chat_model(config.match.adversary):
            fix = "name one with --speaker: hf:FOLDER, gguf:FILE, openai:URL#MODEL, or a class of your own that answers"
            raise ConfigError("a tactic needs a chat model", where=config.match.adversary, got="another agent", fix=fix)
        attack.trials.roster.check()
        _require_held_out(attack.trials)
        return attack

    def work(self, run: RunFolder, prepared: TacticAttack, reporter: Reporter) -> TacticAttack:
        config = prepared.config
        attack = replace(prepared, answers=run.path / ANSWERS_FOLDER)
        if config.source:
            _copy_tactics(run, _source(config))
        else:
            self._refine(run, attack, reporter)
        played = played_tactics(run)
        texts = {0: "", **_texts(run)}
        best = {number: texts[number] for number in sorted(set(played.chosen.values()))}
        tried = {} if config.source else attack.trials.development(texts.items())
        run_items(run, attack.trials, tried | attack.trials.held_out(best), config, reporter, "held-out dialogues")
        return prepared

    def _refine(self, run: RunFolder, attack: TacticAttack, reporter: Reporter) -> None:
        """Write and try the remaining tactics, and choose the best of each attacker."""
        config = attack.config
        for number in range(1, config.search.rounds + 1):
            wanted = [(arm, stream) for arm in config.arms for stream in range(1, config.search.streams + 1)]
            written = written_tactics(run)
            if any(tactic.round > number for tactic in written):
                # The round is finished, and a later one has begun; its failed dialogues are played again with that one.
                continue
            done = {(tactic.arm, tactic.stream) for tactic in written if tactic.round == number}
            if left := [pair for pair in wanted if pair not in done]:
                reporter.say(f"round {number} of {config.search.rounds}: {len(left)} tactics are written")
                _record(run, attack.ask(_histories(run, config, left), number))
            tactics = {0: "", **_texts(run, number)}
            title = f"round {number} of {config.search.rounds}"
            run_items(run, attack.trials, attack.trials.development(tactics.items()), config, reporter, title)
        played = played_tactics(run)
        if not played.chosen:
            run.event(CHOSEN, numbers={arm: played.best(arm) for arm in (NONE, *config.arms)})

    def measure(self, run: RunFolder, attack: TacticAttack) -> Summary:
        config, played = attack.config, played_tactics(run)
        metrics = {f"{arm}.{name}": estimate for arm in played.chosen for name, estimate in played.metrics(arm).items()}
        search = config.search
        written = f"Streams of {config.attacker}: {search.streams}, rounds: {search.rounds}"
        if config.source:
            source = _source(config)
            written = f"Tactics of {config.source}, refined against {source.config['target']}"
            # The cost of the search for them.
            metrics |= {name: estimate for name, estimate in source.metrics().items() if name.partition(".")[2] in COSTS}
        description = (
            f"{written}; {config.match.adversary} plays; "
            f"development dialogues a tactic: {config.dialogues:,}, held-out ones an attacker's best: {config.held_out:,}; "
            f"{config.scenarios} scenarios, seed {config.seed}; the target alone chooses; {who_judges(config.match.judge)}."
        )
        return Summary(f"tactics against {config.target}", description, metrics)

    def models(self, config: TacticConfig) -> dict[str, str]:
        match = config.match
        return {"attacker": config.attacker, "speaker": match.adversary, "target": match.target, "judge": match.judge}

    def num_rows(self, config: TacticConfig, path: Path) -> int:
        run = RunFolder.load(path)
        chosen = _chosen(run)
        held_out = len(set(chosen.values())) * config.held_out
        tried = 0 if config.source else 1 + len(_texts(run))
        return tried * config.dialogues + held_out if chosen else -1

    def next_commands(self, config: TacticConfig, path: Path) -> tuple[str, ...]:
        commands = (shlex.join(["parley", "report", display_path(path)]),)
        if not (path / CONFIG).is_file():
            return commands
        run = RunFolder.load(path)
        if not (number := _chosen(run).get(REFINED)):
            return commands
        match = replace(config.match, tactic=_texts(run)[number], first=config.dialogues, dialogues=config.held_out)
        return (*commands, SELFPLAY.command(match, Path("runs", "told")))

    def tables(self, run: RunFolder) -> dict[str, EstimateTable]:
        return {"": tactics_table(run.metrics())}

    def present(self, result: Result, run: RunFolder) -> Result:
        written = written_tactics(run)
        failure = result.failure
        if written and not any(tactic.number for tactic in written):
            failure = f"the attacker wrote no tactic in {len(written)} answers, each repaired once: {written[0].problem}"
        return replace(result, tables={"": tactics_table(run.metrics(), brief=True)}, failure=failure)


def written_tactics(run: RunFolder) -> list[WrittenTactic]:
    """Return the attackers' tactics of a run so far, in the order of writing."""
    names = [column.name for column in fields(WrittenTactic)]
    return [WrittenTactic(**{name: event[name] for name in names}) for event in run.events(_NEEDS) if event["kind"] == WRITTEN]


def played_tactics(run: RunFolder) -> TacticResults:
    """Return the dialogues of a run, and the tactics of its attackers."""
    return TacticResults(run.rows(), written_tactics(run), _chosen(run))


def _chosen(run: RunFolder) -> dict[str, int]:
    choices = [event["numbers"] for event in run.events(_NEEDS) if event["kind"] == CHOSEN]
    return {arm: int(choices[0][arm]) for arm in ARMS if arm in choices[0]} if choices else {}


def _source(config: TacticConfig) -> RunFolder:
    """Return the finished run whose tactics are played."""
    run = RunFolder.load(fetched_run(config.source))
    alike = ("dialogues", "scenarios", "seed")
    finished = run.job == ATTACK_TACTIC.name and (run.path / SUMMARY).is_file()
    if not finished or any(run.config[name] != getattr(config, name) for name in alike):
        raise RunError(
            f"tactics are taken from a finished run of parley attack tactic with the same {', '.join(alike)}",
            where=config.source,
            got=f"a run of {run.job}" + "".join(f", {name} {run.config.get(name)}" for name in alike),
            fix="name another with --source, or the same dialogues, so that held-out ones chose no tactic",
        )
    return run


def _copy_tactics(run: RunFolder, source: RunFolder) -> None:
    """Copy the tactics of another run and its choice into the events of this run."""
    noted = written_tactics(run)
    for tactic in written_tactics(source):
        if tactic not in noted:
            run.event(WRITTEN, **asdict(tactic))
    if not _chosen(run):
        run.event(CHOSEN, numbers=_chosen(source))


def _texts(run: RunFolder, last_round: int | None = None) -> dict[int, str]:
    """Return the usable tactics by number; with a last round, only those of the rounds up to it."""
    wanted = [tactic for tactic in written_tactics(run) if tactic.number and (last_round is None or tactic.round <= last_round)]
    return {tactic.number: tactic.text for tactic in sorted(wanted, key=lambda tactic: tactic.number)}


def _record(run: RunFolder, written: Mapping[Stream, WrittenTactic]) -> None:
    """Record tactics as events; a new text gets the next number."""
    numbers = {text: number for number, text in _texts(run).items()}
    for tactic in written.values():
        number = 0 if tactic.problem else numbers.setdefault(tactic.text, 1 + max(numbers.values(), default=0))
        run.event(WRITTEN, **asdict(replace(tactic, number=number)))


def _histories(run: RunFolder, config: TacticConfig, streams: Sequence[Stream]) -> dict[Stream, list[TriedTactic]]:
    """Return the tried tactics of each stream, by attacker and stream."""
    played, settings = played_tactics(run), config.search
    histories: dict[Stream, list[TriedTactic]] = {}
    for arm, stream in streams:
        texts = {
            tactic.number: tactic.text
            for tactic in played.written
            if (tactic.arm, tactic.stream) == (arm, stream) and tactic.number
        }
        histories[arm, stream] = [
            TriedTactic(
                text,
                played.score(number),
                [transcript(row) for row in spread_out(played.tried.get(number, []), settings.transcripts)],
            )
            for number, text in texts.items()
        ]
    return histories


def _require_held_out(trials: TacticTrials) -> None:
    """Raise an error if a held-out dialogue has the scenario of a development dialogue; random scenarios differ."""
    if trials.match.scenarios.startswith(RANDOM):
        return
    # A file with too few scenarios is played in turn.
    dealt = [id(scenario) for scenario in trials.scenarios().values()]
    seen, unseen = set(dealt[: trials.match.dialogues]), set(dealt[trials.match.dialogues :])
    if seen & unseen:
        what = "there are too few scenarios for dialogues that are held out"
        got = f"{len(seen | unseen)} scenarios, {trials.match.dialogues} + {trials.num_held_out} dialogues"
        raise ConfigError(what, where=trials.match.scenarios, got=got, fix="lower --held-out or --dialogues, or name more")


ATTACK_TACTIC = AttackTactic()
