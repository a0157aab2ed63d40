"""Bots that look for common friends by name, `parley play friends`, and the training of liars (`parley train liar`, RLlib).

Bots are scripted, only select, or are trained models, chat models or a user's own.

A liar is a policy between a body, which plays side 0, and a frozen player, which sometimes hears a claim instead of the body's
utterance (`envs/mutual_friends/lies.py`). The reward is high for chats that end late or without agreement, minus a small cost
per lie. The liar is measured on new scenarios, beside no lies and beside random lies at the same rate.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro import conf

from parley.engine.core.cli.flags import parse
from parley.engine.core.cli.main import Verb
from parley.engine.core.cli.screen import StandardTerminal, Terminal, make_console, show_lines, watching
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import repeated
from parley.engine.core.verbs.checkpoints import checkpoint_folder, require_checkpoint, threads
from parley.engine.core.verbs.job import Reporter, Summary, command_line
from parley.engine.core.verbs.sharded import session
from parley.engine.core.verbs.supervised import ChoiceJob
from parley.engine.mutual_friends.metrics.lying import HARM, HONEST, LYING, POLICY, RANDOM, LiedTo, lying_metrics
from parley.engine.mutual_friends.verbs.config import LIAR, LIAR_MAKER, NONE, MutualFriendsConfig
from parley.envs.core.config import Configuration, NonNegativeFloat, NonNegativeInt, NumItems, PositiveInt
from parley.envs.core.errors import ConfigError
from parley.envs.core.play import agent_errors
from parley.envs.core.registry import Registry, made_by, own_code, own_start, takes_messages
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.core.storage.copies import CHECKPOINT
from parley.envs.core.storage.uris import display_path
from parley.envs.corpora.arrow import root_words
from parley.envs.mutual_friends.compiled import EMBEDDED_FRIENDS, FriendsCorpus, load_friends
from parley.envs.mutual_friends.game import (
    Act,
    ChatEvent,
    FriendsAgent,
    FriendsChat,
    FriendsRules,
    FriendsSession,
    FriendsView,
    play_friends,
)
from parley.envs.mutual_friends.lies import Choice, LieRules, LyingGame, by_chance, num_lies
from parley.envs.mutual_friends.scenario import ScenarioOptions, chat_words, check_schema, random_friends
from parley.envs.mutual_friends.scripted.bots import FriendsBot
from parley.policies.chat.addresses import is_chat_address
from parley.policies.chat.answers import OwnChatModel, kept_answers
from parley.policies.chat.friend import ChatFriend
from parley.policies.chat.model import ANSWERS_FOLDER
from parley.policies.chat.seat import chat_model, require_address
from parley.policies.chat.settings import DEFAULT, ChatAsking, ChatSeat
from parley.policies.core.settings import ChoiceLearning, ChoiceSizes
from parley.policies.dynonet.settings import FriendsDecoding

if TYPE_CHECKING:
    from parley.engine.mutual_friends.rl import LyingChats
    from parley.policies.dynonet.agent import Liar


SCRIPTED = "scripted"
MAKER = "parley train dynonet"
"""The command that makes a checkpoint of such a bot."""

friends_agents = Registry("bot that looks for friends", "parley.friends_agents")
friends_agents.register(SCRIPTED, "asks and tells by templates, selects when sure", f"{__name__}:scripted_bot")
_SELECTORS = "parley.engine.mutual_friends.channels"
friends_agents.register("selector", "selects at random, else what the other selects", f"{_SELECTORS}:selector")
friends_agents.register("blind-selector", "selects at random, whatever the other does", f"{_SELECTORS}:blind_selector")


def make_friends_agent(
    spec: str,
    corpus: FriendsCorpus,
    decoding: FriendsDecoding | None = None,
    device: str = "cpu",
    seat: ChatSeat | None = None,
    answers: Path | None = None,
) -> FriendsAgent:
    """Make the bot of a name.

    Args:
        spec: a run or checkpoint folder, a registered name, the address of a chat model, or `path/file.py:Name` of a class or
            function that is called with the corpus, or with nothing, and gives a `FriendsAgent` or a chat model.
        corpus: whose names friends have.
        decoding: how a model chooses words; as released when not given.
        device: that a model computes on.
        seat: how a chat model is loaded or asked; as by default when not given.
        answers: folder in which a chat model's answers are kept; None keeps none.

    Raises:
        ConfigError: nothing is called that, or the file of a user's own makes no bot.
        CheckpointError: the checkpoint is missing, damaged or of another kind.
    """
    temperature, seat = (decoding or FriendsDecoding()).temperature, seat or ChatSeat()
    if is_chat_address(spec):
        require_address(spec)
        return ChatFriend(spec, partial(chat_model, spec, seat.on(device), answers=answers), temperature, seat.max_tokens)
    if ".py:" in spec:
        user_agent = OwnFriendsAgent(spec, corpus, seat)
        if user_agent.chat_model is None:
            return user_agent
        return ChatFriend(spec, partial(kept_answers, user_agent.chat_model, answers), temperature, seat.max_tokens)
    if spec in friends_agents:
        agent: FriendsAgent = made_by(friends_agents.get(spec), corpus)
        return agent
    folder = require_checkpoint(spec, "--model", MAKER)
    from parley.policies.dynonet.agent import load_friends_agent

    return load_friends_agent(folder, corpus.linker, device=device, decoding=decoding)


def corpus_of(specs: Sequence[str]) -> str:
    """Return the training corpus of the first model among some bots; empty without a model."""
    for spec in specs:
        is_run = not (".py:" in spec or spec in friends_agents or is_chat_address(spec))
        folder = checkpoint_folder(spec) if is_run else None
        if folder is not None:
            from parley.policies.dynonet import model as checkpoints

            return checkpoints.corpus_of(folder)
    return ""


def scripted_bot(corpus: FriendsCorpus) -> FriendsBot:
    """Make the bot of the scripted corpora."""
    return FriendsBot(corpus.linker)


class OwnFriendsAgent:
    """A user's bot as a `FriendsAgent`; its mistakes are reported as the user's.

    Args:
        spec: `path/file.py:Name`; also its name in reports.
        corpus: whose names friends have.
        settings: how it is asked, where it is a chat model.

    Attributes:
        chat_model: the user's object, if it is a chat model, which does not join by itself.

    Raises:
        ConfigError: the user's code raised, or made something that cannot play.
    """

    def __init__(self, spec: str, corpus: FriendsCorpus, settings: ChatAsking = DEFAULT) -> None:
        self.name = spec
        maker = friends_agents.get(spec)
        if not callable(maker):
            raise ConfigError("this makes no bot", where=spec, got=repr(maker), fix="name a class or a function")
        with own_start(spec):
            self._agent = maker if takes_messages(maker) else made_by(maker, corpus)
        joins, *answers = (callable(getattr(self._agent, name, None)) for name in ("join", "answer", "reply"))
        is_chat_model = takes_messages(maker) or (any(answers) and not joins)
        self.chat_model: OwnChatModel | None = None
        if is_chat_model:
            self.chat_model = OwnChatModel(spec, self._agent, settings.on("cpu"))
        else:
            self._require(self._agent, ("join",))

    def join(self, view: FriendsView) -> FriendsSession:
        """Take a side."""
        with own_code(self.name):
            session = self._agent.join(view)
        self._require(session, ("enter", "hear", "act"))
        return _OwnFriendsSession(session, self.name)

    def _require(self, part: object, methods: Sequence[str]) -> None:
        missing = [name for name in methods if not callable(getattr(part, name, None))]
        if missing:
            what, fix = (
                f"it has no method {' or '.join(missing)}",
                "envs/mutual_friends/game.py says what a bot and its sessions have",
            )
            raise ConfigError(what, where=self.name, got=type(part).__name__, fix=fix)


class _OwnFriendsSession:
    """A user's session."""

    def __init__(self, session: FriendsSession, spec: str) -> None:
        self._session, self._spec = session, spec

    def enter(self, rows: list[int]) -> None:
        with agent_errors(), own_code(self._spec):
            self._session.enter(rows)

    def hear(self, rows: list[int], events: list[ChatEvent]) -> None:
        with agent_errors(), own_code(self._spec):
            self._session.hear(rows, events)

    def act(self, rows: list[int]) -> Sequence[Act]:
        with agent_errors(), own_code(self._spec):
            acts: Any = self._session.act(rows)
        if isinstance(acts, str) or len(acts) != len(rows):
            got, fix = f"{repr(acts)[:80]} for {len(rows)}", "return a list with an act for each of the rows"
            raise ConfigError("act gives an act for each row", where=self._spec, got=got, fix=fix)
        return list(acts)


