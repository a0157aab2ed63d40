"""Who is in a population, and the dialogues in which all its targets meet all its adversaries: shards and their worker.

A campaign keeps every target and every adversary that it trained. Each pair plays the same dialogues as under every attack: the
target alone chooses. A row is a dialogue of a pair; a shard is dialogues of few pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from parley.engine.core.ray.record import Counts, Rows
from parley.engine.core.ray.sharding import Shard
from parley.engine.core.runs.layout import SUMMARY
from parley.engine.core.runs.remote_sync import fetched_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.runs.schemas import OK
from parley.engine.core.verbs.repeated import TRAINING
from parley.engine.core.verbs.sharded import Sharded, ShardedConfig, spread
from parley.engine.negotiation.attacks.settings import DefenceConfig, ReinforceConfig
from parley.engine.negotiation.verbs import reinforce
from parley.engine.negotiation.verbs.agents import split_names, start_of, words_of
from parley.engine.negotiation.verbs.defended import defend
from parley.engine.negotiation.verbs.judge import judge_of
from parley.engine.negotiation.verbs.language import PUBLISHED
from parley.engine.negotiation.verbs.match import MatchConfig, MatchWorker, Roster, dialogue_seed
from parley.engine.negotiation.verbs.rows import DIALOGUES
from parley.engine.negotiation.verbs.scenario_sampling import RANDOM, game_of, match_scenarios
from parley.envs.core.errors import ConfigError, RunError
from parley.envs.core.ranges import NonNegativeFloat, NonNegativeInt, NumItems
from parley.envs.core.storage.uris import display_path
from parley.envs.negotiation.agents import make_agent
from parley.envs.negotiation.game import Agent, require_game
from parley.envs.negotiation.scenario import Scenario
from parley.envs.negotiation.vocabulary import Vocabulary
from parley.policies.chat.addresses import is_chat_address
from parley.policies.chat.seat import ChatSeat

_PAIR = (pa.field("target", pa.string()), pa.field("adversary", pa.string()), pa.field("number", pa.int64()))
PAYOFFS = pa.schema([*DIALOGUES, *_PAIR])
"""A dialogue of a payoff matrix: of which pair, and its number, which says its scenario and its draws in all pairs."""
_MOST_SIDE_BY_SIDE = 250
_CAMPAIGN, _CONTROL = "minmax", "control-"


@dataclass(frozen=True, kw_only=True)
class PopulationConfig(ShardedConfig):
    """Whose targets meet whose adversaries."""

    campaign: str = ""
    """Run of parley minmax, finished or not: every target and every adversary that it has trained."""
    targets: str = ""
    """Targets, oldest first, between commas: runs, registered names, or path/file.py:Name; beside those of the campaign."""
    adversaries: str = ""
    """Adversaries likewise; without any, nor a campaign, the targets play each other, each on both sides."""
    known: str = ""
    """Earlier runs of this verb, between commas, whose pairs are not played again."""
    meta: Literal["uniform", "prioritised", "nash"] = "nash"
    """Mixture of the targets that fresh adversaries are trained against."""
    num_fresh: NonNegativeInt = 0
    """Fresh adversaries that are trained against the mixture and then play it, each from a seed of its own; 0 for none."""
    speaker: str = ""
    """Where they start, and what the KL guard compares with; when empty as in the campaign, or the oldest target's own."""
    corpus: str = PUBLISHED
    """Corpus that the targets were fitted to, where adversaries are trained."""
    dialogues: NumItems = 500
    """Dialogues of each pair, the same for all."""
    scenarios: str = RANDOM
    """"random" for random legal scenarios, a corpus name for its self-play scenarios in turn, or a file of them."""
    temperature: NonNegativeFloat = 0.5
    """Of the models' word distributions; 0 takes the likeliest word."""
    complementary: bool = True
    """The target alone chooses and the adversary is given the complement (the attacks' rule)."""
    defence: DefenceConfig = field(default_factory=DefenceConfig)
    """What stands around every target."""
    judge: str = ""
    """Who judges in its filter; when empty each target, before any reinforcement."""
    chat: ChatSeat = field(default_factory=ChatSeat)
    """How chat models take part."""
    learner_gpus: NonNegativeFloat = 0.0
    """GPUs, or a fraction of one, that a fresh adversary's learner computes with."""
    runner_gpus: NonNegativeFloat = 0.0
    """GPUs, or a fraction of one, that each worker plays on while a fresh adversary learns."""
    reinforce: ReinforceConfig = field(default_factory=lambda: reinforce.cheng2019().reinforce)
    """The learning rule of fresh adversaries."""


