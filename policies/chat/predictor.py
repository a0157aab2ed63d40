"""Causal Hugging Face models as learners of replies: lessons, low-rank adapters, and a margin for contrasts.

A lesson is a prompt, with its special tokens spelled out, and a reply; a conversation has several of both, and is read once.
Only replies and their ends are learned. The state of a training holds the weights that learn alone: those of the adapters, if
the model has any.

Low-rank adapters, through peft (the extra `lora`): Hu et al. 2021 (arXiv 2106.09685). Beside each chosen layer W a product of
two small matrices is learned, W + (alpha / r) B A, with B = 0 at the start. `merged` adds the product to W, so the result is a
model of the same kind and size. Adapters on tied embeddings are refused: peft 0.21.2 adapts one of the two uses and merges into
both. The logits of every merged model are compared with those of the adapted one.

Contrasts are contexts behind which a reply shall become less likely:

    L = L_ML + alpha L_MM,    L_MM = mean over lessons of max(0, M + [NLL(g | s) - NLL(g | a)] / |g|)

as in `policies/core/margin.py`, of Niu & Bansal 2018 (arXiv 1809.02079), section 4; s is the prompt of a lesson, a its
contrast. Lessons without a contrast count as met, as there.

# Paper: g is the current model's greedy reply. Ours: the lesson's own reply, which is the first model's greedy one or the
recorded one, because a large model would spend most of a training on new replies. L_ML then already gives NLL(g | s).

Shapes: B lessons (S sequences), C of them with a contrast, T tokens of the longest prompt and reply, M own tokens of a batch,
those of replies, V tokens of the vocabulary.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from parley.envs.core.errors import CheckpointError, ConfigError, DataError, how_to_install
from parley.envs.core.seeds import derive_seed
from parley.policies.chat.model import Chat
from parley.policies.chat.settings import LoraSettings
from parley.policies.chat.templates import write_prompt
from parley.policies.core.fitting.batches import ExtendedBatch, Loss, OutputLoss, Predictor, Tensors, evaluate, example_nll
from parley.policies.core.fitting.loop import Objective
from parley.policies.core.layers import LinearOfNewSizes, dense_with_adapter
from parley.policies.hugging_face.caches import TokenTree, difference, logits_of_last, reads_trees

EXTRA = "lora"
"""The optional extra of this package."""
ALL_LINEAR = "all-linear"
"""Name for every linear layer but the output."""
_PROBE = 16
"""Tokens whose logits are compared."""
_ROUNDING, _ROUNDING_HALF = 1e-3, 0.2
"""Largest difference of a merged model's logits, as a share of their spread, in float32 and in half precision."""


