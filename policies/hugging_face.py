"""Hugging Face models as what a trigger search works on: sequence-to-sequence models and causal ones.

An adapter holds the model, its tokenizer, and what surrounds the searched words: the tokenizer's own marks around a source, or
the prompt around a user's turn. It answers as `TextVictim` of `engine/triggers/scorer.py` does, from embeddings to logits, so
any search that a `PlainScorer` can serve works on it. The optional extra `hugging-face` installs what loading needs; this
module itself imports nothing of it.

An input is a sequence of tokens. Its text, tokenised again, may give other tokens; `text` shows what to type.

    B inputs, N searched positions, P positions around them, T tokens of a reply, V tokens, E embedding
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from envs.core.config import check
from envs.core.errors import CheckpointError, ConfigError, DataError
from policies.stored import model_inside

EXTRA = "hugging-face"
"""The optional extra of this package."""
PLACE = "{}"
"""Where the searched words stand in a template."""

# SentencePiece vocabularies spell the 256 bytes like this; on their own they are no characters.
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_SAMPLE = "a"
_CONTROLS = ("Cc", "Cf", "Cs", "Co", "Cn")


class HuggingFaceVictim:
    """What both kinds of models share; `reply_logits` is theirs.

    Args:
        model: a Hugging Face model with a language-modelling head; its parameters are frozen.
        tokenizer: of the model.
        length: N, tokens of an input.

    Attributes:
        embedding_VE: embeddings of all tokens as the model's layers read them.
        searchable_V: tokens that an input may hold: all that are text on their own.
        input_length: N.
        end_id: the token that ends a reply.

    Raises:
        ConfigError: there is no token that ends a reply, or no position to search.
        CheckpointError: weights are not finite.
    """

    def __init__(self, model: Any, tokenizer: Any, length: int) -> None:
        self.model, self.tokenizer, self.input_length = model.eval().requires_grad_(False), tokenizer, length
        check(self, "input_length", length >= 1, "at least 1")
        _require_finite(model)
        if tokenizer.eos_token_id is None:
            raise ConfigError(
                "the tokenizer has no token that ends a reply",
                where=type(tokenizer).__name__,
                fix="set its eos_token to the token that the model ends its replies with",
            )
        self.end_id: int = tokenizer.eos_token_id
        embedding = model.get_input_embeddings()
        # The module and not its weights: some models scale what they look up.
        self.embedding_VE: Tensor = embedding(torch.arange(embedding.num_embeddings, device=embedding.weight.device))
        self.searchable_V = searchable(tokenizer, embedding.num_embeddings).to(self.embedding_VE.device)

    def to(self, device: str) -> Self:
        """Itself, moved to a device."""
        self.model.to(device)
        self.embedding_VE, self.searchable_V = self.embedding_VE.to(device), self.searchable_V.to(device)
        return self

    def target(self, text: str) -> Tensor:
        """The tokens (T,) int64 of a reply, its end included, as a search takes them.

        Args:
            text: what the model shall say.

        Raises:
            DataError: no tokens stand for some of it.
        """
        if unknown := unknown_words(self.tokenizer, text):
            fix = "write the target with other words"
            raise DataError("the model cannot say some words of a target", where=text, got=", ".join(unknown), fix=fix)
        ids = self.tokenizer(text, add_special_tokens=False).input_ids
        return torch.tensor([*ids, self.end_id], device=self.embedding_VE.device)

    @property
    def longest_reply(self) -> int | None:
        """Tokens of the longest reply that the model has positions for, its end included; None where nothing limits it."""
        positions = getattr(self.model.config, "max_position_embeddings", None)
        # Nothing is read after the last token.
        return None if positions is None else positions - self._num_before_reply + 1

    @property
    def _num_before_reply(self) -> int:
        """Positions that stand before a reply where it is predicted."""
        raise NotImplementedError

    def words(self, ids: Sequence[int]) -> list[str]:
        """The tokens as the tokenizer spells them."""
        tokens: list[str] = self.tokenizer.convert_ids_to_tokens(list(ids))
        return tokens

    def text(self, ids: Sequence[int]) -> str:
        """What the tokens of an input read."""
        read: str = self.tokenizer.decode(list(ids))
        return read

    def _embedded(self, ids: list[int], like_BNE: Tensor) -> Tensor:
        """Fixed tokens beside every input: (B, P, E)."""
        return self.embedding_VE[ids].expand(len(like_BNE), -1, -1)


class HuggingFaceSeq2Seq(HuggingFaceVictim):
    """An encoder and a decoder, such as T5, BART or BlenderBot; the whole source is searched.

    What the tokenizer puts around a text stands around the input (T5: an end; BART: a beginning and an end). What it puts
    before the text of a reply is given to the decoder and not scored.
    """

    def __init__(self, model: Any, tokenizer: Any, length: int) -> None:
        super().__init__(model, tokenizer, length)
        self._before, self._after = _marks(tokenizer, text=_SAMPLE)
        start = model.config.decoder_start_token_id
        if start is None:
            raise ConfigError(
                "the model does not say which token its replies begin after",
                where=type(model).__name__,
                fix="set decoder_start_token_id in its config.json",
            )
        self._begin = [start, *_marks(tokenizer, text_target=_SAMPLE)[0]]

    @property
    def _num_before_reply(self) -> int:
        return len(self._begin)

    def reply_logits(self, embedded_BNE: Tensor, replies_BT: Tensor) -> Tensor:
        """Logits (B, T, V) of each token of the replies given those before it; differentiable in the embeddings."""
        source = [self._embedded(self._before, embedded_BNE), embedded_BNE, self._embedded(self._after, embedded_BNE)]
        begin_BP = replies_BT.new_tensor(self._begin).expand(len(replies_BT), -1)
        decoded = self.model(
            inputs_embeds=torch.cat(source, dim=1),
            decoder_input_ids=torch.cat([begin_BP, replies_BT[:, :-1]], dim=1),
            use_cache=False,
        )
        logits_BTV: Tensor = decoded.logits[:, len(self._begin) - 1 :]
        return logits_BTV


class HuggingFaceCausal(HuggingFaceVictim):
    """A decoder alone, such as GPT-2, DialoGPT or Llama; the user's turn of a prompt is searched.

    Args:
        model: as for all.
        tokenizer: as for all.
        length: as for all.
        template: the prompt with `{}` in the place of the input, special tokens written out. By default the tokenizer's chat
            template, and where it has none the input and an end, as DialoGPT is trained.

    Raises:
        ConfigError: as for all, or the template has not one `{}`.
    """

    def __init__(self, model: Any, tokenizer: Any, length: int, template: str | None = None) -> None:
        super().__init__(model, tokenizer, length)
        self.template = default_template(tokenizer) if template is None else template
        if self.template.count(PLACE) != 1:
            raise ConfigError(
                "a template has one place for the input", got=repr(self.template), fix=f"write {PLACE} there, once"
            )
        before, after = self.template.split(PLACE)
        self._before, self._after = (tokenizer(text, add_special_tokens=False).input_ids for text in (before, after))

    @property
    def _num_before_reply(self) -> int:
        return len(self._before) + self.input_length + len(self._after)

    def reply_logits(self, embedded_BNE: Tensor, replies_BT: Tensor) -> Tensor:
        """Logits (B, T, V) of each token of the replies given those before it; differentiable in the embeddings."""
        prompt = [self._embedded(self._before, embedded_BNE), embedded_BNE, self._embedded(self._after, embedded_BNE)]
        read_BPE = torch.cat([*prompt, self.embedding_VE[replies_BT[:, :-1]]], dim=1)
        logits_BTV: Tensor = self.model(inputs_embeds=read_BPE, use_cache=False).logits[:, -replies_BT.shape[1] :]
        return logits_BTV


def load_hugging_face(
    folder: Path, length: int, *, template: str | None = None, device: str = "cpu"
) -> HuggingFaceSeq2Seq | HuggingFaceCausal:
    """The adapter of a model that lies in a folder as `save_pretrained` wrote it; nothing is downloaded, no code in it is run.

    Args:
        folder: model and tokenizer, weights as safetensors.
        length: N, tokens of an input.
        template: of a causal model, see there.
        device: torch device.

    Raises:
        ConfigError: transformers is not installed, or a template is given for an encoder and decoder.
        CheckpointError: the folder holds no model that it can read, or weights are not finite.
    """
    tokenizer, model = read_pretrained(
        folder, lambda config: "AutoModelForSeq2SeqLM" if config.is_encoder_decoder else "AutoModelForCausalLM"
    )
    if not model.config.is_encoder_decoder:
        return HuggingFaceCausal(model.to(device), tokenizer, length, template)
    if template is not None:
        raise ConfigError("only a causal model takes a template", where=folder, fix="leave the template out")
    return HuggingFaceSeq2Seq(model.to(device), tokenizer, length)


def read_pretrained(folder: Path, kind: Callable[[Any], str]) -> tuple[Any, Any]:
    """The tokenizer and the model of a folder as `save_pretrained` wrote it; nothing is downloaded, no code in it is run.

    Args:
        folder: model and tokenizer, weights as safetensors, or a run that holds them as its checkpoint.
        kind: the name of the automatic class of transformers that the model is read by, from its configuration.

    Raises:
        ConfigError: transformers is not installed.
        CheckpointError: the folder holds no model that it can read, or not all of its weights.
    """
    try:
        import transformers
    except ImportError:
        fix = f"pip install 'parley[{EXTRA}]'"
        raise ConfigError("Hugging Face models need the package transformers, which is not installed", fix=fix) from None
    folder = model_inside(folder)
    if not (folder / "config.json").is_file():
        fix = "name a folder that save_pretrained wrote"
        raise CheckpointError("a Hugging Face model needs a config.json and there is none", where=folder, fix=fix)
    with _readable(folder), without_progress_bars():
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        reader = getattr(transformers, kind(config))
        # Other formats than safetensors are pickles, which can run anything.
        model, read = reader.from_pretrained(folder, local_files_only=True, use_safetensors=True, output_loading_info=True)
    # transformers draws what the files do not hold. Base models often come without their pooler, and nothing here reads it.
    if missing := sorted(key for key in read["missing_keys"] if not key.startswith("pooler.")):
        raise CheckpointError(
            "the folder does not hold all weights of its model",
            where=folder,
            got=f"no {', '.join(missing[:5])}",
            fix="save the whole model there with save_pretrained",
        )
    return tokenizer, model


def longest_input(tokenizer: Any, model: Any) -> int | float:
    """Tokens that a model reads at most, special ones included; infinity where nothing limits them."""
    positions: int | float = getattr(model.config, "max_position_embeddings", None) or math.inf
    for name, layer in model.named_modules():
        # RoBERTa and its kin count positions from behind their padding index.
        if name.endswith("position_embeddings") and getattr(layer, "padding_idx", None) is not None:
            positions = layer.num_embeddings - layer.padding_idx - 1
    # A tokenizer that was saved without a limit has one of 10^30.
    return min(tokenizer.model_max_length, positions)


def unknown_words(tokenizer: Any, text: str) -> tuple[str, ...]:
    """The words of a text that no tokens stand for: those that become the unknown token, another special one, or nothing.

    Args:
        tokenizer: of the model.
        text: words between blanks.

    Returns:
        Each such word once; the whole text where its words are known one by one and not together.
    """
    marks = _special_ids(tokenizer)

    def lost(piece: str) -> bool:
        ids = tokenizer(piece, add_special_tokens=False).input_ids
        return not ids or not marks.isdisjoint(ids)

    if not lost(text):
        return ()
    return tuple(dict.fromkeys(word for word in text.split() if lost(word))) or (text,)


def searchable(tokenizer: Any, num_tokens: int) -> Tensor:
    """Which tokens (V,) are text on their own: no special ones, no single bytes of characters, no control characters.

    Args:
        tokenizer: it may know fewer tokens than the model has embeddings; the rest was never trained.
        num_tokens: V.
    """
    known = min(len(tokenizer), num_tokens)
    marks = _special_ids(tokenizer)
    allowed_V = torch.zeros(num_tokens, dtype=torch.bool)
    names, texts = tokenizer.convert_ids_to_tokens(range(known)), tokenizer.batch_decode([[i] for i in range(known)])
    for i, (name, text) in enumerate(zip(names, texts, strict=True)):
        allowed_V[i] = i not in marks and not _BYTE.fullmatch(name) and _is_text(text)
    return allowed_V


def _special_ids(tokenizer: Any) -> set[int]:
    return set(tokenizer.all_special_ids) | {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}


@contextmanager
def without_progress_bars() -> Iterator[None]:
    """Keeps transformers from drawing over what the caller shows; its own setting stays as it was."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    """Turns what transformers raises over a folder into an error that says what to do."""
    try:
        yield
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(
            "the folder holds no Hugging Face model that can be read",
            where=folder,
            got=str(error).splitlines()[0][:200],
            fix="save model and tokenizer there with save_pretrained (safetensors)",
        ) from None


def _is_text(text: str) -> bool:
    """Whether somebody could type it: not empty, no half characters, no control characters."""
    return (
        bool(text) and "\N{REPLACEMENT CHARACTER}" not in text and not any(unicodedata.category(c) in _CONTROLS for c in text)
    )


def _marks(tokenizer: Any, **sample: str) -> tuple[list[int], list[int]]:
    """What the tokenizer puts before and after a text."""
    marked = tokenizer(**sample).input_ids
    plain = tokenizer(**sample, add_special_tokens=False).input_ids
    start = next(i for i in range(len(marked)) if marked[i : i + len(plain)] == plain)
    return marked[:start], marked[start + len(plain) :]


def default_template(tokenizer: Any) -> str:
    """The prompt of a causal model, `PLACE` in the user's turn: its chat template, else the turn and an end, as DialoGPT's."""
    if not tokenizer.chat_template:
        return f"{PLACE}{tokenizer.eos_token}"
    turn = [{"role": "user", "content": PLACE}]
    template: str = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
    return template


def _require_finite(model: Any) -> None:
    broken = [name for name, value in model.named_parameters() if not value.isfinite().all()]
    if broken:
        raise CheckpointError(
            "the model's weights are not all finite numbers",
            where=type(model).__name__,
            got=f"NaN or infinity in {', '.join(broken[:5])}",
            fix="take another model; this one can score nothing",
        )
