"""Training of DynoNets: `parley train dynonet`.

Source: He et al. 2017 (arXiv 1704.07130); the model is `policies/dynonet/model.py`. Beside perplexities a run reports how
often the model finds the common friend with itself, on scenarios of the test split.

A training may go on from a checkpoint (`--start`) on chats whose utterances strategies change (`--against`): each chat of the
training and validation splits meets one strategy, drawn by its key, on the way to both listeners. The targets stay the recorded
moves, so the model learns to go on as if it had not been misled. Test chats stay unchanged.

  * # Paper (Niu & Bansal 2018): the collaborative task is attacked, and nobody trains against it. Ours: as its dialogue models
    are trained against Should-Not-Change strategies, perturbed inputs with recorded replies; `--against none` trains as long.

The judge of heard utterances is a chat model that gives likelihoods, as in `selfplay` of negotiations. It scores an utterance
as the speaker's answer, given the rules, that side's table, and the events that both sides have heard and seen so far.

On recorded chats, a fitted model is measured by the likelihood of the recorded words and selections: as in training, it hears
one side and predicts the moves of the other.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import numpy as np

from parley.engine.core.stats.statistics import Estimate, clustered_rate, mean_count, perplexity, rate
from parley.engine.core.verbs.checkpoints import require_checkpoint, require_device, threads
from parley.engine.core.verbs.job import Reporter, command_line
from parley.engine.core.verbs.supervised import FitJob, Fitting, SupervisedConfig, estimates, require_splits
from parley.engine.mutual_friends.metrics.chats import (
    ENTITY_PERPLEXITY,
    FRIENDS_TRAINING,
    ITEM_PERPLEXITY,
    KNOWN_PERPLEXITY,
    LINKED,
    MODEL,
    RECORDED_PERPLEXITY,
    TRAINED,
    UNKNOWN,
    of,
)
from parley.engine.mutual_friends.verbs.agents import MAKER, friends_agents
from parley.engine.mutual_friends.verbs.config import (
    NONE,
    Channels,
    MutualFriendsConfig,
    is_chat_liar,
    label_of,
    liars_of,
    misheard,
    strategy_list,
)
from parley.engine.perturb.strategy import PerturbSettings
from parley.envs.core.config import NonNegativeInt, PositiveInt, check
from parley.envs.core.errors import ConfigError
from parley.envs.core.play import agent_errors
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.core.storage.uris import display_path
from parley.envs.corpora.arrow import root_words
from parley.envs.mutual_friends.compiled import EMBEDDED_FRIENDS, FriendsCorpus, load_friends
from parley.envs.mutual_friends.game import FriendsChat, FriendsGame, FriendsView
from parley.envs.mutual_friends.lies import LieRules
from parley.policies.chat.addresses import is_chat_address
from parley.policies.chat.friend import message_of, talk
from parley.policies.chat.model import ANSWERS_FOLDER, Chat, ScoringChatModel
from parley.policies.chat.seat import PlacedUtterance, chat_model, nats_of, require_chat_judge
from parley.policies.chat.settings import ChatSeat
from parley.policies.core.settings import FitConfig
from parley.policies.dynonet.settings import DynoNetSizes, FriendsDecoding, dynonet_demo, dynonet_fit, dynonet_small

if TYPE_CHECKING:
    from parley.envs.mutual_friends.game import Channel
    from parley.policies.core.fitting.batches import Fitness
    from parley.policies.dynonet.batches import SideExamples
    from parley.policies.dynonet.model import DynoNet


class HeardJudge:
    """A chat model that judges heard utterances.

    Args:
        model: that gives likelihoods.
    """

    def __init__(self, model: ScoringChatModel) -> None:
        self._model = model

    def nats(self, chats: Sequence[FriendsChat]) -> list[list[float]]:
        """Return the surprise of each side's utterances as heard, in nats, by chat and side.

        Raises:
            AgentError: the model failed, or messages do not fit.
        """
        game = FriendsGame(len(chats))
        game.enter(range(len(chats)), [chat.scenario for chat in chats], [0] * len(chats))
        nats_by_side = [[0.0, 0.0] for _ in chats]
        for side in (0, 1):
            utterances = [
                PlacedUtterance(row, turn, " ".join(event.words))
                for row, chat in enumerate(chats)
                for turn, event in enumerate(chat.heard)
                if event.side == side and event.selected is None
            ]
            with agent_errors():
                nats = nats_of(self._model, partial(_before, game.view(side), chats), utterances)
            for utterance, value in zip(utterances, nats.tolist(), strict=True):
                nats_by_side[utterance.row][side] += value
        return nats_by_side


def load_heard_judge(spec: str, device: str, seat: ChatSeat) -> HeardJudge:
    """Load the judge of a name.

    Raises:
        CheckpointError: no such model is there, or it is damaged.
        ConfigError: it is no chat model, or one that gives no likelihoods.
    """
    require_heard_judge(spec)
    return HeardJudge(cast("ScoringChatModel", chat_model(spec, seat.on(device), answers=None)))


def require_heard_judge(spec: str) -> None:
    """Require a chat model that gives likelihoods; raise as `load_heard_judge` does."""
    if not (is_chat_address(spec) or ".py:" in spec):
        fix = "hf:FOLDER, gguf:FILE, or path/file.py:Name of a model with score"
        raise ConfigError("a chat model judges what is heard", where="--judge", got=spec, fix=fix)
    require_chat_judge(spec)


def _before(view: FriendsView, chats: Sequence[FriendsChat], row: int, turn: int) -> Chat:
    heard = chats[row].heard[:turn]
    return talk(view, row, [message_of(event, event.side == view.side) for event in heard])


class RecordedReading(NamedTuple):
    """A model and the recorded chats that it reads."""

    pair: str
    model: DynoNet
    chats: list[FriendsChat]
    sides: SideExamples
    corpus: FriendsCorpus


def recorded_models(config: MutualFriendsConfig) -> Mapping[str, str]:
    """Return the models that read recorded chats, by their pair.

    Raises:
        ConfigError: recorded chats are asked for, and the bot is no model that foretells them.
    """
    if not config.recorded:
        return {}
    if config.model in friends_agents or is_chat_address(config.model) or ".py:" in config.model:
        fix = f"name a run of {MAKER} as --model, or leave --recorded out"
        raise ConfigError("--recorded needs a model that says how likely words are", got=config.model, fix=fix)
    return {MODEL: config.model} | {f"{TRAINED}{i}": run for i, run in enumerate(config.trained_runs, 1)}


def readings(config: MutualFriendsConfig) -> Iterator[RecordedReading]:
    """Yield each model with the recorded chats that it reads.

    Raises:
        ConfigError: as `recorded_models`, or no such corpus.
        CheckpointError: a model is damaged.
        DataError: the corpus cannot be read, or has attributes or tables that a model does not know.
    """
    models = recorded_models(config)
    if not models:
        return
    from parley.policies.dynonet import model as checkpoints
    from parley.policies.dynonet.batches import SideExamples

    corpus = load_friends(config.recorded, config.data_root)
    for pair, name in models.items():
        model, fitted_to = checkpoints.load_dynonet(Path(name)), checkpoints.corpus_of(Path(name))
        splits = ("test",) if fitted_to == config.recorded else tuple(corpus.splits)
        chats = [chat for split in splits for chat in corpus.splits[split]]
        yield RecordedReading(pair, model, chats, SideExamples(chats, model.vocabulary, model.sizes, corpus.linker), corpus)


def recorded_metrics(config: MutualFriendsConfig) -> dict[str, Estimate]:
    """Compute the metrics of recorded chats (`RECORDED`) by pair; raise as `readings` does."""
    if not config.recorded:
        return {}
    from parley.policies.dynonet.model import by_kind, linked

    metrics: dict[str, Estimate] = {}
    with threads(1):
        for pair, model, chats, sides, corpus in readings(config):
            fitness = by_kind(model, sides)
            of_chats = fitness.tokens.units
            kinds = {
                RECORDED_PERPLEXITY: fitness.tokens,
                KNOWN_PERPLEXITY: fitness.known_tokens,
                ENTITY_PERPLEXITY: fitness.entities,
                ITEM_PERPLEXITY: fitness.items,
            }
            of_model = {name: perplexity(name, tokens.nll_sums, tokens.num_targets, of_chats) for name, tokens in kinds.items()}
            num_unknown = fitness.tokens.num_targets - fitness.known_tokens.num_targets
            of_model[UNKNOWN] = clustered_rate(num_unknown, of_chats, fitness.tokens.num_targets)
            num_linked, num_meant = linked(chats, corpus.linker)
            of_model[LINKED] = clustered_rate(num_linked, trials=num_meant)
            metrics |= {of(name, pair, config.recorded): estimate for name, estimate in of_model.items()}
    return metrics


PUBLISHED = "mutualfriends_scripted"


@dataclass(frozen=True, kw_only=True)
class TrainDynoNetConfig(SupervisedConfig):
    """The training data and the recipe of a DynoNet."""

    added: ClassVar[Mapping[str, Any]] = {"weights": []}

    corpus: str = ""
    """Registered corpus of chats between friends (parley data list), or path/file.py:NAME; when empty that of --start, else the
    built-in one."""
    start: str = ""
    """Run or checkpoint of a DynoNet to go on from, with its words and sizes."""
    against: str = ""
    """With --start: strategies that change utterances on their way to listeners during training, separated by commas, as in
    parley evaluate collaboration --strategies; none keeps its share of the chats unchanged, alone it is the control."""
    weights: tuple[float, ...] = ()
    """With --against: how often chats meet each strategy, in their order; all alike when empty."""
    least: PositiveInt = 1
    """Occurrences of a word in the training chats at least; rarer ones are unknown."""
    selfplay: NonNegativeInt = 200
    """Scenarios of the test split at most that the fitted model plays with itself."""
    decoding: FriendsDecoding = field(default_factory=FriendsDecoding)
    """Its decoding there; chat models that lie use the temperature."""
    lies: LieRules = field(default_factory=LieRules)
    """Limits of random-lies and of chat models that lie."""
    chat: ChatSeat = field(default_factory=ChatSeat)
    """Settings of chat models that lie."""
    perturb: PerturbSettings = field(default_factory=PerturbSettings)
    """Settings of the strategies of parley perturb."""
    sizes: DynoNetSizes = field(default_factory=DynoNetSizes)
    """A new model."""
    fit: FitConfig = field(default_factory=dynonet_fit)
    """The recipe."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.fit, "precision", self.fit.precision == "float32", "float32 alone")
        if bool(self.start) != bool(self.against):
            given, lacking = ("--start", "--against") if self.start else ("--against", "--start")
            fix = "--start RUN --against STRATEGY[,STRATEGY], or --against none for the control"
            raise ConfigError(f"{given} needs {lacking}", got=self.start or self.against, fix=fix)
        names, weights = strategy_list(self.against or NONE, NONE), self.weights
        fits = not weights or (len(weights) == len(names) and min(weights) >= 0 and sum(weights) > 0)
        check(self, "weights", fits, f"a number for each of the {len(names)} of --against, none below 0, some above")