class PairedDialogue(NamedTuple):
    """One dialogue of the matrix."""

    target: str
    adversary: str
    number: int
    scenario: Scenario


@dataclass(frozen=True)
class Population(Sharded[PairedDialogue]):
    """Targets and adversaries by name, made afresh in each worker, each once.

    Args:
        config: how they play.
        targets: oldest first.
        adversaries: oldest first.
        answers: folder of the run in which chat models' answers are kept; None keeps none.
    """

    unit = "dialogues"
    event = "played"

    config: PopulationConfig
    targets: tuple[str, ...]
    adversaries: tuple[str, ...]
    answers: Path | None = None

    def seed(self, key: str) -> int:
        return dialogue_seed(self.config.seed, key.rpartition("-")[2])

    def worker(self) -> PopulationWorker:
        return PopulationWorker(self)

    def checkpoints(self) -> tuple[str, ...]:
        return tuple(spec for spec in dict.fromkeys((*self.targets, *self.adversaries)) if not is_chat_address(spec))

    def shard_size(self, num_items: int, num_workers: int) -> int:
        return spread(num_items, num_workers, _MOST_SIDE_BY_SIDE)

    def digest(self, rows: Rows) -> Counts:
        return Counter(dialogues=sum(row["status"] == OK for row in rows))

    def match(self, adversary: str = "", target: str = "") -> MatchConfig:
        """How a pair plays."""
        names = ("dialogues", "scenarios", "seed", "temperature", "complementary", "data_root", "defence")
        return MatchConfig(adversary=adversary, target=target, **{name: getattr(self.config, name) for name in names})

    def words(self) -> Vocabulary:
        """Of agents that bring none along."""
        return words_of((*self.targets, *self.adversaries), game_of(self.config.scenarios))

    def items(self, known: Sequence[Mapping[str, Any]]) -> dict[str, PairedDialogue]:
        """The dialogues of the pairs that are not known, by key; keys of a pair stand together.

        Raises:
            ConfigError: an agent plays another game than the scenarios are of.
        """
        game = self.words().game
        scenarios = match_scenarios(self.match(), game)
        for spec in (*self.targets, *self.adversaries):
            require_game(words_of([spec], game).game, list(scenarios.values()), where=spec)
        played = {(row["target"], row["adversary"]) for row in known}
        return {
            f"{t:03d}-{a:03d}-{key}": PairedDialogue(target, adversary, number, scenario)
            for t, target in enumerate(self.targets)
            for a, adversary in enumerate(self.adversaries)
            if (target, adversary) not in played
            for number, (key, scenario) in enumerate(scenarios.items())
        }


@dataclass(frozen=True)
class _PairRoster(Roster):
    """A match of two agents that are there already.

    Args:
        pair: the adversary and the target.
    """

    pair: tuple[Agent, Agent]

    def agents(self, device: str = "cpu") -> tuple[Agent, Agent]:
        return self.pair


