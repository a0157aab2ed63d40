"""Training of liars against a frozen player of MutualFriends: `parley train liar` (RLlib).

The policy stands between a body, which plays side 0, and the player, which hears claims now and then instead of what the body
means (`envs/mutual_friends/lies.py`). It is rewarded for chats that end late or without agreement, less a small cost of each
lie. It is measured on scenarios that it did not learn from, beside no lies and beside random ones at the same rate.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.checkpoints import require_checkpoint
from parley.engine.core.verbs.choices import ChoiceJob
from parley.engine.core.verbs.command import command_line
from parley.engine.core.verbs.device import threads
from parley.engine.core.verbs.job import Reporter, Summary
from parley.engine.core.verbs.sharded import session
from parley.engine.mutual_friends.metrics.lying import HARM, HONEST, LYING, POLICY, RANDOM, LiedTo, lying_metrics
from parley.engine.mutual_friends.verbs.agents import SCRIPTED, corpus_of, friends_agents, make_friends_agent
from parley.engine.mutual_friends.verbs.channels import LIAR, LIAR_MAKER, NONE
from parley.engine.mutual_friends.verbs.config import CollaborationConfig
from parley.envs.core.errors import ConfigError
from parley.envs.core.ranges import Configuration, NonNegativeInt, NumItems, PositiveInt
from parley.envs.core.storage.copies import CHECKPOINT
from parley.envs.core.storage.uris import display_path
from parley.envs.corpora.root import root_words
from parley.envs.mutual_friends.compiled import load_friends
from parley.envs.mutual_friends.corpora import EMBEDDED_FRIENDS
from parley.envs.mutual_friends.events import FriendsChat
from parley.envs.mutual_friends.game import FriendsRules
from parley.envs.mutual_friends.lies import Choice, LieRules, LyingGame, by_chance, num_lies
from parley.envs.mutual_friends.scenario import ScenarioOptions, check_schema
from parley.policies.chat.addresses import is_chat_address
from parley.policies.chat.answers import ANSWERS_FOLDER
from parley.policies.chat.friend import ChatFriend
from parley.policies.chat.seat import ChatSeat
from parley.policies.core.choosing_settings import ChoiceLearning, ChoiceSizes
from parley.policies.dynonet.settings import FriendsDecoding

if TYPE_CHECKING:
    from parley.engine.mutual_friends.rl.lying import LyingChats
    from parley.policies.dynonet.liar import Liar

RATE = "rate"
"""Entry of the summary: how often the liar lies while it may."""
MEASURED = "measured"
"""Kind of the event that holds the harm of every chat that measures, by who lied."""
_TRIED = 8


def liar_learning() -> ChoiceLearning:
    """Enough to tell better lies than chance to a small DynoNet."""
    return ChoiceLearning(updates=80, learning_rate=0.02)


@dataclass(frozen=True, kw_only=True)
class TrainLiarConfig(Configuration):
    """Which player a liar learns to mislead, and on what."""

    model: str = SCRIPTED
    """The frozen player: a run or checkpoint (parley train dynonet), a registered name (parley list), a chat model (hf:FOLDER,
    gguf:FILE, openai:URL#MODEL), or path/file.py:Name."""
    body: str = SCRIPTED
    """Who plays the liar's side, named in the same way."""
    start: str = ""
    """Run or checkpoint of a liar to go on from; a new one when empty."""
    corpus: str = ""
    """Corpus whose names friends have; that of the model when empty, and the built-in one of scripted players."""
    scenarios: NumItems = 300
    """Scenarios that measure the liar."""
    max_events: PositiveInt = 46
    """Utterances and selections after which a chat ends."""
    data_root: Path | None = None
    """Where corpora lie; PARLEY_DATA or the user cache folder when not given."""
    seed: NonNegativeInt = 1
    """Master seed."""
    threads: PositiveInt = 1
    """CPU threads that player and policy compute with."""
    save_every: PositiveInt = 10
    """Updates between saved training states."""
    game: LieRules = field(default_factory=LieRules)
    """What lies are allowed, and what they earn; those of --start stay as they were."""
    tables: ScenarioOptions = field(default_factory=ScenarioOptions)
    """How scenarios are drawn."""
    decoding: FriendsDecoding = field(default_factory=FriendsDecoding)
    """How models choose words; of chat models the temperature."""
    chat: ChatSeat = field(default_factory=ChatSeat)
    """How chat models take part."""
    liar: ChoiceSizes = field(default_factory=ChoiceSizes)
    """Widths of a new policy."""
    learning: ChoiceLearning = field(default_factory=liar_learning)
    """The learning rule."""


@dataclass(frozen=True)
class LiarWorld:
    """What a liar learns on, found and checked.

    Args:
        config: what was asked for.
        chats: the game with its players.
        liar: the policy as it begins.
    """

    config: TrainLiarConfig
    chats: LyingChats
    liar: Liar

    def play(self, choose: Choice) -> tuple[dict[int, FriendsChat], float]:
        """Return the chats that measure, by scenario, and how often it lied while it might."""
        chats = self.chats.chats(self.config.seed, "measured lies", range(self.config.scenarios))
        played, noted = self.chats.play(chats, choose)
        return played, sum(num_lies(played.values())) / max(sum(len(each.taken) for each in noted), 1)

    def compared(self, played: Mapping[str, Mapping[int, FriendsChat]]) -> dict[str, LiedTo]:
        """Return what chats came to, on the scenarios on which none of them was lost.

        Args:
            played: chats by scenario, by who lies.
        """
        game, found = self.chats.game, {}
        scenarios = sorted(set.intersection(*map(set, played.values())))
        for who, chats in played.items():
            kept = [chats[scenario] for scenario in scenarios]
            agreed, events = [chat.agreed for chat in kept], [len(chat.events) for chat in kept]
            found[who] = LiedTo([game.harm(chat) for chat in kept], agreed, events, num_lies(kept))
        return found


def opened_world(config: TrainLiarConfig, answers: Path | None = None) -> LiarWorld:
    """Reads what a training needs; chat models are loaded when they first play.

    Args:
        config: what is asked for.
        answers: folder in which answers of chat models are kept; None keeps none.

    Raises:
        ConfigError: no player or corpus is called so, or its schema has too few values.
        CheckpointError: a checkpoint is not there, or damaged.
        DataError: the corpus cannot be read.
    """
    from parley.engine.mutual_friends.rl.lying import LyingChats
    from parley.policies.dynonet.liar import load_liar, new_liar

    corpus = load_friends(config.corpus or corpus_of((config.model, config.body)) or EMBEDDED_FRIENDS, config.data_root)
    check_schema(corpus.schema, config.tables)
    how: dict[str, Any] = {"decoding": config.decoding, "seat": config.chat, "answers": answers}
    body, target = (make_friends_agent(spec, corpus, **how) for spec in (config.body, config.model))
    liar, rules = new_liar(config.liar, config.seed), config.game
    if config.start:
        liar, rules = load_liar(require_checkpoint(config.start, "--start", LIAR_MAKER))
    game = LyingGame(corpus.linker, body, target, rules, FriendsRules(max_events=config.max_events))
    return LiarWorld(config, LyingChats(game, config.tables), liar)


def training_chats(config: TrainLiarConfig, answers: Path | None = None) -> LyingChats:
    """What a configuration is played on; runners make it by themselves, because players are not sent."""
    return opened_world(config, answers).chats


def harms_of_lies(
    config: TrainLiarConfig, what: str, liars: Mapping[str, str | float], answers: Path
) -> Iterator[tuple[str, list[float | None]]]:
    """Yield the harm of each liar in every chat, one liar after the other; None where a chat was lost.

    Args:
        config: names the player, the body, and how many scenarios there are.
        what: the chats are for, a stream of its own.
        liars: runs of trained ones, or how often lies are told by chance, by name.
        answers: folder in which answers of chat models are kept.
    """
    from parley.policies.dynonet.liar import liar_choice, load_liar

    world = opened_world(config, answers.absolute()).chats
    chats = world.chats(config.seed, what, range(config.scenarios))
    for name, liar in liars.items():
        if isinstance(liar, str):
            policy, rules = load_liar(require_checkpoint(liar, "liar:RUN", LIAR_MAKER))
            choose = liar_choice(policy)
        else:
            choose, rules = by_chance(liar), config.game
        played, _ = replace(world, game=replace(world.game, rules=rules)).play(chats, choose)
        yield name, [world.game.harm(played[place]) if place in played else None for place in range(len(chats))]


def _lies_tried(world: LiarWorld) -> float:
    """How often a few chats give occasion to lie; chat models are asked nothing before there is a run, and always speak."""
    game = world.chats.game
    if isinstance(game.body, ChatFriend):
        return 1.0
    target = game.body if isinstance(game.target, ChatFriend) else game.target
    tried = replace(world, config=replace(world.config, scenarios=_TRIED))
    return replace(tried, chats=replace(world.chats, game=replace(game, target=target))).play(by_chance(1.0))[1]


def small() -> TrainLiarConfig:
    """Three lies a chat, 80 updates: minutes against a small DynoNet."""
    return TrainLiarConfig()


def quick() -> TrainLiarConfig:
    """Half as many updates, fewer chats to measure: a minute against the scripted player."""
    return TrainLiarConfig(scenarios=200, learning=replace(liar_learning(), updates=40))


class TrainLiar(ChoiceJob[TrainLiarConfig, LiarWorld]):
    """`parley train liar`."""

    words = ("train", "liar")
    run_name = "liar"
    config = TrainLiarConfig
    presets = {"small": small, "quick": quick}
    legend = LYING
    title = "learning to lie"
    told = "{agreed:.0%} agree after {events:.1f} events and {lies:.1f} lies"

    def prepare(self, config: TrainLiarConfig, path: Path, reporter: Reporter) -> LiarWorld:
        """Players, corpus and policy; some chats are played.

        Raises:
            ConfigError: besides what `opened_world` raises, the body says nothing in them that could be a lie.
        """
        world = opened_world(config, (path / ANSWERS_FOLDER).absolute())
        if not _lies_tried(world):
            what, fix = "the body says nothing that could be a lie", "name one that speaks"
            raise ConfigError(what, where="--body", got=config.body, fix=fix)
        return world

    def work(self, run: RunFolder, prepared: LiarWorld, reporter: Reporter) -> Summary:
        """Learns, saving and resuming exactly, measures, and stores the policy as `checkpoint`.

        Raises:
            DivergenceError: a gradient is not finite.
        """
        from parley.engine.mutual_friends.rl.lying import LiarModule, LiarRunner
        from parley.policies.dynonet.liar import liar_choice, save_liar

        config, liar, rules = prepared.config, prepared.liar, prepared.chats.game.rules
        with threads(config.threads), session(1, ""):
            save = partial(save_liar, liar, rules=rules, provenance={})
            chats = partial(training_chats, answers=(run.path / ANSWERS_FOLDER).absolute())
            self.learn(run, config, liar, save, chats, LiarRunner, LiarModule, reporter)
            reporter.say(f"measuring on {config.scenarios:,} scenarios, with its lies, random ones and none")
            by_policy, rate = prepared.play(liar_choice(liar))
            others = {RANDOM: prepared.play(by_chance(rate))[0], HONEST: prepared.play(by_chance(0.0))[0]}
            played = prepared.compared({POLICY: by_policy, **others})
        run.event(MEASURED, **{f"{HARM}{who}": list(chats.harm) for who, chats in played.items()})
        metrics = lying_metrics(played)
        about = {"model": config.model, "body": config.body, "seed": config.seed, HARM: metrics[HARM].value}
        save_liar(liar, run.path / CHECKPOINT, rules, about)
        return Summary(
            f"liar against {config.model}",
            f"{config.learning.updates} updates of {config.learning.examples_per_update} chats, at most {rules.lies} "
            f"lie{'s' * (rules.lies > 1)} a chat, {config.body} plays its side, seed {config.seed}.",
            metrics,
            {RATE: rate},
        )

    def models(self, config: TrainLiarConfig) -> Mapping[str, str]:
        named = {"model": config.model, "body": config.body, "start": config.start}
        return {option: spec for option, spec in named.items() if spec not in friends_agents}

    def next_commands(self, config: TrainLiarConfig, path: Path) -> tuple[str, ...]:
        """Who believes its lies, in both directions of play, and the model trained further against them."""
        run = display_path(path)
        names = ("model", "corpus", "data_root", "max_events", "tables", "decoding", "chat")
        same = {name: getattr(config, name) for name in names}
        asked = CollaborationConfig(strategies=f"{LIAR}{run}", controls=False, **same)
        heard = command_line(("evaluate", "collaboration"), {"": CollaborationConfig}, asked, run=None)
        commands = (*super().next_commands(config, path), heard)
        if config.model in friends_agents or ".py:" in config.model or is_chat_address(config.model):
            return commands
        further = ["parley", "train", "dynonet", "--start", config.model, "--against", f"{NONE},{LIAR}{run}"]
        further += ["--run", display_path(path.with_name(f"{path.name}-against")), *root_words(config.data_root)]
        return (*commands, shlex.join(further))


TRAIN_LIAR = TrainLiar()
