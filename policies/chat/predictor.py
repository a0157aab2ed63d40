"""Causal Hugging Face models as what the fitting loop trains: prompts in, replies to be learned.

A lesson is a prompt, the whole text that the model reads with its special tokens spelled out, and the reply that it shall give.
Only the reply and its end are learned. The state of a training holds what learns and nothing else: of a model with adapters
these alone.

    B lessons, L tokens of the longest prompt and reply, T reply tokens, M real ones of a batch, V tokens
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from parley.envs.core.errors import DataError
from parley.policies.core.fitting.batches import Tensors
from parley.policies.core.fitting.loss import OutputLoss
from parley.policies.core.fitting.predictor import Loss, Predictor
from parley.policies.hugging_face.caches import continues_reading, pads_left
from parley.policies.hugging_face.tokens import ends_of

_ROWS = 8
"""Lessons read together; bounds the memory for logits."""
_KEEP = "logits_to_keep"
"""The argument by which a model forms the logits of its last positions alone."""


@dataclass(frozen=True)
class ChatLesson:
    """One thing to learn.

    Args:
        prompt: what the model reads before its reply, special tokens spelled out.
        reply: what it shall say.
        ended: whether it shall end there; False of a reply that was cut.
    """

    prompt: str
    reply: str
    ended: bool = True


@dataclass(frozen=True)
class ChatBatch(Tensors):
    """Lessons side by side.

    Args:
        ids_BL: prompts and replies, padded behind.
        mask_BL: 1 at real tokens.
        targets_BT: of the last T positions that are read, the tokens that follow each, int64.
        real_BT: which of them are of a reply.
    """

    ids_BL: Tensor
    mask_BL: Tensor
    targets_BT: Tensor
    real_BT: Tensor


class ChatLessons:
    """Lessons as a model reads them.

    Args:
        tokenizer: of the model.
        lessons: in the order in which `batch` counts them.
        end_id: the token that ends a reply.
        longest: tokens that the model reads at most; infinity where nothing limits them.

    Raises:
        DataError: a prompt or a reply has no tokens, or both together have too many.
    """

    def __init__(self, tokenizer: Any, lessons: Sequence[ChatLesson], end_id: int, longest: float) -> None:
        self._read: list[tuple[list[int], list[int]]] = []
        for lesson in lessons:
            prompt, reply = (tokenizer(text, add_special_tokens=False).input_ids for text in (lesson.prompt, lesson.reply))
            reply = [*reply, end_id] if lesson.ended else reply
            if not prompt or not reply:
                what = "the prompt" if not prompt else "the reply"
                raise DataError(f"{what} of a lesson has no tokens", got=repr(lesson.prompt or lesson.reply)[:80])
            if len(prompt) + len(reply) > longest:
                got = f"{len(prompt) + len(reply):,} tokens, and the model reads {longest:,}"
                fix = "leave such prompts out, or take a shorter reply"
                raise DataError("a lesson is longer than the model reads", where=repr(lesson.prompt)[:80], got=got, fix=fix)
            self._read.append((prompt, reply))
        self.num_targets = np.array([len(reply) for _, reply in self._read], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._read)

    def batch(self, indices: np.ndarray) -> ChatBatch:
        """The lessons at `indices` (B,)."""
        chosen = [self._read[index] for index in indices.tolist()]
        # Nothing is read after the last token.
        longest = max(len(prompt) + len(reply) for prompt, reply in chosen) - 1
        first = min(len(prompt) for prompt, _ in chosen) - 1
        ids_BL = torch.zeros((len(chosen), longest), dtype=torch.int64)
        mask_BL, targets_BL = torch.zeros_like(ids_BL), torch.zeros_like(ids_BL)
        real_BL = torch.zeros_like(ids_BL, dtype=torch.bool)
        for row, (prompt, reply) in enumerate(chosen):
            read = torch.tensor([*prompt, *reply])
            end = len(read) - 1
            ids_BL[row, :end], mask_BL[row, :end] = read[:-1], 1
            targets_BL[row, :end] = read[1:]
            real_BL[row, len(prompt) - 1 : end] = True
        return ChatBatch(ids_BL, mask_BL, targets_BL[:, first:], real_BL[:, first:])


class ChatPredictor(Predictor[ChatBatch]):
    """A causal model of transformers, or one with adapters.

    Args:
        model: in float32; its parameters that need a gradient learn.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.output = model.get_output_embeddings()
        self.training = model.training
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._keeps = _KEEP in inspect.signature(base.forward).parameters

    def nll(self, batch: ChatBatch) -> Tensor:
        """Negative log-likelihoods of the replies' tokens (M,) in nats; logits exist at the positions of replies alone."""
        parts = zip(*(part.split(_ROWS) for part in vars(batch).values()), strict=True)
        return torch.cat([self._nll(ChatBatch(*part)) for part in parts])

    def _nll(self, batch: ChatBatch) -> Tensor:
        places = batch.targets_BT.shape[1]
        options = {_KEEP: places} if self._keeps else {}
        read = self.model(input_ids=batch.ids_BL, attention_mask=batch.mask_BL, use_cache=False, **options)
        logits_MV = read.logits[:, -places:][batch.real_BT].float()
        return F.cross_entropy(logits_MV, batch.targets_BT[batch.real_BT], reduction="none")

    def loss(self, batch: ChatBatch, output_loss: OutputLoss) -> Loss:
        """The sum of `nll`; heads of such models have no bias or scale what they say, so that their own forward is asked."""
        nll = self.nll(batch).sum()
        return Loss(nll, nll)

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]  # torch has overloads
        """What learns, by name."""
        return dict(self._learning())

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Takes what `state_dict` gave.

        Raises:
            KeyError: a weight that learns is not in it.
        """
        with torch.no_grad():
            for name, parameter in self._learning():
                parameter.copy_(state_dict[name])

    def _learning(self) -> Iterator[tuple[str, Tensor]]:
        return ((name, parameter) for name, parameter in self.named_parameters() if parameter.requires_grad)


@torch.inference_mode()
def greedy_replies(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[str],
    max_tokens: int,
    *,
    batch_size: int = 1,
    advance: Callable[[int], None] = lambda done: None,
) -> list[tuple[str, bool]]:
    """The likeliest replies to prompts, typed text read as it is.

    Args:
        model: in evaluation mode.
        tokenizer: of the model.
        prompts: as in `ChatLesson`.
        max_tokens: of a reply.
        batch_size: prompts of like length answered side by side, padded at the left; 1 pads none. Replies are equal up to the
            rounding of sums.
        advance: is told how many prompts have been answered.

    Returns:
        The text of each, without special tokens, and whether the model came to its end.
    """
    from transformers import GenerationConfig

    ends = list(ends_of(tokenizer, model))
    config = GenerationConfig(
        do_sample=False,
        max_new_tokens=max_tokens,
        eos_token_id=ends,
        pad_token_id=ends[0],
        repetition_penalty=1.0,
        use_cache=continues_reading(model),
    )
    ids = [tokenizer(prompt, add_special_tokens=False).input_ids for prompt in prompts]
    batch_size = batch_size if batch_size == 1 or pads_left(model) else 1
    order = sorted(range(len(prompts)), key=lambda row: len(ids[row]))
    found: dict[int, tuple[str, bool]] = {}
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        longest = max(len(ids[row]) for row in rows)
        ids_BL = torch.tensor([[ends[0]] * (longest - len(ids[row])) + ids[row] for row in rows], device=model.device)
        mask_BL = torch.tensor([[0] * (longest - len(ids[row])) + [1] * len(ids[row]) for row in rows], device=model.device)
        said_BT = model.generate(ids_BL, attention_mask=mask_BL, generation_config=config)[:, longest:].tolist()
        for row, said in zip(rows, said_BT, strict=True):
            # What ends early is filled up with ends.
            length = next((place for place, token in enumerate(said) if token in ends), len(said))
            found[row] = tokenizer.decode(said[:length], skip_special_tokens=True), length < len(said)
        advance(len(found))
    return [found[row] for row in range(len(prompts))]