def require_peft() -> Any:
    """Return the package peft.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        import peft
    except ImportError:
        fix = f"{how_to_install(EXTRA)}; or learn all weights with --method full"
        raise ConfigError("adapters need the package peft, which is not installed", fix=fix) from None
    return peft


def adapted(
    model: Any, settings: LoraSettings, seed: int, task: str | None = "CAUSAL_LM", adapter_name: str = "default"
) -> Any:
    """Return the model with fresh adapters, the only weights of it that learn.

    Args:
        model: of transformers, whose layers are exchanged in place, or already with adapters of other names.
        settings: of the adapters.
        seed: of their first weights.
        task: peft's name of the kind of model; None for encoders.
        adapter_name: peft's name of the adapters.

    Raises:
        ConfigError: peft is not installed, the model has no layer of those names, or they are embeddings that are tied.
    """
    peft = require_peft()
    modules = [name.strip() for name in settings.modules.split(",") if name.strip()]
    config = peft.LoraConfig(
        task_type=task,
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=ALL_LINEAR if modules == [ALL_LINEAR] else modules,
    )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # peft warns of layers with transposed weights, and adapts itself to them.
        warnings.filterwarnings("ignore", message="fan_in_fan_out")
        # Refused below.
        warnings.filterwarnings("ignore", message="(?s).*ensure_weight_tying")
        # peft calls a function that transformers is about to rename.
        warnings.filterwarnings("ignore", category=FutureWarning)
        torch.manual_seed(derive_seed(seed, "adapters"))
        try:
            if isinstance(model, peft.PeftModel):
                model.add_adapter(adapter_name, config)
                adapted_model = model
            else:
                adapted_model = peft.get_peft_model(model, config, adapter_name=adapter_name)
        except ValueError as error:
            fix = f"name layers of the model by lora.modules, or {ALL_LINEAR}"
            got = str(error).splitlines()[0][:200]
            raise ConfigError("no adapter fits the model", where=settings.modules, got=got, fix=fix) from None
    if tied := _adapted_embeddings(adapted_model):
        fix = f"name other layers by lora.modules, such as {ALL_LINEAR}, or learn all weights (--method full)"
        what = "adapters on tied embeddings cannot be added to the weights"
        raise ConfigError(what, where=settings.modules, got=f"adapters on {' and '.join(tied)}", fix=fix)
    adapt_in_one_pass(adapted_model)
    return adapted_model


def adapt_in_one_pass(adapted: Any) -> None:
    """Let linear layers with one low-rank adapter form its product onto theirs (`dense_with_adapter`)."""
    from peft.tuners.lora import Linear

    for layer in adapted.modules():
        if type(layer) is Linear:
            layer.__class__ = one_pass()


@cache
def one_pass() -> Any:
    """Return peft's linear layer with low-rank adapters, by `dense_with_adapter` where it has one plain adapter."""
    from peft.tuners.lora import Linear

    # peft knows linear layers by the name of their class.
    class OnePassLinear(Linear):
        def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            base, names = self.base_layer, [*self.active_adapters]
            is_one = len(names) == 1 and names[0] in self.lora_A and names[0] not in self.lora_variant
            if is_one and not (args or kwargs or self.disable_adapters or self.merged or base.weight.requires_grad):
                down, up, dropout = (part[names[0]] for part in (self.lora_A, self.lora_B, self.lora_dropout))
                is_plain = type(base) in (nn.Linear, LinearOfNewSizes) and type(dropout) is nn.Identity and up.bias is None
                is_alike = x.dtype == base.weight.dtype == down.weight.dtype
                if is_plain and is_alike and not torch.is_autocast_enabled(x.device.type):
                    return dense_with_adapter(x, base, down.weight, up.weight, self.scaling[names[0]])
            output: Tensor = super().forward(x, *args, **kwargs)
            return output

    return OnePassLinear


def merged(model: Any, where: str | None = None) -> Any:
    """Return the model alone, with its adapters added to its weights.

    Args:
        model: with adapters; its layers are exchanged in place.
        where: its name in errors.

    Raises:
        CheckpointError: the adapters are of a kind that cannot be added, or the model says something else without them.
    """
    training = model.training
    model.eval()
    wanted = _probe_logits(model)
    try:
        alone = model.merge_and_unload()
    except (AttributeError, NotImplementedError, ValueError) as error:
        fix = "name an adapter of LoRA's kind, or store the whole model with save_pretrained"
        got = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise CheckpointError("the adapter cannot be added to the weights", where=where, got=got, fix=fix) from None
    off = difference(_probe_logits(alone), wanted)
    if not off <= (_ROUNDING if wanted.dtype in (torch.float32, torch.float64) else _ROUNDING_HALF):
        fix = "adapt other layers: embeddings that are tied, and layers that are used twice, cannot be merged"
        got = f"logits differ by {off:.2g} times their spread"
        raise CheckpointError("the merged model says something else than the adapted one", where=where, got=got, fix=fix)
    return alone.train(training)


@torch.inference_mode()
def _probe_logits(model: Any) -> torch.Tensor:
    """Return the logits, or the states, of a few tokens of all parts of the vocabulary."""
    layer = model.get_input_embeddings()
    num, device = layer.weight.shape[0], layer.weight.device
    ids = torch.linspace(0, num - 1, _PROBE, device=device).long()[None]
    more = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
    if not getattr(model, "can_generate", lambda: False)():
        # An encoder has no cache, and perhaps no head.
        read = model(input_ids=ids)
        states: torch.Tensor = read.logits if "logits" in read else read.last_hidden_state
        return states.clone()
    logits: torch.Tensor = model(input_ids=ids, use_cache=False, **more).logits
    return logits.clone()