HELP = """Type what you say. Commands:
  /select 3   select friend 3 of your table; you may select again later
  /table      your friends again
  /help       this list
  /quit       leave"""


@dataclass(frozen=True, kw_only=True)
class PlayFriendsArguments(Configuration):
    """The partner and the corpus of a chat."""

    partner: str = SCRIPTED
    """Bot: a run or checkpoint folder (parley train dynonet), registered name (parley list), chat model (hf:FOLDER, gguf:FILE,
    openai:URL#MODEL), or path/file.py:Name."""
    corpus: Annotated[str, conf.arg(help_behavior_hint="")] = ""
    """Corpus whose names friends have; that of the bot when not given."""
    seed: NonNegativeInt = 1
    """Decides both tables, who begins, and every random draw."""
    temperature: NonNegativeFloat = 0.5
    """Of a model's word distribution; 0 takes the likeliest word."""


def run_play_friends(verb: Verb, arguments: Sequence[str]) -> int:
    """Play one chat; return the exit status."""
    parsed = parse(PlayFriendsArguments, verb, arguments)
    with watching():
        corpus = load_friends(parsed.corpus or corpus_of((parsed.partner,)) or EMBEDDED_FRIENDS)
        partner = make_friends_agent(parsed.partner, corpus, FriendsDecoding(temperature=parsed.temperature))
    scenario = random_friends(corpus.schema, stream(parsed.seed, "scenario", "played"))
    terminal = StandardTerminal()
    terminal.show(
        f"You and {parsed.partner} have one friend in common. Find out who, then both select that friend.\n\n{HELP}\n"
    )
    try:
        (chat,) = play_friends([(scenario, derive_seed(parsed.seed, "played"))], (FriendsPerson(terminal), partner))
    except KeyboardInterrupt:
        terminal.show("\nyou left, no friend was found")
        return 0
    terminal.show(f"\n{_outcome(chat)}")
    again = ["parley", "play", "friends", "--partner", parsed.partner, "--seed", str(parsed.seed + 1)]
    again += ["--corpus", parsed.corpus] if parsed.corpus else []
    again += ["--temperature", str(parsed.temperature)] if parsed.temperature != PlayFriendsArguments.temperature else []
    show_lines(make_console(), "next", [shlex.join(again)])
    return 0


