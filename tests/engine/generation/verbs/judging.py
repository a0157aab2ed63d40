"""What adversarial evaluations work on in the tests: files of made-up replies, and judges of one's own."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from parley.engine.generation.verbs.adversarial_config import AdversarialConfig

NUM = 60
OWN = '''
class Telltale:
    """Goes by a word that machines say."""

    def fit(self, pairs, labels, seed):
        self.seen = {pair.context for pair in pairs}

    def score(self, pairs):
        assert not self.seen & {pair.context for pair in pairs}, "a source of the fit"
        return [-1.0 if "indeed" in pair.reply else 1.0 for pair in pairs]


class Dead:
    def fit(self, pairs, labels, seed):
        raise RuntimeError("out of memory")

    def score(self, pairs):
        return []
'''


def replies(kind: str, num: int = NUM, *, tell: str = "") -> list[str]:
    """Lines of source and reply, of which a word may tell who wrote them."""
    rng = random.Random(kind)
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]
    return [
        f"what about topic{number} ?\t{' '.join([*rng.choices(words, k=rng.randrange(4, 9)), tell])}".rstrip()
        for number in range(num)
    ]


def written(path: Path, lines: list[str]) -> Path:
    """A file of lines."""
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def own(folder: Path) -> str:
    """The file of one's own judges."""
    (folder / "mine.py").write_text(OWN)
    return str(folder / "mine.py")


def asked(folder: Path, **changes: Any) -> AdversarialConfig:
    """People's replies, those of a system that says a telling word, and of one that says none."""
    written(folder / "people.tsv", replies("people"))
    written(folder / "plain.tsv", replies("plain"))
    written(folder / "telling.tsv", replies("telling", tell="indeed"))
    settings: dict[str, Any] = {
        "human": str(folder / "people.tsv"),
        "machine": f"{folder / 'plain.tsv'},{folder / 'telling.tsv'}",
        "folds": 3,
        # By itself each fit is saved when it ends, and a run of a second spends many on hundreds of files.
        "shard_size": 20,
    }
    return AdversarialConfig(**settings | changes)
