"""The stages of `parley evaluate generation`: what is trained first, the trainings of rows, what rows reply, who judges it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from parley.engine.core.verbs.composite import Stage
from parley.engine.generation.metrics.trained import AT, DECODED, SAMPLED, TRAINED
from parley.engine.generation.verbs.adversarial import EVALUATE_ADVERSARIAL
from parley.engine.generation.verbs.adversarial_config import AdversarialConfig
from parley.engine.generation.verbs.discriminator import TRAIN_DISCRIMINATOR, TrainDiscriminatorConfig
from parley.engine.generation.verbs.minmax import MINMAX_REPLIES, MinMaxRepliesConfig
from parley.engine.generation.verbs.table_config import DECODERS, TrainedTableConfig
from parley.engine.responders.reply import HUMAN_FILE, MACHINE_FILE, NEXT_FILE, REPLY, ReplyConfig
from parley.engine.responders.seq2seq import TRAIN_LM, TRAIN_SEQ2SEQ, TrainLMConfig, TrainSeq2SeqConfig
from parley.envs.core.seeds import derive_seed
from parley.envs.core.storage.uris import display_path
from parley.policies.core.decoders import DecoderSettings, lacks_backward, with_backward
from parley.policies.seq2seq.settings import LanguageModelSizes

START, BACKWARD, LM, JUDGE_LM, DISCRIMINATOR, BEGINNINGS = "start", "backward", "lm", "judge-lm", "discriminator", "beginnings"
"""Folders of models that are trained first."""
FILES = {"human": HUMAN_FILE, "machine": MACHINE_FILE, "next_utterances": NEXT_FILE}
PARTIAL = "regs-partial"


class System(NamedTuple):
    """What replies in a row.

    Args:
        row: of the table.
        number: of the training or of the start, from 1.
        model: its name.
        decoder: how it replies.
    """

    row: str
    number: int
    model: str
    decoder: str

    @property
    def is_trained(self) -> bool:
        """Whether it is the outcome of a row's training, and not a start."""
        return self.row.removesuffix(SAMPLED) in TRAINED

    @property
    def replies(self) -> str:
        """The folder of its replies."""
        return f"{self.row}-{self.number}-replies"

    @property
    def judged(self) -> str:
        """The folder of their evaluation."""
        return f"{self.row}-{self.number}-judged"


def models(config: TrainedTableConfig, path: Path) -> dict[str, Stage]:
    """What is trained first where no run is named; none of them needs another."""
    fitted = _known(config) | {"vocabulary": config.vocabulary, "fit": config.fit}
    lengths: dict[str, Any] = {"min_reply": config.min_reply, "max_reply": config.longest}
    sizes = LanguageModelSizes(embed=config.sizes.embed, hidden=config.sizes.hidden, max_length=config.sizes.max_reply)
    again = fitted | {"seed": derive_seed(config.seed, JUDGE_LM)}
    planned: dict[str, Stage] = {}
    if not config.starts:
        planned[START] = TRAIN_SEQ2SEQ, TrainSeq2SeqConfig(sizes=config.sizes, **fitted, **lengths)
    is_asked_back = lacks_backward(config.discriminator_decoder) and bool(_told_kinds(config))
    if ("mmi" in config.row_names or is_asked_back) and not config.backward:
        planned[BACKWARD] = TRAIN_SEQ2SEQ, TrainSeq2SeqConfig(sizes=config.sizes, backward=True, **fitted, **lengths)
    if "mmi-antilm" in config.row_names and not config.lm:
        planned[LM] = TRAIN_LM, TrainLMConfig(sizes=sizes, **fitted)
    if not config.judge_lm:
        planned[JUDGE_LM] = TRAIN_LM, TrainLMConfig(sizes=sizes, **again)
    return planned