def small() -> TrainDynoNetConfig:
    """Train on the built-in chats on a laptop: a third of the published widths."""
    return TrainDynoNetConfig(sizes=dynonet_small())


def he2017() -> TrainDynoNetConfig:
    """Train at the published widths and rate, 15 epochs on scripted chats of the published schema."""
    return TrainDynoNetConfig(corpus=PUBLISHED, fit=_fifteen_epochs())


def stanonet() -> TrainDynoNetConfig:
    """Train the published ablation, whose nodes do not keep what is said about them."""
    return TrainDynoNetConfig(corpus=PUBLISHED, sizes=DynoNetSizes(dynamic=False), fit=_fifteen_epochs())


def _fifteen_epochs() -> FitConfig:
    return replace(dynonet_fit(), max_epochs=15, patience=15)


def demo() -> TrainDynoNetConfig:
    """Train a small model on 200 built-in chats in less than a minute on one core."""
    return TrainDynoNetConfig(limit=200, selfplay=20, sizes=dynonet_small(), fit=dynonet_demo())


class TrainDynoNet(FitJob[TrainDynoNetConfig]):
    """`parley train dynonet`."""

    words = ("train", "dynonet")
    run_name = "dynonet"
    config = TrainDynoNetConfig
    presets = {"small": small, "he2017": he2017, "stanonet": stanonet, "demo": demo}
    legend = FRIENDS_TRAINING

    def prepare(self, config: TrainDynoNetConfig, path: Path, reporter: Reporter) -> Fitting:
        from parley.policies.dynonet import model as checkpoints
        from parley.policies.dynonet.batches import SideExamples
        from parley.policies.dynonet.graphs import FriendsVocabulary
        from parley.policies.dynonet.model import DynoNet, DynoNetFit, by_kind, linked

        require_device(config.device, "--device")
        folder = require_checkpoint(config.start, "--start", MAKER) if config.start else None
        config = replace(config, corpus=config.corpus or (checkpoints.corpus_of(folder) if folder else EMBEDDED_FRIENDS))
        corpus = load_friends(config.corpus, config.data_root)
        chats = {split: split_chats[: config.limit or None] for split, split_chats in corpus.splits.items()}
        require_splits(corpus.name, chats)
        if folder is None:
            utterances = (event.tokens for chat in chats["train"] for event in chat.events)
            words = ([token for token in tokens if isinstance(token, str)] for tokens in utterances)
            model = DynoNet(FriendsVocabulary.build(corpus.schema, words, config.least), config.sizes).to(config.device)
        else:
            model = checkpoints.load_dynonet(folder).to(config.device)
        vocabulary, sizes = model.vocabulary, model.sizes
        reporter.say(f"reading {sum(map(len, chats.values())):,} chats of {corpus.name} as both sides see them")
        # The other chats are not needed any more, and take more memory than their sides.
        tested, num_chats = chats["test"], len(chats["train"])
        # A chat model that lies gets its first request after the run begins, which keeps its answers.
        asks = any(map(is_chat_liar, strategy_list(config.against or NONE, NONE)))
        splits: dict[str, SideExamples] = {}

        def read(answers: Path | None) -> None:
            learned = _as_heard(config, corpus, chats, reporter, answers)
            splits.update(
                {split: SideExamples(split_chats, vocabulary, sizes, corpus.linker) for split, split_chats in learned.items()}
            )
            chats.clear()

        if asks:
            _channels(config, corpus, None)
        else:
            read(None)

        def fit(state: Path) -> DynoNetFit:
            if asks:
                read(state.parent / ANSWERS_FOLDER)
            return DynoNetFit(model, splits["train"], splits["val"], config.fit, config.seed, state, fresh=folder is None)

        def finish(test: Fitness) -> dict[str, Estimate]:
            fitness = by_kind(model, splits["test"])
            metrics = estimates("test_entity", fitness.entities) | estimates("test_item", fitness.items)
            num_linked, num_meant = linked(tested, corpus.linker)
            metrics["test_linked"] = clustered_rate(num_linked, trials=num_meant)
            return metrics | _selfplay(config, model, corpus, tested)

        role = "supervised" if not config.start else "control" if config.against == NONE else "adversarial"
        begun = {"base": config.start, "against": list(strategy_list(config.against, NONE))} if config.start else {}
        return Fitting(
            config=config,
            corpus=corpus,
            model=model,
            splits=splits,
            fit=fit,
            save=checkpoints.DYNONET.save,
            provenance={"role": role, "vocabulary": len(vocabulary), **begun},
            what=f"{'DynoNet' if sizes.dynamic else 'StanoNet'}{f' against {config.against}' if config.start else ''}",
            words=f"{len(vocabulary):,} words, {num_chats:,} training chats",
            finish=finish,
        )

    def models(self, config: TrainDynoNetConfig) -> Mapping[str, str]:
        return {"start": config.start, **liars_of(strategy_list(config.against or NONE, NONE))}

    def next_commands(self, config: TrainDynoNetConfig, path: Path) -> tuple[str, ...]:
        evaluate, run = ("evaluate", "collaboration"), display_path(path)
        if not config.start:
            return (shlex.join(["parley", *evaluate, "--model", run, *root_words(config.data_root)]),)
        # An evaluation tells liars apart by their labels.
        heard = {label_of(name): name for name in strategy_list(config.against, NONE) if name != NONE}
        same = {name: getattr(config, name) for name in ("corpus", "data_root", "decoding", "lies", "chat", "perturb")}
        met = ",".join(heard.values()) or MutualFriendsConfig.strategies
        evaluation = MutualFriendsConfig(model=config.start, trained=run, strategies=met, **same)
        return (command_line(evaluate, {"": MutualFriendsConfig}, evaluation, run=None),)


