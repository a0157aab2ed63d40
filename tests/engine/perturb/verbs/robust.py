"""What evaluations under perturbations work on in the tests: small random models of the help desk, and a model of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from parley.engine.perturb.strategy import PerturbSettings
from parley.engine.perturb.verbs.config import EngineSettings, RobustnessConfig
from parley.envs.corpora.pairs.compiled import load_pairs
from parley.envs.corpora.pairs.contexts import with_eot
from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.policies.seq2seq.model import Seq2Seq
from parley.policies.seq2seq.scoring import save_model
from parley.policies.seq2seq.settings import Seq2SeqSizes

SWAP, ANTONYM = "random-swap", "antonym"
BUILT_IN = PerturbSettings(lexicon="built-in")
NUM_WORDS = 120
OWN = """
class Parrot:
    def respond(self, contexts):
        return [context[-1] for context in contexts]
"""


def words_of_the_desk() -> PairVocabulary:
    """The most frequent words of the help desk."""
    return load_pairs("helpdesk", vocabulary=NUM_WORDS).vocabulary


def save_responder(folder: Path, vocabulary: PairVocabulary, seed: int = 0, **provenance: Any) -> str:
    """Stores a random model that answers two turns; its folder."""
    sizes = Seq2SeqSizes(embed=6, hidden=8, max_source=20, max_reply=6, turns=2)
    model = Seq2Seq(with_eot(vocabulary), sizes)
    model.initialise(torch.Generator().manual_seed(seed))
    with torch.no_grad():
        # As drawn, every word is as likely as any other, whatever the context is.
        for parameter in model.parameters():
            parameter.mul_(6)
    save_model(model, folder, {"corpus": "helpdesk", **provenance})
    return str(folder)


def evaluation(model: str, **changes: Any) -> RobustnessConfig:
    """An evaluation of ten examples, four a shard, without any data."""
    settings: dict[str, Any] = {"strategies": f"{SWAP},{ANTONYM}", "limit": 10, "perturb": BUILT_IN}
    settings |= {"engine": EngineSettings(batch_size=8), "shard_size": 4}
    return RobustnessConfig(model=model, **{**settings, **changes})