class PopulationWorker:
    """Plays shards of the matrix and returns their rows."""

    def __init__(self, population: Population) -> None:
        self._population = population
        self._vocabulary = population.words()
        self._agents: dict[str, Agent] = {}
        self._targets: dict[str, Agent] = {}

    def run(self, shard: Shard[PairedDialogue]) -> list[dict[str, Any]]:
        """One row per dialogue, by `PAYOFFS`; dialogues of a pair are played side by side, as those of its match."""
        rows = []
        for (target, adversary), found in groupby(zip(shard.keys, shard.items, strict=True), lambda one: one[1][:2]):
            keys, pairs = zip(*found, strict=True)
            match = self._population.match(adversary, target)
            worker = MatchWorker(_PairRoster(match, (self._agent(adversary), self._target(target))))
            numbers = tuple(key.rpartition("-")[2] for key in keys)
            played = worker.run(Shard(shard.name, numbers, tuple(pair.scenario for pair in pairs)))
            for key, pair, row in zip(keys, pairs, played, strict=True):
                rows.append(row | {"item_key": key, "target": target, "adversary": adversary, "number": pair.number})
        return rows

    def _agent(self, name: str) -> Agent:
        if name not in self._agents:
            config, kept = self._population.config, self._population.answers
            how = {"seat": config.chat, "answers": kept}
            self._agents[name] = make_agent(name, self._vocabulary, config.temperature, config.device, **how)
        return self._agents[name]

    def _target(self, name: str) -> Agent:
        if name not in self._targets:
            config = self._population.config
            judge = judge_of(config.judge, (name,))
            self._targets[name] = defend(self._agent(name), config.defence, judge, config.device, config.chat)
        return self._targets[name]


def fresh_start(config: PopulationConfig, targets: Sequence[str]) -> tuple[str, str]:
    """Where fresh adversaries start, and what says so: adversaries of a campaign start alike, whenever they are trained.

    Args:
        config: who plays.
        targets: oldest first.

    Raises:
        CheckpointError: none is named, and the oldest target has no weights to start from.
        RunError: the campaign is none.
    """
    if config.speaker or not config.campaign:
        start = start_of(config.speaker, targets[0], "--speaker")
        return start, "--speaker" if config.speaker else "--targets"
    campaign = _campaign(fetched_run(config.campaign), config.campaign).config
    return campaign["speaker"] or campaign["target"], "the campaign"


def members(config: PopulationConfig) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The targets and the adversaries that a configuration names, oldest first, each once.

    Raises:
        ConfigError: there are none on one side.
        RunError: the campaign is none.
    """
    targets, adversaries = list(_of_campaign(config.campaign)) if config.campaign else [[], []]
    targets += split_names(config.targets)
    adversaries += split_names(config.adversaries) or ([] if config.campaign else split_names(config.targets))
    for role, option, found in (("a target", "targets", targets), ("an adversary", "adversaries", adversaries)):
        if not found:
            fix = f"name a campaign, or agents with --{option}"
            raise ConfigError(f"a population needs {role} at least", where=config.campaign or None, fix=fix)
    return tuple(dict.fromkeys(targets)), tuple(dict.fromkeys(adversaries))


def _of_campaign(name: str) -> tuple[list[str], list[str]]:
    """What a campaign starts from and what it has trained, in the order of its stages; of several seeds one after the other.

    The control and its adversaries stand before the rounds, whose last target is the newest: it is the start otherwise trained.
    """
    path = fetched_run(name)
    run = _campaign(path, name)
    found = {"train-target": [run.config["target"]], "train-adversary": list(filter(None, [run.config["adversary"]]))}
    # Those of several seeds lie in folders of their own.
    seeds = run.config.get("seeds", 1)
    campaigns = [path] if seeds == 1 else [path / f"{TRAINING}-{number}" for number in range(1, seeds + 1)]
    for campaign in campaigns:
        made = sorted([*campaign.glob(f"*/{SUMMARY}"), *campaign.glob(f"*/*/{SUMMARY}")])
        for summary in sorted(made, key=lambda one: not one.relative_to(campaign).parts[0].startswith(_CONTROL)):
            found.get(RunFolder.load(summary.parent).job, []).append(display_path(summary.parent))
    return found["train-target"], found["train-adversary"]


def _campaign(path: Path, name: str) -> RunFolder:
    run = RunFolder.load(path)
    if run.job != _CAMPAIGN:
        fix = "name agents with --targets and --adversaries"
        raise RunError("this is no campaign of adversarial training", where=name, got=f"a run of {run.job}", fix=fix)
    return run