def _adapted_embeddings(model: Any) -> list[str]:
    base = model.get_base_model()
    layers = {"the input embeddings": base.get_input_embeddings(), "the output layer": base.get_output_embeddings()}
    weights = [getattr(getattr(layer, "base_layer", layer), "weight", None) for layer in layers.values()]
    if weights[0] is None or weights[0] is not weights[1]:
        return []
    return [name for name, layer in layers.items() if hasattr(layer, "base_layer")]


_ROWS = 8
"""Lessons read together; bounds the memory for logits."""


@dataclass(frozen=True)
class ChatLesson:
    """A prompt and the reply to learn.

    Args:
        prompt: the text before the reply, special tokens spelled out.
        reply: the reply to learn.
        ended: whether it shall end there; False of a reply that was cut.
        more: texts that follow in the same conversation, each with the reply behind it.
    """

    prompt: str
    reply: str
    ended: bool = True
    more: tuple[tuple[str, str], ...] = ()


def conversation_lessons(tokenizer: Any, end: str, moves: Sequence[tuple[Chat, str]]) -> list[ChatLesson]:
    """Return the lessons of a conversation, in which a model's own texts are learned, each behind all that it has read.

    Args:
        tokenizer: of the model, with a chat template.
        end: text of the token that ends a reply.
        moves: the messages before each own text, and the text, oldest first.

    Returns:
        One lesson that holds all texts; more if the template writes the messages before a text otherwise once it is said.
    """
    lessons: list[ChatLesson] = []
    written = ""
    for chat, reply in moves:
        prompt = write_prompt(tokenizer, chat)
        if lessons and prompt.startswith(written):
            lessons[-1] = replace(lessons[-1], more=(*lessons[-1].more, (prompt.removeprefix(written), reply)))
        else:
            lessons.append(ChatLesson(prompt, reply))
        written = f"{prompt}{reply}{end}"
    return lessons


@dataclass(frozen=True)
class ChatBatch(Tensors):
    """A batch of lessons.

    Args:
        targets_BT: tokens of prompts and replies, padded behind, int64.
        real_BT: true at tokens of a reply.
        lengths_B: tokens of each lesson.
    """

    targets_BT: Tensor
    real_BT: Tensor
    lengths_B: Tensor


class ChatLessons:
    """Lessons as tokens of a model.

    Args:
        tokenizer: of the model.
        lessons: in the order in which `batch` counts them.
        end_id: the token that ends a reply.
        longest: tokens that the model reads at most; infinity where nothing limits them.
        units: (n,) of each, for intervals; each is one when not given.

    Raises:
        DataError: a prompt or a reply has no tokens, or both together have too many.
    """

    def __init__(
        self, tokenizer: Any, lessons: Sequence[ChatLesson], end_id: int, longest: float, units: np.ndarray | None = None
    ) -> None:
        self.units = units
        self._read: list[tuple[list[int], list[bool]]] = []
        for lesson in lessons:
            read: list[int] = []
            is_own: list[bool] = []
            for prompt, reply in ((lesson.prompt, lesson.reply), *lesson.more):
                before, own = (tokenizer(text, add_special_tokens=False).input_ids for text in (prompt, reply))
                own = [*own, end_id] if lesson.ended else own
                if not (read or before) or not own:
                    what = "the prompt" if own else "the reply"
                    raise DataError(f"{what} of a lesson has no tokens", got=repr(prompt or reply)[:80])
                read += [*before, *own]
                is_own += [*[False] * len(before), *[True] * len(own)]
            if len(read) > longest:
                got = f"{len(read):,} tokens, and the model reads {longest:,}"
                fix = "leave such prompts out, or take a shorter reply"
                raise DataError("a lesson is longer than the model reads", where=repr(lesson.prompt)[:80], got=got, fix=fix)
            self._read.append((read, is_own))
        self.num_targets = np.array([sum(is_own) for _, is_own in self._read], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._read)

    @property
    def sequences(self) -> list[tuple[list[int], list[bool]]]:
        """The tokens of each lesson, and which of them are learned."""
        return list(self._read)

    def batch(self, indices: np.ndarray) -> ChatBatch:
        """Return the lessons at `indices` (B,)."""
        chosen = [self._read[index] for index in indices.tolist()]
        targets, real = ([torch.tensor(lesson[part]) for lesson in chosen] for part in (0, 1))
        lengths_B = torch.tensor([len(ids) for ids, _ in chosen])
        return ChatBatch(pad_sequence(targets, True), pad_sequence(real, True), lengths_B)