def _channels(config: TrainDynoNetConfig, corpus: FriendsCorpus, answers: Path | None) -> dict[str, Channel | None]:
    """Return the channel of each strategy; chat models that lie are loaded at their first request."""
    how = config.perturb, config.data_root, config.lies, config.device
    channels = Channels(corpus, *how, config.chat, config.decoding.temperature, answers)
    return {name: channels.named(name) for name in strategy_list(config.against or NONE, NONE)}


def _drawn(draws: np.random.Generator, num: int, weights: Sequence[float]) -> int:
    return int(draws.choice(num, p=np.array(weights) / sum(weights)) if weights else draws.integers(num))


def _as_heard(
    config: TrainDynoNetConfig,
    corpus: FriendsCorpus,
    splits: Mapping[str, Sequence[FriendsChat]],
    reporter: Reporter,
    answers: Path | None,
) -> Mapping[str, Sequence[FriendsChat]]:
    """Pass the training and validation chats through the strategies; test chats stay as they are."""
    names = strategy_list(config.against or NONE, NONE)
    if names == (NONE,):
        return splits
    channels = _channels(config, corpus, answers)
    heard_splits = dict(splits)
    for split in ("train", "val"):
        chats = splits[split]
        drawn = [_drawn(stream(config.seed, "strategy", chat.key), len(names), config.weights) for chat in chats]
        heard, counts = list(chats), []
        for number, name in enumerate(names):
            rows = [i for i, choice in enumerate(drawn) if choice == number]
            seeds = [derive_seed(config.seed, "misheard", chats[i].key) for i in rows]
            for i, chat in zip(rows, misheard([chats[i] for i in rows], channels[name], seeds), strict=True):
                heard[i] = chat
            utterances = [pair for i in rows for pair in zip(heard[i].events, heard[i].heard, strict=True)]
            changed = sum(event.words != as_heard.words for event, as_heard in utterances)
            counts.append(f"{label_of(name)} {len(rows):,} ({changed:,} utterances heard otherwise)")
        reporter.say(f"{split} split, chats by what is heard: {', '.join(counts)}")
        heard_splits[split] = heard
    return heard_splits


def _selfplay(
    config: TrainDynoNetConfig, model: DynoNet, corpus: FriendsCorpus, chats: Sequence[FriendsChat]
) -> dict[str, Estimate]:
    """Return the outcomes of the model's chats with itself."""
    from parley.envs.mutual_friends.game import play_friends
    from parley.policies.dynonet.agent import DynoNetAgent

    agent = DynoNetAgent(model, corpus.linker, "dynonet", config.decoding)
    wanted = [(chat.scenario, derive_seed(config.seed, "selfplay", i)) for i, chat in enumerate(chats[: config.selfplay])]
    if not wanted:
        return {}
    played = play_friends(wanted, (agent, agent))
    selections = [chat.num_selections(0) + chat.num_selections(1) for chat in played]
    return {
        "selfplay_completion": rate(sum(chat.agreed for chat in played), len(played)),
        "selfplay_events": mean_count([len(chat.events) for chat in played]),
        "selfplay_selections": mean_count(selections),
    }


TRAIN_DYNONET = TrainDynoNet()
