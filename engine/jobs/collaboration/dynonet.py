"""Training of DynoNets: `parley train dynonet`.

Source: He et al. 2017 (arXiv 1704.07130); the model is `policies/dynonet/model.py`. Beside perplexities a run reports how
often the model finds the common friend with itself, on scenarios of the test split.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from engine.jobs.device import require_device
from engine.jobs.job import Reporter
from engine.jobs.supervised import FitJob, Fitting, SupervisedConfig, estimates, require_splits
from engine.metrics.collaboration.training import FRIENDS_TRAINING
from engine.metrics.statistics import Estimate, mean, rate, ratio_of_sums
from envs.core.config import check
from envs.core.ranges import NonNegativeInt, PositiveInt
from envs.core.seeds import derive_seed
from envs.data.root import root_words
from envs.storage.places import display_path
from policies.dynonet.settings import DynoNetSizes, FriendsDecoding, dynonet_demo, dynonet_fit, dynonet_small
from policies.fitting.settings import FitConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from envs.friends.compiled import FriendsCorpus
    from envs.friends.events import FriendsChat
    from policies.dynonet.model import DynoNet
    from policies.fitting.evaluation import Fitness

PUBLISHED = "mutualfriends_scripted"


@dataclass(frozen=True, kw_only=True)
class TrainDynoNetConfig(SupervisedConfig):
    """What a DynoNet is fitted to, and how."""

    corpus: str = "friends"
    """Registered corpus of chats between friends (parley data list), or path/file.py:NAME."""
    least: PositiveInt = 1
    """Occurrences of a word in the training chats at least; rarer ones are unknown."""
    selfplay: NonNegativeInt = 200
    """Scenarios of the test split at most that the fitted model plays with itself."""
    decoding: FriendsDecoding = field(default_factory=FriendsDecoding)
    """How it speaks there."""
    sizes: DynoNetSizes = field(default_factory=DynoNetSizes)
    """The model."""
    fit: FitConfig = field(default_factory=dynonet_fit)
    """The recipe."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.fit, "precision", self.fit.precision == "float32", "float32 alone")


def small() -> TrainDynoNetConfig:
    """A model for a laptop: a third of the published widths, the built-in chats."""
    return TrainDynoNetConfig(sizes=dynonet_small())


def he2017() -> TrainDynoNetConfig:
    """The published widths and recipe, on scripted chats of the published schema."""
    return TrainDynoNetConfig(corpus=PUBLISHED)


def stanonet() -> TrainDynoNetConfig:
    """The published ablation: nodes do not keep what is said about them."""
    return TrainDynoNetConfig(corpus=PUBLISHED, sizes=DynoNetSizes(dynamic=False))


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
        from envs.friends.compiled import load_friends
        from policies.dynonet.batches import SideExamples
        from policies.dynonet.checkpoints import DYNONET
        from policies.dynonet.fit import DynoNetFit
        from policies.dynonet.measuring import copied, linked
        from policies.dynonet.model import DynoNet
        from policies.dynonet.vocabulary import FriendsVocabulary

        require_device(config.device, "--device")
        corpus = load_friends(config.corpus, config.data_root)
        chats = {split: each[: config.limit or None] for split, each in corpus.splits.items()}
        require_splits(corpus.name, chats)
        said = ([token for token in event.tokens if isinstance(token, str)] for chat in chats["train"] for event in chat.events)
        vocabulary = FriendsVocabulary.build(corpus.schema, said, config.least)
        model = DynoNet(vocabulary, config.sizes).to(config.device)
        reporter.say(f"reading {sum(map(len, chats.values())):,} chats of {corpus.name} as both sides see them")
        # The other chats are not needed again, and take more memory than their sides.
        tested = chats["test"]
        splits = {split: SideExamples(each, vocabulary, config.sizes, corpus.linker) for split, each in chats.items()}

        def finish(test: Fitness) -> dict[str, Estimate]:
            told = copied(model, splits["test"])
            found = estimates("test_entity", told.entities) | estimates("test_item", told.items)
            found["test_linked"] = ratio_of_sums(*linked(tested, corpus.linker))
            return found | _selfplay(config, model, corpus, tested)

        return Fitting(
            config=config,
            corpus=corpus,
            model=model,
            splits=splits,
            fit=partial(DynoNetFit, model, splits["train"], splits["val"], config.fit, config.seed),
            save=DYNONET.save,
            provenance={"role": "supervised", "vocabulary": len(vocabulary)},
            what="DynoNet" if config.sizes.dynamic else "StanoNet",
            words=f"{len(vocabulary):,} words, {len(chats['train']):,} training chats",
            finish=finish,
        )

    def next_commands(self, config: TrainDynoNetConfig, path: Path) -> tuple[str, ...]:
        words = ["parley", "evaluate", "collaboration", "--model", display_path(path), *root_words(config.data_root)]
        return (shlex.join(words),)


def _selfplay(
    config: TrainDynoNetConfig, model: DynoNet, corpus: FriendsCorpus, chats: Sequence[FriendsChat]
) -> dict[str, Estimate]:
    """How chats of the model with itself end."""
    from envs.friends.play import play_friends
    from policies.dynonet.agent import DynoNetAgent

    agent = DynoNetAgent(model, corpus.linker, "dynonet", config.decoding)
    wanted = [(chat.scenario, derive_seed(config.seed, "selfplay", i)) for i, chat in enumerate(chats[: config.selfplay])]
    if not wanted:
        return {}
    played = play_friends(wanted, (agent, agent))
    selections = [chat.num_selections(0) + chat.num_selections(1) for chat in played]
    return {
        "selfplay_completion": rate(sum(chat.agreed for chat in played), len(played)),
        "selfplay_events": mean([len(chat.events) for chat in played]),
        "selfplay_selections": mean(selections),
    }


TRAIN_DYNONET = TrainDynoNet()