class FriendsPerson:
    """A person as a `FriendsAgent`.

    Args:
        terminal: where the person sits.
    """

    name = "human"

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    def join(self, view: FriendsView) -> _PersonChats:
        """Take a side."""
        return _PersonChats(view, self._terminal)


class _PersonChats:
    """A person's part in chats, one event after the other."""

    def __init__(self, view: FriendsView, terminal: Terminal) -> None:
        self._view, self._terminal = view, terminal

    def enter(self, rows: list[int]) -> None:
        for row in rows:
            self._terminal.show(self._table(row))

    def hear(self, rows: list[int], events: list[ChatEvent]) -> None:
        for event in events:
            # The typed line is on the screen already.
            if event.side != self._view.side:
                self._terminal.show(f"partner: {_shown(event)}")

    def act(self, rows: list[int]) -> Sequence[Act]:
        return [self._act(row) for row in rows]

    def _act(self, row: int) -> Act:
        while True:
            line = self._terminal.ask("you: ")
            command, _, argument = line.partition(" ")
            if line == "/quit":
                raise KeyboardInterrupt
            if line == "/help":
                self._terminal.show(HELP)
            elif line == "/table":
                self._terminal.show(self._table(row))
            elif command == "/select":
                num = len(self._view.table(row))
                if argument.isascii() and argument.isdigit() and 1 <= int(argument[:9]) <= num:
                    return int(argument) - 1
                self._terminal.show(f"give the number of a friend, 1 to {num}, such as /select 2")
            elif line.startswith("/"):
                self._terminal.show(f"there is no command {command}; /help lists them")
            elif words := chat_words(line):
                return words

    def _table(self, row: int) -> str:
        lines = [("", *(attribute.name for attribute in self._view.attributes(row)))]
        lines += [(str(number), *item) for number, item in enumerate(self._view.table(row), 1)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        rows = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)
        return "\n".join(["your friends:", *rows, ""])


