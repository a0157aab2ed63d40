"""What evaluations of rankers work on in the tests: the help desk, and rankers and rules of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from parley.engine.ranking.verbs.config import RankingAttackConfig, RankingConfig
from parley.policies.ranking.matching.fit import FORMATS, build
from parley.policies.ranking.matching.settings import SmnSizes
from tests.engine.perturb.verbs.robust import words_of_the_desk

OWN = """
from dataclasses import replace

from parley.engine.perturb.replies.shapes import Attacked

SEEN = []


class Plain:
    def score(self, context, candidates):
        SEEN.append((context, tuple(candidates)))
        return [float(sum(word in context[-1] for word in words)) for words in candidates]


class Moody(Plain):
    def score(self, context, candidates):
        if ("i", "am", "sorry", "can", "you", "repeat") in candidates:
            raise RuntimeError("no apologies")
        return super().score(context, candidates)


class Shy(Plain):
    def score(self, context, candidates):
        if len(context[-1]) % 2:
            return [float("nan")] * len(candidates)
        return super().score(context, candidates)


class Sour(Plain):
    def score(self, context, candidates):
        if any(len(words) > 9 for words in candidates):
            raise RuntimeError("too long")
        return super().score(context, candidates)


class Shuffled:
    def steps(self, case):
        from parley.engine.ranking.attacks.cases import Draft
        from parley.engine.ranking.attacks.attack import DraftBatch

        words = case.original.words[::-1]
        num = len(words)
        yield DraftBatch([Draft(words, case.original.tags[::-1], (-1,) * num, (True,) * num, num, num)])


class Dead:
    def score(self, context, candidates):
        raise RuntimeError("out of memory")


class Shouting:
    name, attacks, keeps_labels = "shouting", "negatives", True

    def apply(self, groups, seeds):
        found = []
        for group in groups:
            wrong = group.labels.index(False)
            candidates = (*group.candidates[:wrong], ("HELLO",), *group.candidates[wrong + 1 :])
            changed = tuple(int(place == wrong) for place in range(len(candidates)))
            found.append(Attacked(replace(group, candidates=candidates), changed))
        return found


class Chatty(Shouting):
    attacks = "context"
"""


def own(folder: Path) -> str:
    """A file of rankers and rules of one's own; its path."""
    path = folder / "mine.py"
    path.write_text(OWN)
    return str(path)


def save_matcher(folder: Path, seed: int = 1, **provenance: Any) -> str:
    """Stores a random SMN that reads the help desk; its folder."""
    model = build(words_of_the_desk(), SmnSizes(embed=8, turns=4, words=11, gru=6, maps=3, match=5, session=4))
    generator = torch.Generator().manual_seed(seed)
    model.initialise(generator)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.4, generator=generator)
    FORMATS["smn"].save(model, folder, provenance)
    return str(folder)


def long_rows(path: Path) -> str:
    """A file of three contexts, of which the matcher above reads the last one whole, and no wrong reply; its path."""
    contexts = ("\t".join(f"turn {number}" for number in range(6)), f"hello\t{' '.join(['oh'] * 12)}", "hello")
    rows = [f"{label}\t{context}\t{reply}" for context in contexts for label, reply in ((1, "yes"), (0, "no " * 12))]
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(rows))
    return str(path)


def asked(model: str = "tfidf", **changes: Any) -> RankingConfig:
    """Ten contexts, four a shard, without any data."""
    settings: dict[str, Any] = {"limit": 10, "shard_size": 4, "rules": "iiw,sow,ngr", "controls": False, "num_erased": 0}
    return RankingConfig(model=model, **{**settings, **changes})


def attacks(model: str = "tfidf", **changes: Any) -> RankingAttackConfig:
    """Attacks in ten contexts, four a shard, without any data."""
    settings: dict[str, Any] = {"limit": 10, "shard_size": 4, "budget": 30, "method": "greedy"}
    return RankingAttackConfig(model=model, **{**settings, **changes})
