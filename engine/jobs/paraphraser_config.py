"""What a paraphraser is fitted to, and how: the settings of `parley train paraphraser`. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.jobs.supervised import SupervisedConfig
from envs.core.config import check
from envs.pairs.vocabulary import SPECIALS
from policies.pointer_generator import settings
from policies.pointer_generator.settings import PointerFitConfig, PointerSizes

MSR, HELPDESK = "msr_paraphrases", "helpdesk_paraphrases"


@dataclass(frozen=True, kw_only=True)
class TrainParaphraserConfig(SupervisedConfig):
    """A pointer-generator network, fitted to pairs of paraphrases."""

    corpus: str = MSR
    """Registered corpus of pairs (parley data list), a source<TAB>paraphrase file or folder, or path/file.py:NAME."""
    vocabulary: int = 5_000
    """Words that it can write without copying, special tokens included: the most frequent ones of the corpus."""
    sizes: PointerSizes = field(default_factory=PointerSizes)
    """The model."""
    fit: PointerFitConfig = field(default_factory=PointerFitConfig)
    """The recipe."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "vocabulary", self.vocabulary > len(SPECIALS), f"at least {len(SPECIALS) + 1}")


def small() -> TrainParaphraserConfig:
    """A network for a laptop, fitted with Adam: half the published state, 5,000 words; the rest is copied."""
    return TrainParaphraserConfig(sizes=PointerSizes(hidden=128, dropout=0.2), fit=settings.fast())


def see2017() -> TrainParaphraserConfig:
    """The network of See et al. 2017 by their recipe (Adagrad, coverage in a last phase); 50,000 words."""
    return TrainParaphraserConfig(vocabulary=50_000, fit=settings.see2017())


def demo() -> TrainParaphraserConfig:
    """A small network for the built-in paraphrases, fitted in seconds."""
    return TrainParaphraserConfig(corpus=HELPDESK, vocabulary=300, sizes=PointerSizes(embed=32, hidden=32), fit=settings.demo())