def _shown(event: ChatEvent) -> str:
    return " ".join(event.words) if event.selected is None else f"selects {', '.join(event.item)}"


def _outcome(chat: FriendsChat) -> str:
    common = ", ".join(chat.scenario.tables[0][chat.scenario.shared[0]])
    outcome = f"both selected after {len(chat.events)} events" if chat.agreed else f"no agreement in {len(chat.events)} events"
    # Sessions do not hear the last event.
    last = f"partner: {_shown(chat.events[-1])}\n" if chat.events[-1].side else ""
    return f"{last}{outcome}; the common friend: {common}"


RATE = "rate"
"""Entry of the summary: the rate of lies while the liar may lie."""
MEASURED = "measured"
"""Kind of the event with the harm of every measured chat, by liar."""
_TRIED = 8


def liar_learning() -> ChoiceLearning:
    """Return a recipe that learns better lies than chance against a small DynoNet."""
    return ChoiceLearning(updates=80, learning_rate=0.02)


@dataclass(frozen=True, kw_only=True)
class TrainLiarConfig(Configuration):
    """The player that a liar learns to mislead, and the scenarios."""

    model: str = SCRIPTED
    """The frozen player: a run or checkpoint (parley train dynonet), a registered name (parley list), a chat model (hf:FOLDER,
    gguf:FILE, openai:URL#MODEL), or path/file.py:Name."""
    body: str = SCRIPTED
    """The player of the liar's side, named in the same way."""
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
    """Limits and rewards of lies; a liar of --start keeps its own."""
    tables: ScenarioOptions = field(default_factory=ScenarioOptions)
    """The draws of scenarios."""
    decoding: FriendsDecoding = field(default_factory=FriendsDecoding)
    """The decoding of models; chat models use its temperature."""
    chat: ChatSeat = field(default_factory=ChatSeat)
    """Settings of chat models that take part."""
    liar: ChoiceSizes = field(default_factory=ChoiceSizes)
    """Widths of a new policy."""
    learning: ChoiceLearning = field(default_factory=liar_learning)
    """The learning rule."""


