"""Chat models that learn seats of a game from dialogues: `parley train chat`.

Low-rank adapters learn on a frozen base (Hu et al. 2021; the extra `lora`). A lesson is a whole dialogue, read once; the loss
is that of the seat's own tokens. The games, and who teaches their seats, are in `engine/chat/games/`. One adapter may learn all
seats of its game, because the system message tells it which seat it has; an adapter for each seat is two runs. The run stores
the adapter alone, as safetensors, beside the digest of its base. So `hf:RUN` is a model in every other verb, and many runs need
one copy of the base on the disk.

Measured on held-out dialogues: perplexity per word, and how often a negotiator's choice is right; of the base on the test split
alone, because learning waits for it. Whether a seat is played better, the game's own verbs tell.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from parley.engine.chat.supervised import (
    SPLITS,
    TEST,
    TRAIN,
    VALIDATION,
    ChatBase,
    ChatGame,
    SeatDialogue,
    load_base,
    perplexities,
    playing,
)
from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import FOR_BOTH, LOWER_FOR_BOTH, Estimate, Metric
from parley.engine.core.verbs.checkpoints import require_device, threads
from parley.engine.core.verbs.job import Job, Reporter, Summary
from parley.engine.core.verbs.supervised import EPOCHS, RESUME_SAFE, STATE, SupervisedConfig, run_fit
from parley.envs.core.config import NumItems
from parley.envs.core.errors import ConfigError
from parley.envs.core.storage.copies import CHECKPOINT
from parley.envs.core.storage.uris import HUGGING_FACE, display_path
from parley.envs.corpora.arrow import root_words
from parley.envs.secret.game import NAMES, SecretRules
from parley.policies.chat.settings import DateSettings, LoraSettings
from parley.policies.core.settings import FitConfig

if TYPE_CHECKING:
    from parley.policies.chat.model import ChatModel
    from parley.policies.chat.predictor import ChatPredictor

BEFORE = "_before"
_MEASURES = {
    "ppl_word": Metric(
        "perplexity per word",
        LOWER_FOR_BOTH,
        "exp of nats per word of the seat's own texts, their ends among the words",
        "perplexity",
    ),
    "nll": Metric("loss per token", LOWER_FOR_BOTH, "nats per own token of the seat"),
    "selection_accuracy": Metric(
        "choices right", FOR_BOTH, "share of negotiations that end in a deal or no agreement, chosen as in play", "rate"
    ),
}
LEARNED = {
    f"{split}_{name}{when}": metric._replace(
        title=f"{split} {metric.title}{', before' if when else ''}", main=split == TEST and not when and name != "nll"
    )
    for split in (TEST, VALIDATION)
    for name, metric in _MEASURES.items()
    for when in ("", BEFORE)
    if split == TEST or not when
}


def chat_recipe() -> FitConfig:
    """Return two epochs of Adam over small batches; the best epoch by held-out dialogues is kept."""
    return FitConfig(learning_rate=3e-4, batch_size=8, clip=1.0, max_epochs=2, patience=2, decay_epochs=0, precision="float32")


@dataclass(frozen=True, kw_only=True)
class TrainChatConfig(SupervisedConfig, DateSettings):
    """The base, the seat, and its dialogues."""

    base: str = ""
    """Causal model that stays as it is: hf:FOLDER or gguf:FILE, with a chat template."""
    game: Literal["secret", "negotiation"] = "secret"
    """Game whose seats are learned: secret, from scripted play, or negotiation, from the dialogues of a corpus."""
    role: Literal["attacker", "defender", "both"] = "both"
    """Seat that is learned; one adapter learns both. A negotiation is always learned from both sides."""
    dialogues: NumItems = 800
    """Secret game: scripted dialogues that are learned from; a tenth as many choose the epoch, and as many are measured."""
    rules: SecretRules = field(default_factory=SecretRules)
    """Secret game: limits of a dialogue."""
    corpus: str = "dealornodeal"
    """Negotiation: registered corpus (parley data list), or path/file.py:NAME."""
    lora: LoraSettings = field(default_factory=LoraSettings)
    """The adapters."""
    fit: FitConfig = field(default_factory=chat_recipe)
    """The recipe."""

    added: ClassVar[Mapping[str, Any]] = {"game": "secret", "corpus": "dealornodeal"}


def game_of(config: TrainChatConfig) -> ChatGame:
    """Return the game of a training, with the dialogues that its settings name.

    Raises:
        ConfigError: one side of a negotiation was named.
    """
    if config.game == "negotiation":
        from parley.engine.chat.games.negotiation import RecordedNegotiations

        if config.role != "both":
            what, fix = "one adapter learns both sides of a negotiation, which have the same rules", "leave --role out"
            raise ConfigError(what, where="--role", got=config.role, fix=fix)
        return RecordedNegotiations(config.corpus, config.data_root)
    from parley.engine.chat.games.secret import ScriptedSecrets

    sides = range(len(NAMES)) if config.role == "both" else (NAMES.index(config.role),)
    return ScriptedSecrets(sides, config.dialogues, config.rules, config.seed)


@dataclass(frozen=True)
class ChatTraining:
    """A checked configuration with its base and its lessons.

    Args:
        config: the settings.
        game: the game.
        base: the base.
        dialogues: by split.
        learned: the lessons that choose weights (train) and epoch (validation), as the base reads them.
        measured: the texts of validation and test alone, as the base reads them.
    """

    config: TrainChatConfig
    game: ChatGame
    base: ChatBase
    dialogues: Mapping[str, Sequence[SeatDialogue]]
    learned: Mapping[str, Any]
    measured: Mapping[str, Any]


def lora() -> TrainChatConfig:
    """Learn from 800 dialogues, twice, with adapters of rank 16 in every linear layer (Hu et al. 2021)."""
    return TrainChatConfig()


def quick() -> TrainChatConfig:
    """Learn from 80 dialogues, for a first look."""
    return TrainChatConfig(dialogues=80, limit=80)


class TrainChat(Job[TrainChatConfig, ChatTraining, Summary]):
    """`parley train chat`."""

    words = ("train", "chat")
    run_name = "chat"
    config = TrainChatConfig
    presets = {"lora": lora, "quick": quick}
    legend = LEARNED
    files = (CHECKPOINT, SUMMARY)
    resume_safe = RESUME_SAFE
    steps = EPOCHS

    def prepare(self, config: TrainChatConfig, path: Path, reporter: Reporter) -> ChatTraining:
        """Read the base, and write all dialogues as it reads them.

        Raises:
            ConfigError: the base is no model with a chat template, or a package is missing.
            DataError: a dialogue is longer than the base reads.
        """
        require_device(config.device, "--device")
        game, base = game_of(config), load_base(config.base, config.device, config.date)
        dialogues = {split: game.dialogues(split, config.limit) for split in SPLITS}
        units = {split: [one.unit for one in dialogues[split]] for split in SPLITS}
        learned = {
            split: base.lessons([one.learned for one in dialogues[split]], units[split]) for split in (TRAIN, VALIDATION)
        }
        measured = {split: base.lessons([one.moves for one in dialogues[split]], units[split]) for split in (VALIDATION, TEST)}
        return ChatTraining(config, game, base, dialogues, learned, measured)

    def work(self, run: RunFolder, prepared: ChatTraining, reporter: Reporter) -> Summary:
        """Train (resuming exactly), measure before and after, and store the adapter.

        Raises:
            DivergenceError: the loss is no finite number.
        """
        from parley.policies.chat.local import load_local
        from parley.policies.chat.predictor import ChatPredictor, adapted
        from parley.policies.core.fitting.loop import Fit
        from parley.policies.hugging_face.models import write_adapter

        config, base, learned = prepared.config, prepared.base, prepared.learned
        metrics: dict[str, Estimate] = {}

        def measure(predictor: ChatPredictor, play: Callable[[], ChatModel], when: str) -> None:
            splits = [TEST] if when else [*prepared.measured]
            reporter.stage(f"measuring {'the base' if when else 'the adapter'}, read and played", 2 * len(splits), "parts")
            for number, split in enumerate(splits):
                dialogues = prepared.dialogues[split]
                figures = perplexities(predictor, prepared.measured[split], sum(one.num_words for one in dialogues))
                reporter.advance(2 * number + 1)
                figures |= prepared.game.measure(play, dialogues)
                reporter.advance(2 * number + 2)
                metrics.update({f"{split}_{name}{when}": figure for name, figure in figures.items()})

        with threads(config.threads):
            # The base plays before its layers are exchanged.
            measure(ChatPredictor(base.chat_model.model), lambda: base.chat_model, BEFORE)
            predictor = ChatPredictor(adapted(base.chat_model.model, config.lora, config.seed).to(config.device))
            fit = Fit(predictor, learned[TRAIN], learned[VALIDATION], config.fit, config.seed, run.path / STATE, fresh=False)
            run_fit(fit, run, reporter)
            write_adapter(predictor.model, base.chat_model.tokenizer, config.base, run.path / CHECKPOINT)
            stored = f"{HUGGING_FACE}{run.path / CHECKPOINT}"
            measure(predictor, cache(lambda: load_local(stored, playing(config.device, config.date))), "")
        num = len(prepared.dialogues[TRAIN])
        return Summary(
            f"{prepared.game.title} on {config.base}",
            f"{num:,} dialogues of {prepared.game.teachers}, {EPOCHS.of(len(fit.history))}, seed {config.seed}.",
            {name: metrics[name] for name in LEARNED if name in metrics},
        )

    def models(self, config: TrainChatConfig) -> Mapping[str, str]:
        return {"base": config.base}

    def next_commands(self, config: TrainChatConfig, path: Path) -> tuple[str, ...]:
        match = [*game_of(config).match(f"hf:{display_path(path)}", config.base), *root_words(config.data_root)]
        return (*super().next_commands(config, path), shlex.join(match))


TRAIN_CHAT = TrainChat()
