"""What a training of an editing policy is asked for: its configuration. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from parley.engine.ranking.verbs.config import DEFAULT_CORPUS
from parley.envs.core.ranges import Configuration, NonNegativeInt, NumItemsOrAll, PositiveInt
from parley.envs.ranking.edit_game import EditRules
from parley.envs.ranking.options import CandidateOptions
from parley.policies.core.choosing_settings import ChoiceLearning, ChoiceSizes


@dataclass(frozen=True, kw_only=True)
class TrainEditorConfig(Configuration):
    """Which ranker an editing policy learns to mislead, and on what."""

    model: str = "tfidf"
    """The frozen ranker: tfidf, bm25, a run of a matching model, hf:FOLDER, seq2seq:RUN, lm:RUN, or path/file.py:Name."""
    corpus: str = DEFAULT_CORPUS
    """Corpus of candidates or of pairs, as in evaluate ranking."""
    start: str = ""
    """Run or checkpoint of an editing policy to go on from; a new one when empty."""
    limit: NumItemsOrAll = 0
    """At most so many test contexts, the seed's choice of them; 0 for all. Learning takes from the whole training split."""
    lexicon: Literal["", "nltk", "built-in"] = ""
    """Tags: NLTK's data, or a small lexicon written for this project; when empty the latter for the help desk alone."""
    data_root: Path | None = None
    """Where corpora lie; PARLEY_DATA or the user cache folder when not given."""
    seed: NonNegativeInt = 1
    """Master seed."""
    threads: PositiveInt = 1
    """CPU threads that ranker and policy compute with."""
    save_every: PositiveInt = 10
    """Updates between saved training states."""
    candidates: CandidateOptions = field(default_factory=lambda: CandidateOptions(train_size=10))
    """How groups of candidates are made."""
    game: EditRules = field(default_factory=EditRules)
    """What edits may do."""
    editor: ChoiceSizes = field(default_factory=ChoiceSizes)
    """Widths of a new policy."""
    learning: ChoiceLearning = field(default_factory=ChoiceLearning)
    """The learning rule."""