def own_logits(model: Any, tokens_ST: Tensor, own_ST: Tensor, lengths_S: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return logits (M, V) at the tokens before own ones, in float32, these own tokens (M,), and their rows (M,).

    Args:
        model: causal, of transformers.
        tokens_ST: sequences, padded behind.
        own_ST: true at own tokens; never the first.
        lengths_S: tokens of each.
    """
    device = model.get_input_embeddings().weight.device
    row_M, next_M = own_ST.nonzero().unbind(1)
    targets_M = tokens_ST[row_M, next_M].to(device)
    if reads_trees(model):
        tree = TokenTree(texts_of(tokens_ST, lengths_S - 1), device)
        places = [tree.places[row][number - 1] for row, number in zip(row_M.tolist(), next_M.tolist(), strict=True)]
        return tree.logits(model, places).float(), targets_M, row_M.to(device)
    longest = int(lengths_S.max())
    read_ST, is_own_ST = tokens_ST[:, : longest - 1].to(device), own_ST[:, 1:longest].to(device)
    first = int(is_own_ST.any(0).nonzero()[0])
    mask_ST = (torch.arange(longest - 1, device=device) < lengths_S[:, None].to(device)).long()
    num = read_ST.shape[1] - first
    read = model(input_ids=read_ST, attention_mask=mask_ST, use_cache=False, **logits_of_last(model, num))
    return read.logits[:, -num:][is_own_ST[:, first:]].float(), targets_M, row_M.to(device)


def texts_of(tokens_ST: Tensor, lengths_S: Tensor) -> list[list[int]]:
    """Return the tokens of each sequence (S, T), without those behind its length (S,)."""
    return [tokens[:length].tolist() for tokens, length in zip(tokens_ST, lengths_S.tolist(), strict=True)]


class LearningWeights(nn.Module):
    """A module whose state is the weights that learn alone."""

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]  # torch has overloads
        """Return the weights that learn, by name."""
        return dict(self._learning())

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Set the weights that learn.

        Raises:
            KeyError: a weight that learns is not in it.
        """
        with torch.no_grad():
            for name, parameter in self._learning():
                parameter.copy_(state_dict[name])

    def _learning(self) -> Iterator[tuple[str, Tensor]]:
        return ((name, parameter) for name, parameter in self.named_parameters() if parameter.requires_grad)


class ChatPredictor(LearningWeights, Predictor[ChatBatch]):
    """A causal model of transformers, or one with adapters.

    Args:
        model: in float32; its parameters that need a gradient learn.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.output = model.get_output_embeddings()
        self.training = model.training

    def nll(self, batch: ChatBatch) -> Tensor:
        """Return the negative log-likelihoods of the replies' tokens (M,) in nats; logits exist at replies alone."""
        # An adapted model takes any arguments: only the one below says which.
        base = self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model
        parts = zip(*(part.split(_ROWS) for part in vars(batch).values()), strict=True)
        read = (own_logits(base, *part)[:2] for part in parts)
        return torch.cat([F.cross_entropy(logits_MV, targets_M, reduction="none") for logits_MV, targets_M in read])

    def loss(self, batch: ChatBatch, output_loss: OutputLoss) -> Loss:
        """Return the sum of `nll`, from the model's own forward, because its head may scale logits and has no bias."""
        nll = self.nll(batch).sum()
        return Loss(nll, nll)


_ROWS_CONTRASTS = 128


@dataclass(frozen=True)
class ContrastedBatch(ExtendedBatch):
    """A batch of lessons, with the replies of some behind their contrasts.

    Args:
        rows_C: lessons with a contrast, int64.
        contrasts: these, with the contrast in the prompt's place; None where there are none.
    """

    rows_C: Tensor
    contrasts: ChatBatch | None

    def to(self, device: torch.device) -> ContrastedBatch:
        contrasts = None if self.contrasts is None else self.contrasts.to(device)
        return ContrastedBatch(self.learned.to(device), self.rows_C.to(device), contrasts)


class ContrastedExamples:
    """Lessons, some of them with a contrast.

    Args:
        learned: all of them.
        contrasts: the same with their contrasts in the prompts' places, of those that have one.
        places: (C,) which of `learned` these are, ascending.
    """

    def __init__(self, learned: ChatLessons, contrasts: ChatLessons, places: Sequence[int]) -> None:
        self.learned, self.contrasts = learned, contrasts
        self.places = np.array(places, dtype=np.int64)
        self._contrast = {index: number for number, index in enumerate(places)}
        self.num_targets = learned.num_targets

    def __len__(self) -> int:
        return len(self.learned)

    def batch(self, indices: np.ndarray) -> ContrastedBatch:
        """Return the lessons at `indices` (B,)."""
        rows = [row for row, index in enumerate(indices.tolist()) if index in self._contrast]
        behind = np.array([self._contrast[index] for index in indices[rows].tolist()], dtype=np.int64)
        contrasts = self.contrasts.batch(behind) if rows else None
        return ContrastedBatch(self.learned.batch(indices), torch.tensor(rows, dtype=torch.int64), contrasts)


class ContrastObjective(Objective[ContrastedBatch]):
    """L_ML + alpha L_MM.

    Args:
        model: that is trained.
        train: the training lessons; set the weight of a token beside a lesson.
        alpha: weight of the margin.
        margin: M, in nats per token.
    """

    def __init__(self, model: ChatPredictor, train: ContrastedExamples, *, alpha: float, margin: float) -> None:
        super().__init__(model)
        self.alpha, self.margin = alpha, margin
        self._tokens_per_lesson = float(train.num_targets.mean())

    def loss(self, batch: ContrastedBatch, output_loss: OutputLoss) -> Loss:
        """Return the replies' negative log-likelihood plus, in the same unit, the weighted hinges of contrasted lessons."""
        nll_B, _ = example_nll(self.model, batch.learned)
        nll = nll_B.sum()
        if batch.contrasts is None:
            return Loss(nll, nll)
        behind_C, tokens_C = example_nll(self.model, batch.contrasts)
        hinges_C = (self.margin - (behind_C - nll_B[batch.rows_C]) / tokens_C).relu()
        # Fit divides by the mean number of tokens in a batch; this weight turns the sum of hinges into a mean over lessons.
        return Loss(nll + self.alpha * self._tokens_per_lesson * hinges_C.sum(), nll)

    def validation(self, examples: Any) -> float:
        hinges = np.maximum(0.0, self.margin - gaps(self.model, examples))
        return evaluate(self.model, examples.learned).nll + self.alpha * float(hinges.sum()) / len(examples)


@torch.no_grad()
def gaps(model: Any, lessons: ContrastedExamples) -> np.ndarray:
    """Return [NLL(g | a) - NLL(g | s)] / |g| (C,) of the lessons with a contrast, in nats per token, without dropout.

    Args:
        model: a `ChatPredictor`.
        lessons: lessons to measure.
    """
    was_training, device = model.training, next(model.parameters()).device
    model.eval()
    gaps_of_batches = []
    for start in range(0, len(lessons.places), _ROWS_CONTRASTS):
        rows = np.arange(start, min(start + _ROWS_CONTRASTS, len(lessons.places)))
        as_before_C, tokens_C = example_nll(model, lessons.learned.batch(lessons.places[rows]).to(device))
        behind_C, _ = example_nll(model, lessons.contrasts.batch(rows).to(device))
        gaps_of_batches.append(((behind_C - as_before_C) / tokens_C).cpu().numpy())
    model.train(was_training)
    return np.concatenate(gaps_of_batches) if gaps_of_batches else np.zeros(0)


def contrasted(
    tokenizer: Any, lessons: Sequence[ChatLesson], contrasts: Sequence[str], end_id: int, longest: float
) -> ContrastedExamples:
    """Return lessons with their contrasts; an empty contrast is none.

    Args:
        tokenizer: of the model.
        lessons: in the order in which `batch` counts them.
        contrasts: the prompts behind which their replies shall be less likely; empty where there is none.
        end_id: the token that ends a reply.
        longest: tokens that the model reads at most; infinity where nothing limits them.

    Raises:
        DataError: as `ChatLessons`.
    """
    indices = [index for index, contrast in enumerate(contrasts) if contrast]
    behind = [ChatLesson(contrasts[index], lessons[index].reply, lessons[index].ended) for index in indices]
    return ContrastedExamples(
        ChatLessons(tokenizer, lessons, end_id, longest), ChatLessons(tokenizer, behind, end_id, longest), indices
    )
