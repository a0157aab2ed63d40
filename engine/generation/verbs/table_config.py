"""What a table of trainings and their controls is asked for: its configuration and presets. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from parley.engine.generation.metrics.trained import AT, DECODED, TRAINED
from parley.engine.generation.rl.reply_settings import ReplyLearning
from parley.engine.generation.verbs.minmax_config import ReplyTrainingConfig, helpdesk, li2017
from parley.envs.core.config import shared
from parley.envs.core.errors import ConfigError
from parley.envs.core.ranges import NonNegativeInt, NumItemsOrAll, PositiveInt
from parley.envs.core.registry import nearest
from parley.policies.core.decoders import DecoderSettings
from parley.policies.generation.judges.judge import CONTROLS

TEMPERATURES = (0.4, 0.6, 0.8, 1.2)
DECODERS = {
    "greedy": "greedy",
    "beam": "beam:7",
    "diverse": "diverse:7",
    "beam-repeat": "beam:7,repeat=2",
    "sample": "sample",
    "blind": "blind",
}
"""How the start replies in rows that need no other model. That a content word costs two nats when it is said again is ours."""


@dataclass(frozen=True, kw_only=True)
class TrainedTableConfig(ReplyTrainingConfig):
    """From which generators trainings and controls start, and how they are compared."""

    start: str = ""
    """Runs or checkpoints of generators (parley train seq2seq), separated by commas; training i starts from the i-th, in turn.
    When empty one is trained first."""
    rows: str = ",".join([*DECODED, *TRAINED, *(f"{AT}{temperature:g}" for temperature in TEMPERATURES)])
    """Rows to measure, separated by commas; sample-T draws the start's replies at temperature T. Earlier rows stay."""
    num_trainings: PositiveInt = 1
    """Trainings of each row, from different seeds; as many as there are starts at least."""
    contexts: NumItemsOrAll = 1_000
    """Test contexts that are answered in each row, the seed's choice; 0 for all."""
    judges: str = "svm-unigram"
    """Judges separated by commas, as in parley evaluate adversarial; the tables show the first one."""
    lm: str = ""
    """Language model (parley train lm) of the row mmi-antilm; when empty one is trained first."""
    judge_lm: str = ""
    """Language model of the perplexity and the vectors; when empty another one is trained first, from another seed."""
    published: Literal["none", "li2017"] = "none"
    """Figures to show beside the measured ones."""
    workers: NonNegativeInt = 0
    """Ray actors that reply and judge; 0 does so in this process."""
    trainers: NonNegativeInt = 0
    """Ray actors that train rows side by side, on this machine; 0 trains in this process."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.row_names:
            _require_row(name)
        if not self.judge_names:
            raise ConfigError("--judges names nothing", got=repr(self.judges), fix="such as --judges svm-unigram")

    @property
    def row_names(self) -> tuple[str, ...]:
        """The rows that are wanted, each once."""
        return tuple(dict.fromkeys(name for part in self.rows.split(",") if (name := part.strip())))

    @property
    def starts(self) -> tuple[str, ...]:
        """The generators one by one."""
        return tuple(name for part in self.start.split(",") if (name := part.strip()))

    @property
    def judge_names(self) -> tuple[str, ...]:
        """The judges one by one; those that stand beside in any case are not theirs."""
        names = (name for part in self.judges.split(",") if (name := part.strip()))
        return tuple(dict.fromkeys(name for name in names if name not in CONTROLS))

    @property
    def trainings(self) -> int:
        """Trainings of each row."""
        return max(self.num_trainings, len(self.starts))

    def training(self, row: str, number: int) -> dict[str, Any]:
        """The settings of a row's training, but for what it starts from.

        Rows that ask no discriminator leave it as it is, which changes nothing of theirs and saves its steps.

        Args:
            row: one of `TRAINED`.
            number: of the training, from 1.
        """
        known = shared(self, ReplyTrainingConfig) | {"seed": self.seed + number - 1}
        # Its generator and its discriminator are there.
        done = ("vocabulary", "discriminator_decoder", "backward")
        known = {name: value for name, value in known.items() if name not in done}
        learning = self.learning
        if row == "forced":
            steps = learning.generator_steps + learning.teacher_steps * (self.teacher_forcing != "none")
            learning = replace(learning, discriminator_steps=0, generator_steps=0, teacher_steps=steps)
            return known | {"learning": learning, "teacher_forcing": "mle"}
        if row in ("constant", "length"):
            return known | {"learning": replace(learning, discriminator_steps=0), "reward": row}
        if row == "frozen":
            return known | {"learning": replace(learning, discriminator_steps=0)}
        return known | ({"reward": row} if row == "shuffled" else {"method": row})


def _require_row(name: str) -> None:
    """Makes sure that there is a row of a name.

    Raises:
        ConfigError: there is none.
        OutOfRangeError: its temperature is none.
    """
    if name in DECODED or name in TRAINED:
        return
    if name.startswith(AT):
        DecoderSettings.parse(f"sample:{name.removeprefix(AT)}", where=f"--rows {name}:")
        return
    known = [*DECODED, *TRAINED, f"{AT}T"]
    raise ConfigError(f"no row is called {name!r}{nearest(name, known)}", where="--rows", fix=f"rows: {','.join(known)}")


def helpdesk_table() -> TrainedTableConfig:
    """Ten rounds a row on the built-in help desk, with small models that are trained first; minutes, offline."""
    known = shared(helpdesk(), ReplyTrainingConfig)
    return TrainedTableConfig(**known | {"keep": "last"}, contexts=200)


def li2017_table() -> TrainedTableConfig:
    """Three hundred rounds a row on Ubuntu, three trainings; name --start."""
    known = shared(li2017(), ReplyTrainingConfig)
    known |= {"learning": ReplyLearning(rounds=300), "keep": "last", "vocabulary": 10_000, "published": "li2017"}
    return TrainedTableConfig(**known, num_trainings=3)
