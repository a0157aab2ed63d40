"""Chat models that learn a seat of the secret game from scripted play: `parley train chat`.

Low-rank adapters learn on a frozen base (Hu et al. 2021; the extra `lora`). A lesson is a whole dialogue, read once; the loss
is that of the seat's own tokens. The attacker learns from dialogues in which `mix` gets the word, the defender from
`only-text`, in attacks and with harmless users. The run stores the adapter alone, as safetensors, beside the digest of its
base. So `hf:RUN` is a model in every other verb, and two seats need one copy of the base on the disk.

Measured on held-out dialogues, before and after: perplexity per word. Whether the seat is played better, `parley evaluate
secret` tells.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import LOWER_FOR_BOTH, Metric, ratio_of_sums
from parley.engine.core.verbs.checkpoints import require_device, threads
from parley.engine.core.verbs.job import Job, Reporter, Summary
from parley.engine.core.verbs.supervised import EPOCHS, RESUME_SAFE, STATE, SupervisedConfig, run_fit
from parley.envs.core.config import NumItems
from parley.envs.core.errors import ConfigError
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.core.storage.copies import CHECKPOINT
from parley.envs.core.storage.uris import display_path
from parley.envs.corpora.arrow import root_words
from parley.envs.secret.game import ATTACKER, DEFENDER, NAMES, SeatView, SecretGame, SecretRules, play_secret
from parley.envs.secret.players import make_secret_player
from parley.envs.secret.scenarios import random_secret
from parley.policies.chat.addresses import is_local, weights_of
from parley.policies.chat.settings import DateSettings, LoraSettings
from parley.policies.core.settings import FitConfig

TEACHERS = ("mix", "only-text")
"""Scripted players that the seats learn from."""
OPPONENTS: tuple[tuple[str, ...], tuple[str, ...]] = (
    ("plain-filter", "input-filter"),
    ("ask", "claim", "spell", "reverse", "encode", "parts", "oblique", "mix"),
)
"""Players on the other side, in turn."""
BEFORE = "_before"
_PPL = Metric(
    "test perplexity", LOWER_FOR_BOTH, "exp of nats per word of the seat's own texts, their ends among the words", "perplexity"
)
_NLL = Metric("test loss", LOWER_FOR_BOTH, "nats per own token of the seat")
LEARNED = {
    "test_ppl_word": _PPL._replace(main=True),
    f"test_ppl_word{BEFORE}": _PPL._replace(title="test perplexity, before"),
    "test_nll": _NLL,
    f"test_nll{BEFORE}": _NLL._replace(title="test loss, before"),
}


def chat_recipe() -> FitConfig:
    """Return two epochs of Adam over small batches; the best epoch by held-out dialogues is kept."""
    return FitConfig(learning_rate=3e-4, batch_size=8, clip=1.0, max_epochs=2, patience=2, decay_epochs=0, precision="float32")


@dataclass(frozen=True, kw_only=True)
class TrainChatConfig(SupervisedConfig, DateSettings):
    """The base, the seat, and its dialogues."""

    base: str = ""
    """Causal model that stays as it is: hf:FOLDER or gguf:FILE, with a chat template."""
    role: Literal["attacker", "defender"] = "defender"
    """Seat that is learned."""
    dialogues: NumItems = 800
    """Scripted dialogues that are learned from; a tenth as many choose the epoch, and as many are measured."""
    rules: SecretRules = field(default_factory=SecretRules)
    """Limits of a dialogue."""
    lora: LoraSettings = field(default_factory=LoraSettings)
    """The adapters."""
    fit: FitConfig = field(default_factory=chat_recipe)
    """The recipe."""

    @property
    def side(self) -> int:
        """The side of the seat."""
        return NAMES.index(self.role)


def taught(config: TrainChatConfig, split: str, num: int) -> list[tuple[SeatView, tuple[str, ...]]]:
    """Return scripted dialogues of a split, each as the seat's view before it and all of its turns.

    Args:
        config: of the training.
        split: name of a stream of its own.
        num: dialogues; those of an attacker that does not get the word are left out, and others are drawn instead.
    """
    side, opponents = config.side, OPPONENTS[config.side]
    teacher = make_secret_player(TEACHERS[side], side)
    dialogues: list[tuple[SeatView, tuple[str, ...]]] = []
    number = 0
    while len(dialogues) < num:
        scenario = random_secret(stream(config.seed, split, number), config.rules.max_messages)
        is_attack = side == ATTACKER or number % 2 == 0
        game = SecretGame([scenario], [derive_seed(config.seed, split, number)], [is_attack], config.rules)
        before = game.view(0, side)
        other = make_secret_player(opponents[number // 2 % len(opponents)], 1 - side)
        play_secret(game, *((teacher, other) if side == ATTACKER else (other, teacher)))
        number += 1
        if side == DEFENDER or game.spellings[0]:
            dialogues.append((before, tuple(game.turns[0])))
    return dialogues


@dataclass(frozen=True)
class ChatTraining:
    """A checked configuration with its model and its lessons.

    Args:
        config: the settings.
        model: the base, in float32.
        tokenizer: of the base.
        lessons: by split, as the model reads them.
        num_words: own words of all dialogues of the test split, their ends among them.
    """

    config: TrainChatConfig
    model: Any
    tokenizer: Any
    lessons: Mapping[str, Any]
    num_words: int


def lora() -> TrainChatConfig:
    """Learn from 800 dialogues, twice, with adapters of rank 16 in every linear layer (Hu et al. 2021)."""
    return TrainChatConfig()


def quick() -> TrainChatConfig:
    """Learn from 80 dialogues, for a first look."""
    return TrainChatConfig(dialogues=80)


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
        if not is_local(config.base) or not weights_of(config.base).strip():
            fix = "--base hf:FOLDER or gguf:FILE"
            raise ConfigError("adapters learn on weights that are here", where="--base", got=repr(config.base), fix=fix)
        require_device(config.device, "--device")
        from parley.envs.core.storage.copies import fetched_model
        from parley.policies.chat.local import load_local
        from parley.policies.chat.predictor import ChatLessons, require_peft
        from parley.policies.chat.secret import secret_lessons
        from parley.policies.chat.settings import ChatModelSettings
        from parley.policies.core.responder import model_inside
        from parley.policies.hugging_face.gguf import is_adapter_alone
        from parley.policies.hugging_face.tokens import ends_of, longest_input, reply_end

        require_peft()
        if is_adapter_alone(model_inside(fetched_model(weights_of(config.base)))):
            fix = "name the base that it was trained on"
            raise ConfigError("an adapter is no base", where=config.base, fix=fix)
        chat_model = load_local(config.base, ChatModelSettings(device=config.device, date=config.date))
        model, tokenizer = chat_model.model, chat_model.tokenizer
        if not tokenizer.chat_template:
            fix = "name a model that was tuned to chat, or write a chat_template into its tokenizer_config.json"
            raise ConfigError("the base has no chat template, so it knows no seats", where=config.base, fix=fix)
        end_id = reply_end(tokenizer, ends_of(tokenizer, model))
        end, longest = tokenizer.decode([end_id]), longest_input(tokenizer, model)
        few = max(2, config.dialogues // 10)
        lessons: dict[str, Any] = {}
        num_words = 0
        for split, num in (("train", config.dialogues), ("validation", few), ("test", few)):
            dialogues = taught(config, split, num)
            written = [secret_lessons(tokenizer, end, view, turns) for view, turns in dialogues]
            lessons[split] = ChatLessons(tokenizer, [lesson for one in written for lesson in one], end_id, longest)
            num_words = sum(len(text.split()) + 1 for _, turns in dialogues for text in turns[config.side :: 2])
        return ChatTraining(config, model, tokenizer, lessons, num_words)

    def work(self, run: RunFolder, prepared: ChatTraining, reporter: Reporter) -> Summary:
        """Train (resuming exactly), measure before and after, and store the adapter.

        Raises:
            DivergenceError: the loss is no finite number.
        """
        from parley.policies.chat.predictor import ChatPredictor, adapted
        from parley.policies.core.fitting.batches import evaluate
        from parley.policies.core.fitting.loop import Fit
        from parley.policies.hugging_face.models import write_adapter

        config, lessons = prepared.config, prepared.lessons
        with threads(config.threads):
            predictor = ChatPredictor(adapted(prepared.model, config.lora, config.seed).to(config.device))
            with predictor.model.disable_adapter():
                before = evaluate(predictor, lessons["test"])
            fit = Fit(
                predictor, lessons["train"], lessons["validation"], config.fit, config.seed, run.path / STATE, fresh=False
            )
            run_fit(fit, run, reporter)
            reporter.stage("measuring the adapter", 0, "")
            after = evaluate(predictor, lessons["test"])
            write_adapter(predictor.model, prepared.tokenizer, config.base, run.path / CHECKPOINT)
        metrics = {}
        for fitness, name in ((after, ""), (before, BEFORE)):
            words = prepared.num_words * fitness.num_targets / fitness.num_targets.sum()
            metrics[f"test_ppl_word{name}"] = ratio_of_sums(fitness.nll_sums, words, transform=np.exp)
            metrics[f"test_nll{name}"] = ratio_of_sums(fitness.nll_sums, fitness.num_targets)
        return Summary(
            f"{config.role} of the secret game on {config.base}",
            f"{config.dialogues:,} dialogues of {TEACHERS[config.side]}, {len(fit.history)} epochs, seed {config.seed}.",
            metrics,
        )

    def models(self, config: TrainChatConfig) -> Mapping[str, str]:
        return {"base": config.base}

    def next_commands(self, config: TrainChatConfig, path: Path) -> tuple[str, ...]:
        """Suggest a match of the seat beside the base."""
        players = f"hf:{display_path(path)},{config.base}"
        match = ["parley", "evaluate", "secret", "quick", f"--{config.role}s", players, *root_words(config.data_root)]
        return (*super().next_commands(config, path), shlex.join(match))


TRAIN_CHAT = TrainChat()
