"""What judges: anything that is fitted on pairs of two sides and then says of others which side they are of.

A judge is made afresh for every fold, fitted once, and asked about pairs of sources that it has not seen. Its scores are above
0 for the first side, below for the second, and exactly 0 where it cannot say; log-odds where it has them. A judge of your own
is named as `path/file.py:Name` and is called without arguments.

    Judge           the protocol
    Parsing         what a judge offers that asks a chat model
    Featured        what a judge offers that can say which words it goes by
    judges          the registry; `makers.py` finds what makes a judge of a name
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from parley.envs.core.errors import JudgeError
from parley.envs.core.registry import Registry
from parley.envs.core.storage.uris import HUGGING_FACE
from parley.envs.corpora.pairs.replied import RepliedPair
from parley.policies.chat.addresses import GGUF, OPENAI
from parley.policies.chat.settings import DEFAULT, ChatModelSettings


@runtime_checkable
class Judge(Protocol):
    """Tells two sides apart; what it says of a pair does not depend on what else it is asked."""

    def fit(self, pairs: Sequence[RepliedPair], labels: np.ndarray, seed: int) -> None:
        """Learns; called once.

        Args:
            pairs: N of them.
            labels: (N,) whether each is of the first side; both sides are there.
            seed: of all that is drawn.
        """

    def score(self, pairs: Sequence[RepliedPair]) -> np.ndarray | list[float]:
        """One finite number for each pair, above 0 for the first side."""


@runtime_checkable
class Featured(Protocol):
    """A judge that can say what it goes by."""

    def features(self, num: int) -> list[tuple[str, float]]:
        """Words with their weights: the `num` most positive ones and the `num` most negative ones."""


@runtime_checkable
class Parsing(Protocol):
    """A judge that reads answers, some of which may say nothing."""

    def num_unparsable(self, pairs: Sequence[RepliedPair]) -> int:
        """Of how many pairs it could not read the answer."""


@runtime_checkable
class Answering(Protocol):
    """A judge that asks a chat model, some answers of which may be no reply."""

    def no_replies(self, pairs: Sequence[RepliedPair]) -> Mapping[str, int]:
        """Of how many pairs it had no reply, by `AnswerKind.column`."""


@dataclass(frozen=True)
class JudgeSettings:
    """What judges are made with.

    Args:
        forward: a response model, whose log p(reply | source) the judge svm-neural reads; empty for none.
        backward: one that was fitted to say the source, for log p(source | reply); empty for none.
        separate: whether unigrams of source and reply are features of their own.
        embedding: width of a network's word vectors.
        hidden: width of its states.
        device: torch device.
        chat: how a chat model is loaded or asked.
        answers: folder of a run in which a chat model's answers are kept; empty keeps none.
    """

    forward: str = ""
    backward: str = ""
    separate: bool = False
    embedding: int = 100
    hidden: int = 128
    device: str = "cpu"
    chat: ChatModelSettings = DEFAULT
    answers: str = ""


judges = Registry("judge", "parley.judges")
"""Functions of `JudgeSettings`; each loads what judges of its kind share, and returns what makes one for a fold."""
judges.register(
    "svm-unigram", "linear SVM on unigrams of source and reply", "parley.policies.generation.judges.linear:svm_unigram"
)
judges.register(
    "concatenated", "network: vectors of utterances side by side", "parley.policies.generation.judges.neural:concatenated"
)
judges.register(
    "hierarchical", "network: an LSTM over vectors of utterances", "parley.policies.generation.judges.neural:hierarchical"
)
judges.register(
    "svm-neural", "SVM on unigrams, network and --forward, --backward", "parley.policies.generation.judges.neural:svm_neural"
)

CONTROLS = {
    "constant": "says nothing: ERE .25, AdverSuc .5",
    "length": "words of the reply, counted",
    "first-word": "first word of the reply",
    "copy": "share of the reply's words that stand in the source",
    "reply-only": "linear SVM on unigrams of the reply",
}
"""Judges that stand beside all others, with what they go by."""
for _name, _summary in CONTROLS.items():
    _linear, _controls = "parley.policies.generation.judges.linear", "parley.policies.generation.judges.controls"
    judges.register(_name, _summary, f"{_linear if _name == 'reply-only' else _controls}:{_name.replace('-', '_')}")

JUDGE_KINDS = {
    f"{HUGGING_FACE}FOLDER": "a classifier of Hugging Face, which is not fitted: its threshold is; or a chat model",
    f"{GGUF}FILE": "a chat model that is asked who wrote a reply",
    f"{OPENAI}URL#MODEL": "one behind a server",
    "path/file.py:Name": "a class of your own, or a chat model of your own",
}
"""Names that are not registered, by their form, with what they stand for."""


def scores_by(judge: Judge, pairs: Sequence[RepliedPair]) -> np.ndarray:
    """The scores of pairs, (N,) float64.

    Raises:
        JudgeError: the judge did not give one finite number for each pair.
    """
    found = np.asarray(judge.score(pairs), dtype=np.float64)
    if found.shape != (len(pairs),) or not np.isfinite(found).all():
        got = f"shape {found.shape} for {len(pairs)} pairs" if found.shape != (len(pairs),) else "a number that is not finite"
        fix = "return one finite number for each pair, above 0 for the first side"
        raise JudgeError("the judge does not give one score for each pair", where=type(judge).__name__, got=got, fix=fix)
    return found