@dataclass(frozen=True)
class LiarWorld:
    """The checked parts of a training of a liar.

    Args:
        config: of the training.
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
        return played, sum(num_lies(played.values())) / max(sum(len(decisions.taken) for decisions in noted), 1)

    def compared(self, played: Mapping[str, Mapping[int, FriendsChat]]) -> dict[str, LiedTo]:
        """Return the results of chats on the scenarios on which none of them was lost.

        Args:
            played: chats by scenario, by who lies.
        """
        game, results = self.chats.game, {}
        scenarios = sorted(set.intersection(*map(set, played.values())))
        for who, chats in played.items():
            kept = [chats[scenario] for scenario in scenarios]
            agreed, events = [chat.agreed for chat in kept], [len(chat.events) for chat in kept]
            results[who] = LiedTo(
                [game.harm(chat) for chat in kept], agreed, events, num_lies(kept), [_repeated(chat) for chat in kept]
            )
        return results


def _repeated(chat: FriendsChat) -> tuple[int, int]:
    counts = [repeated(event.words) for event in chat.events if event.side == 1 and event.selected is None]
    return sum(again for again, _ in counts), sum(num for _, num in counts)


def opened_world(config: TrainLiarConfig, answers: Path | None = None) -> LiarWorld:
    """Load the corpus, players and policy of a training; chat models load at their first request.

    Args:
        config: of the training.
        answers: folder in which answers of chat models are kept; None keeps none.

    Raises:
        ConfigError: no player or corpus is called so, or its schema has too few values.
        CheckpointError: a checkpoint is not there, or damaged.
        DataError: the corpus cannot be read.
    """
    from parley.engine.mutual_friends.rl import LyingChats
    from parley.policies.dynonet.agent import load_liar, new_liar

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
    """Make the chats of a configuration; each runner makes its own, because players are not sent."""
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
    from parley.policies.dynonet.agent import liar_choice, load_liar

    world = opened_world(config, answers.absolute()).chats
    chats = world.chats(config.seed, what, range(config.scenarios))
    for name, liar in liars.items():
        if isinstance(liar, str):
            policy, rules = load_liar(require_checkpoint(liar, "liar:RUN", LIAR_MAKER))
            choose = liar_choice(policy)
        else:
            choose, rules = by_chance(liar), config.game
        played, _ = replace(world, game=replace(world.game, rules=rules)).play(chats, choose)
        yield name, [world.game.harm(played[number]) if number in played else None for number in range(len(chats))]


def _lies_tried(world: LiarWorld) -> float:
    """Return the rate of chances to lie in a few chats; 1 if a chat model speaks."""
    game = world.chats.game
    if isinstance(game.body, ChatFriend):
        return 1.0
    target = game.body if isinstance(game.target, ChatFriend) else game.target
    tried = replace(world, config=replace(world.config, scenarios=_TRIED))
    return replace(tried, chats=replace(world.chats, game=replace(game, target=target))).play(by_chance(1.0))[1]


def small() -> TrainLiarConfig:
    """Train a liar with three lies a chat and 80 updates: minutes against a small DynoNet."""
    return TrainLiarConfig()


def quick() -> TrainLiarConfig:
    """Train a liar with half as many updates and fewer chats: a minute against the scripted player."""
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
        """Load players, corpus and policy, and play some chats.

        Raises:
            ConfigError: as `opened_world`, or the body says nothing that a lie could replace.
        """
        world = opened_world(config, (path / ANSWERS_FOLDER).absolute())
        if not _lies_tried(world):
            what, fix = "the body says nothing that could be a lie", "name one that speaks"
            raise ConfigError(what, where="--body", got=config.body, fix=fix)
        return world

    def work(self, run: RunFolder, prepared: LiarWorld, reporter: Reporter) -> Summary:
        """Train and measure the policy, resuming exactly; store it as `checkpoint`.

        Raises:
            DivergenceError: a gradient is not finite.
        """
        from parley.engine.mutual_friends.rl import LiarModule, LiarRunner
        from parley.policies.dynonet.agent import liar_choice, save_liar

        config, liar, rules = prepared.config, prepared.liar, prepared.chats.game.rules
        with threads(config.threads), session(1, ""):
            save = partial(save_liar, liar, rules=rules, provenance={})
            chats = partial(training_chats, answers=(run.path / ANSWERS_FOLDER).absolute())
            self.learn(run, config, liar, save, chats, LiarRunner, LiarModule, reporter)
            reporter.say(f"measuring on {config.scenarios:,} scenarios, with its lies, random ones and none")
            by_policy, rate = prepared.play(liar_choice(liar))
            controls = {RANDOM: prepared.play(by_chance(rate))[0], HONEST: prepared.play(by_chance(0.0))[0]}
            played = prepared.compared({POLICY: by_policy, **controls})
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
        run = display_path(path)
        names = ("model", "corpus", "data_root", "max_events", "tables", "decoding", "chat")
        same = {name: getattr(config, name) for name in names}
        evaluation = MutualFriendsConfig(strategies=f"{LIAR}{run}", controls=False, **same)
        heard = command_line(("evaluate", "collaboration"), {"": MutualFriendsConfig}, evaluation, run=None)
        commands = (*super().next_commands(config, path), heard)
        if config.model in friends_agents or ".py:" in config.model or is_chat_address(config.model):
            return commands
        further = ["parley", "train", "dynonet", "--start", config.model, "--against", f"{NONE},{LIAR}{run}"]
        further += ["--run", display_path(path.with_name(f"{path.name}-against")), *root_words(config.data_root)]
        return (*commands, shlex.join(further))


TRAIN_LIAR = TrainLiar()
