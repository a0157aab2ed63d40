"""The searched model in a worker's hands: how it is asked, how targets become its words, how its words become text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from engine.triggers.targets import Target
from envs.pairs.vocabulary import EOS
from envs.storage.copies import fetched_model

if TYPE_CHECKING:
    from torch import Tensor

    from engine.triggers.method import Initial
    from engine.triggers.objective import TriggerObjective
    from engine.triggers.scorer import Scorer, Victim


class Subject(Protocol):
    """What a search needs of a model."""

    victim: Victim
    """How the model is asked."""

    def scorer(self, objective: TriggerObjective) -> Scorer:
        """What answers a search's questions about it."""

    def initial(self) -> Initial:
        """Draws inputs that the language model finds likely."""

    def ids(self, target: Target) -> Tensor:
        """Ids (T,) int64 of a target's words and its end."""

    def words(self, target: Target) -> list[str]:
        """What those ids stand for."""

    def text(self, ids: Sequence[int]) -> str:
        """What an input reads."""


class NetworkSubject:
    """One of Parley's own networks.

    Args:
        network: a sequence-to-sequence model.
        lm: a language model over the same words; None without one.
        unknown: whether `<unk>` may stand in an input.
    """

    def __init__(self, network: Any, lm: Any, unknown: bool) -> None:
        from engine.triggers.victims import Seq2SeqVictim

        self.network, self.lm, self.unknown = network, lm, unknown
        self.victim: Victim = Seq2SeqVictim(network, unknown=unknown)

    def scorer(self, objective: TriggerObjective) -> Scorer:
        """The fast one."""
        from engine.triggers.lstm.scorer import LstmScorer

        return LstmScorer(self.network, objective, self.lm, unknown=self.unknown)

    def initial(self) -> Initial:
        """Draws sentences of full length from the language model."""
        import torch

        from policies.seq2seq.decoding import sample_sentences

        device, length = self.victim.searchable_V.device, self.victim.input_length
        return lambda seeds: torch.from_numpy(sample_sentences(self.lm, seeds, length)).to(device)

    def ids(self, target: Target) -> Tensor:
        """Ids (T,) int64 of a target's words and its end."""
        import torch

        return torch.from_numpy(target.ids(self.network.vocabulary)).to(self.victim.searchable_V.device)

    def words(self, target: Target) -> list[str]:
        """The target's words and its end."""
        return [*target.words, EOS]

    def text(self, ids: Sequence[int]) -> str:
        """Words joined by blanks."""
        return " ".join(self.network.vocabulary.decode(ids))


@dataclass(frozen=True)
class HuggingFaceFolder:
    """Where a Hugging Face model lies, and how it is asked.

    Args:
        name: the folder, or the URI of one.
        length: tokens of an input.
        template: the prompt of a causal model, see `policies.hugging_face`; None for its own.
    """

    name: str
    length: int
    template: str | None

    def build(self, device: str) -> Any:
        """The adapter of the model.

        Raises:
            ConfigError: the optional extra is not installed, or the template does not fit.
            CheckpointError: the folder holds no model that can be read.
        """
        from policies.hugging_face import load_hugging_face

        return load_hugging_face(fetched_model(self.name), self.length, template=self.template, device=device)

    def tokenizer(self) -> Any:
        """What turns text into the model's tokens.

        Raises:
            ConfigError: the optional extra is not installed.
            CheckpointError: the folder holds none that can be read.
        """
        from policies.hugging_face import load_tokenizer

        return load_tokenizer(fetched_model(self.name))


class HuggingFaceSubject:
    """A Hugging Face model; its words are tokens.

    Args:
        adapter: `policies.hugging_face.HuggingFaceVictim`.
    """

    def __init__(self, adapter: Any) -> None:
        self.adapter = adapter
        self.victim: Victim = adapter

    def scorer(self, objective: TriggerObjective) -> Scorer:
        """The plain one, which asks any model."""
        from engine.triggers.scorer import PlainScorer

        return PlainScorer(self.victim, objective)

    def initial(self) -> Initial:
        """There is no language model over its tokens."""
        raise AssertionError("inputs of a Hugging Face model are not judged")

    def ids(self, target: Target) -> Tensor:
        """Tokens of the target's text and the token that ends a reply."""
        ids: Tensor = self.adapter.target(" ".join(target.words))
        return ids

    def words(self, target: Target) -> list[str]:
        """The tokens as the tokenizer spells them."""
        tokens: list[str] = self.adapter.tokenizer.convert_ids_to_tokens(self.ids(target).tolist())
        return tokens

    def text(self, ids: Sequence[int]) -> str:
        """What the tokens read."""
        read: str = self.adapter.tokenizer.decode(list(ids))
        return read
