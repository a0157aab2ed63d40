"""Training of DynoNets: `parley train dynonet`.

Source: He et al. 2017 (arXiv 1704.07130); the model is `policies/dynonet/model.py`. Beside perplexities a run reports how
often the model finds the common friend with itself, on scenarios of the test split.

A model may go on from a checkpoint (`--start`), with what it hears changed by strategies (`--against`): each chat of the
training and of the validation split meets one of them, drawn by its key, on the way to both listeners. What sides said and
did in it is learned as it was recorded; so the model learns to go on as if it had not been misled. Test chats stay as they are.

  * # Paper (Niu & Bansal 2018): the collaborative task is attacked, and nobody trains against it. Ours: as its dialogue models
    are trained against Should-Not-Change strategies, perturbed inputs with recorded replies; `--against none` trains as long.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from parley.engine.core.stats.statistics import Estimate, clustered_rate, mean_count, rate
from parley.engine.core.verbs.checkpoints import require_checkpoint
from parley.engine.core.verbs.command import command_line
from parley.engine.core.verbs.device import require_device
from parley.engine.core.verbs.job import Reporter
from parley.engine.core.verbs.supervised import FitJob, Fitting, SupervisedConfig, estimates, require_splits
from parley.engine.mutual_friends.metrics.training import FRIENDS_TRAINING
from parley.engine.mutual_friends.verbs.agents import MAKER
from parley.engine.mutual_friends.verbs.channels import (
    NONE,
    Channels,
    is_chat_liar,
    label_of,
    liars_of,
    misheard,
    strategy_list,
)
from parley.engine.mutual_friends.verbs.config import CollaborationConfig
from parley.engine.perturb.settings import PerturbSettings
from parley.envs.core.config import check
from parley.envs.core.errors import ConfigError
from parley.envs.core.ranges import NonNegativeInt, PositiveInt
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.core.storage.uris import display_path
from parley.envs.corpora.root import root_words
from parley.envs.mutual_friends.corpora import EMBEDDED_FRIENDS
from parley.envs.mutual_friends.lies import LieRules
from parley.policies.chat.answers import ANSWERS_FOLDER
from parley.policies.chat.seat import ChatSeat
from parley.policies.core.fitting.settings import FitConfig
from parley.policies.dynonet.settings import DynoNetSizes, FriendsDecoding, dynonet_demo, dynonet_fit, dynonet_small

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parley.envs.mutual_friends.compiled import FriendsCorpus
    from parley.envs.mutual_friends.events import FriendsChat
    from parley.envs.mutual_friends.play import Channel
    from parley.policies.core.fitting.evaluation import Fitness
    from parley.policies.dynonet.model import DynoNet

PUBLISHED = "mutualfriends_scripted"


@dataclass(frozen=True, kw_only=True)
class TrainDynoNetConfig(SupervisedConfig):
    """What a DynoNet is fitted to, and how."""

    corpus: str = ""
    """Registered corpus of chats between friends (parley data list), or path/file.py:NAME; when empty that of --start, else the
    built-in one."""
    start: str = ""
    """Run or checkpoint of a DynoNet to go on from, with its words and sizes."""
    against: str = ""
    """With --start: what changes utterances on their way to listeners while it trains, separated by commas: names as in parley
    evaluate collaboration --strategies; none leaves its share of the chats as they are, alone it is the control."""
    least: PositiveInt = 1
    """Occurrences of a word in the training chats at least; rarer ones are unknown."""
    selfplay: NonNegativeInt = 200
    """Scenarios of the test split at most that the fitted model plays with itself."""
    decoding: FriendsDecoding = field(default_factory=FriendsDecoding)
    """How it speaks there; of chat models that lie the temperature."""
    lies: LieRules = field(default_factory=LieRules)
    """What random-lies and chat models that lie may do."""
    chat: ChatSeat = field(default_factory=ChatSeat)
    """How chat models that lie are loaded or asked."""
    perturb: PerturbSettings = field(default_factory=PerturbSettings)
    """How the strategies of parley perturb change utterances."""
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
        strategy_list(self.against or NONE, NONE)


def small() -> TrainDynoNetConfig:
    """A model for a laptop: a third of the published widths, the built-in chats."""
    return TrainDynoNetConfig(sizes=dynonet_small())


def he2017() -> TrainDynoNetConfig:
    """The published widths and rate, 15 epochs on scripted chats of the published schema."""
    return TrainDynoNetConfig(corpus=PUBLISHED, fit=_fifteen_epochs())


def stanonet() -> TrainDynoNetConfig:
    """The published ablation: nodes do not keep what is said about them."""
    return TrainDynoNetConfig(corpus=PUBLISHED, sizes=DynoNetSizes(dynamic=False), fit=_fifteen_epochs())


def _fifteen_epochs() -> FitConfig:
    return replace(dynonet_fit(), max_epochs=15, patience=15)


def demo() -> TrainDynoNetConfig:
    """A small model, fitted to 200 of the built-in chats in less than a minute of one core."""
    return TrainDynoNetConfig(limit=200, selfplay=20, sizes=dynonet_small(), fit=dynonet_demo())


class TrainDynoNet(FitJob[TrainDynoNetConfig]):
    """`parley train dynonet`."""

    words = ("train", "dynonet")
    run_name = "dynonet"
    config = TrainDynoNetConfig
    presets = {"small": small, "he2017": he2017, "stanonet": stanonet, "demo": demo}
    legend = FRIENDS_TRAINING

    def prepare(self, config: TrainDynoNetConfig, path: Path, reporter: Reporter) -> Fitting:
        from parley.envs.mutual_friends.compiled import load_friends
        from parley.policies.dynonet import checkpoints
        from parley.policies.dynonet.batches import SideExamples
        from parley.policies.dynonet.fit import DynoNetFit
        from parley.policies.dynonet.measuring import by_kind, linked
        from parley.policies.dynonet.model import DynoNet
        from parley.policies.dynonet.vocabulary import FriendsVocabulary

        require_device(config.device, "--device")
        folder = require_checkpoint(config.start, "--start", MAKER) if config.start else None
        config = replace(config, corpus=config.corpus or (checkpoints.corpus_of(folder) if folder else EMBEDDED_FRIENDS))
        corpus = load_friends(config.corpus, config.data_root)
        chats = {split: each[: config.limit or None] for split, each in corpus.splits.items()}
        require_splits(corpus.name, chats)
        if folder is None:
            utterances = (event.tokens for chat in chats["train"] for event in chat.events)
            said = ([token for token in tokens if isinstance(token, str)] for tokens in utterances)
            model = DynoNet(FriendsVocabulary.build(corpus.schema, said, config.least), config.sizes).to(config.device)
        else:
            model = checkpoints.load_dynonet(folder).to(config.device)
        vocabulary, sizes = model.vocabulary, model.sizes
        reporter.say(f"reading {sum(map(len, chats.values())):,} chats of {corpus.name} as both sides see them")
        # The other chats are not needed again, and take more memory than their sides.
        tested, num_chats = chats["test"], len(chats["train"])
        # A chat model that lies is asked once there is a run, which keeps its answers.
        asks = any(map(is_chat_liar, strategy_list(config.against or NONE, NONE)))
        splits: dict[str, SideExamples] = {}

        def read(answers: Path | None) -> None:
            learned = _as_heard(config, corpus, chats, reporter, answers)
            splits.update({split: SideExamples(each, vocabulary, sizes, corpus.linker) for split, each in learned.items()})
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
            told = by_kind(model, splits["test"])
            found = estimates("test_entity", told.entities) | estimates("test_item", told.items)
            num_linked, num_meant = linked(tested, corpus.linker)
            found["test_linked"] = clustered_rate(num_linked, trials=num_meant)
            return found | _selfplay(config, model, corpus, tested)

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
        """The evaluation; of one that went on from a checkpoint beside it, under what it learned against."""
        evaluate, run = ("evaluate", "collaboration"), display_path(path)
        if not config.start:
            return (shlex.join(["parley", *evaluate, "--model", run, *root_words(config.data_root)]),)
        # An evaluation tells liars apart by their labels.
        heard = {label_of(name): name for name in strategy_list(config.against, NONE) if name != NONE}
        same = {name: getattr(config, name) for name in ("corpus", "data_root", "decoding", "lies", "chat", "perturb")}
        met = ",".join(heard.values()) or CollaborationConfig.strategies
        asked = CollaborationConfig(model=config.start, trained=run, strategies=met, **same)
        return (command_line(evaluate, {"": CollaborationConfig}, asked, run=None),)


def _channels(config: TrainDynoNetConfig, corpus: FriendsCorpus, answers: Path | None) -> dict[str, Channel | None]:
    """What each strategy makes of utterances; chat models that lie are loaded when they are first asked."""
    how = config.perturb, config.data_root, config.lies, config.device
    channels = Channels(corpus, *how, config.chat, config.decoding.temperature, answers)
    return {name: channels.named(name) for name in strategy_list(config.against or NONE, NONE)}


def _as_heard(
    config: TrainDynoNetConfig,
    corpus: FriendsCorpus,
    splits: Mapping[str, Sequence[FriendsChat]],
    reporter: Reporter,
    answers: Path | None,
) -> Mapping[str, Sequence[FriendsChat]]:
    """The splits, whose listeners hear what the strategies leave of what is said, but for those of the test split."""
    names = strategy_list(config.against or NONE, NONE)
    if names == (NONE,):
        return splits
    channels = _channels(config, corpus, answers)
    found = dict(splits)
    for split in ("train", "val"):
        chats = splits[split]
        drawn = [int(stream(config.seed, "strategy", chat.key).integers(len(names))) for chat in chats]
        heard, told = list(chats), []
        for number, name in enumerate(names):
            own = [i for i, choice in enumerate(drawn) if choice == number]
            seeds = [derive_seed(config.seed, "misheard", chats[i].key) for i in own]
            for i, chat in zip(own, misheard([chats[i] for i in own], channels[name], seeds), strict=True):
                heard[i] = chat
            utterances = [pair for i in own for pair in zip(heard[i].events, heard[i].heard, strict=True)]
            changed = sum(said.words != as_heard.words for said, as_heard in utterances)
            told.append(f"{label_of(name)} {len(own):,} ({changed:,} utterances heard otherwise)")
        reporter.say(f"{split} split, chats by what is heard: {', '.join(told)}")
        found[split] = heard
    return found


def _selfplay(
    config: TrainDynoNetConfig, model: DynoNet, corpus: FriendsCorpus, chats: Sequence[FriendsChat]
) -> dict[str, Estimate]:
    """How chats of the model with itself end."""
    from parley.envs.mutual_friends.play import play_friends
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
