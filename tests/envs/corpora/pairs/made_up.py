"""Small corpora of pairs written for the tests, in the published formats."""

from __future__ import annotations

from pathlib import Path

from parley.envs.corpora.pairs.tokens import SplitText

LOG = (
    "=== nick1 [~n@host] has joined #ubuntu",
    "[03:14] <Ann> my disk is full",
    "[03:14] <bob> ann: which disk?",
    "[03:15] <ubotu> bob: I don't know",
    "[03:15]  * Ann sighs",
    "[03:16] <carl> ANN, delete something",
    "[03:16] <bob> bob: talking to myself",
    "[03:17] <Ann> carl: ok",
    "[03:17] <carl>",
    "[03:18] -dora:#ubuntu- buy this",
    "[03:18] (emil/#ubuntu) ann: hello from elsewhere",
    "[03:19] <bob> you're welcome",
)
"""Lines 0 to 11; the links below annotate lines 7 and later."""
LINKS = ("4 7 -", "8 8 -", "7 11 -", "6 11 -", "3 7 -")


def write_lines(path: Path, *lines: str) -> Path:
    """Puts the lines into a file, whose folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def write_ubuntu(folder: Path) -> None:
    """One log in each of the three folders."""
    for name in ("train", "dev", "test"):
        write_lines(folder / name / "2004-12-25.ascii.txt", *LOG)
        write_lines(folder / name / "2004-12-25.annotation.txt", *LINKS)


def pairs_of(split: SplitText) -> list[tuple[str, str]]:
    """Source and reply of each pair, words joined by spaces."""
    utterances = [" ".join(words) for words in split.utterances()]
    return [(utterances[source], utterances[reply]) for source, reply in split.pairs.tolist()]
