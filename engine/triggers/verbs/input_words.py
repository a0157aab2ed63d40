"""The words that inputs of `parley search text` are made of: a file's, or those of the targets; a run keeps its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from parley.engine.core.runs.documents import write_document
from parley.engine.core.runs.manifest import read_json, whole
from parley.engine.triggers.targets import TargetList, prototypes
from parley.envs.core.errors import ConfigError, RunError
from parley.envs.core.storage.uris import display_path
from parley.envs.corpora.lines import utf8_text

WORDS = "words.json"
"""The file of a run that holds them."""
_ENTRY = "words"


def input_words(path: Path, named: str, targets: TargetList) -> tuple[str, ...]:
    """The words of a run, those that it was started with where it has begun.

    Args:
        path: the run's folder.
        named: a file of words; empty for those of the targets, of their prompts, and of the list mal.
        targets: of the run.

    Raises:
        ConfigError: the file is empty.
        DataError: it cannot be read, or is no UTF-8.
        RunError: the words of the run cannot be read.
    """
    if (path / WORDS).is_file():
        with whole(path / WORDS):
            return tuple(map(str, read_json(path / WORDS)[_ENTRY]))
    if not named:
        return _words_of(targets)
    words = tuple(dict.fromkeys(utf8_text(Path(named)).split()))
    if not words:
        raise ConfigError("the file of words is empty", where="--words", got=named, fix="write words there")
    return words


def save_words(words: Sequence[str], path: Path) -> None:
    """Keeps the words in a run's folder.

    Raises:
        RunError: the disk refuses.
    """
    try:
        write_document(path / WORDS, {_ENTRY: list(words)})
    except OSError as error:
        fix = f"make room or mend the disk, then parley resume {display_path(path)}"
        raise RunError("the words cannot be written", where=path / WORDS, got=error.strerror, fix=fix) from None


def _words_of(targets: TargetList) -> tuple[str, ...]:
    texts = [text for target in targets.targets for text in (target.prompt or "", *target.words)]
    texts += [" ".join(words) for words in prototypes()]
    return tuple(dict.fromkeys(word for text in texts for word in text.split()))