def discriminators(config: TrainedTableConfig, path: Path) -> dict[str, Stage]:
    """Those that trainings begin with; those of a start have its number."""
    planned: dict[str, Stage] = {}
    backward = config.backward or display_path(path / BACKWARD)
    for number, start in enumerate(starts(config, path), start=1):
        for prefixes in _told_kinds(config):
            own, other = f"{DISCRIMINATOR}-{number}", f"{BEGINNINGS}-{number}"
            own, other = (other, own) if prefixes else (own, other)
            told = TrainDiscriminatorConfig(
                generator=start,
                decoder=with_backward(config.discriminator_decoder, backward),
                # Both learn from the same replies, and the one that comes first decodes them.
                replies=display_path(path / other),
                prefixes=prefixes,
                min_reply=config.min_reply,
                sizes=config.discriminator_sizes,
                fit=config.discriminator_fit,
                **_known(config),
            )
            planned[own] = TRAIN_DISCRIMINATOR, told
    return planned


def trainings(config: TrainedTableConfig, path: Path) -> dict[str, Stage]:
    """The trainings of all rows, those of the first seed first."""
    planned: dict[str, Stage] = {}
    begun = starts(config, path)
    for number in range(1, config.trainings + 1):
        start = (number - 1) % len(begun)
        for row in (row for row in TRAINED if row in config.row_names):
            settings = config.training(row, number)
            told = f"{BEGINNINGS if settings['method'] == PARTIAL else DISCRIMINATOR}-{start + 1}"
            named: dict[str, Any] = {"start": begun[start], "discriminator": display_path(path / told)}
            planned[f"{row}-{number}"] = MINMAX_REPLIES, MinMaxRepliesConfig(**settings, **named)
    return planned


def measured(config: TrainedTableConfig, path: Path, system: System) -> dict[str, Stage]:
    """Replies of a system, and their evaluation."""
    how: dict[str, Any] = {"seed": config.seed, "workers": config.workers, "data_root": config.data_root}
    how["address"] = config.address if config.workers else ""
    asked = ReplyConfig(
        model=system.model,
        decoder=system.decoder,
        corpus=config.corpus,
        limit=config.contexts,
        min_reply=config.min_reply,
        max_reply=config.longest,
        # One seed for all: it chooses the contexts, too, and trainings are compared in the same ones.
        **how,
    )
    files: dict[str, Any] = {side: display_path(path / system.replies / name) for side, name in FILES.items()}
    judged = AdversarialConfig(judges=config.judges, published="none", **files, **how)
    return {system.replies: (REPLY, asked), system.judged: (EVALUATE_ADVERSARIAL, judged)}


def _known(config: TrainedTableConfig) -> dict[str, Any]:
    """What all that is trained shares."""
    return {name: getattr(config, name) for name in ("corpus", "limit", "data_root", "seed", "threads")}


def _told_kinds(config: TrainedTableConfig) -> list[bool]:
    """Whether discriminators are fitted to beginnings of replies: of those that the rows need."""
    return sorted({str(config.training(row, 1)["method"]) == PARTIAL for row in config.row_names if row in TRAINED})


def systems(config: TrainedTableConfig, path: Path, rows: Collection[str]) -> Iterator[System]:
    """What replies in some rows, in the order of the table."""
    backward, lm = (getattr(config, name) or display_path(path / name) for name in (BACKWARD, LM))
    decoders = {**DECODERS, "mmi": f"mmi:backward={backward}", "mmi-antilm": f"mmi-antilm:lm={lm}"}
    draws = DecoderSettings.parse(config.decoder).draws
    for row in in_order(rows):
        trained = row.removesuffix(SAMPLED)
        if trained not in TRAINED:
            decoder = f"sample:{row.removeprefix(AT)}" if row.startswith(AT) else decoders[row]
            yield from (System(row, number, start, decoder) for number, start in enumerate(starts(config, path), start=1))
        elif trained == row or not draws:
            for number in range(1, config.trainings + 1):
                decoder = config.decoder if trained == row else "sample"
                yield System(row, number, display_path(path / f"{trained}-{number}"), decoder)


def in_order(rows: Collection[str]) -> list[str]:
    """Names of rows in the order of the table; of a training also the row whose replies are drawn."""
    decoded = [row for row in DECODED if row in rows]
    temperatures = sorted((row for row in rows if row.startswith(AT)), key=lambda row: float(row.removeprefix(AT)))
    return [*decoded, *temperatures, *(f"{row}{ending}" for row in TRAINED if row in rows for ending in ("", SAMPLED))]


def starts(config: TrainedTableConfig, path: Path) -> tuple[str, ...]:
    """Names of the generators that trainings start from."""
    return config.starts or (display_path(path / START),)
