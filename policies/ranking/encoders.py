"""Hugging Face encoders as rankers: cross-encoders read context and reply together, bi-encoders each alone.

The context is its turns as people write them, one a line. A context longer than a model reads loses its oldest turns, whole
ones; a cross-encoder leaves room for a reply of usual length, so that the candidates of a context are read behind the same
turns. Encoders are trained on cut texts: a newest turn that is too long alone loses its beginning, and a reply its end.
Nothing is padded, nothing is read twice, and a score is the same to the last digit in any batch. On a CPU transformers of
BERT's kind read blocks of texts (`PackedTransformer`), other models text by text; elsewhere texts of equally many tokens are
read side by side.

Tokenizers of decoders often put nothing between two texts, so that a model reads them as one. Rerankers of that kind come
with a chat template whose roles are `query` and `document`, as sentence-transformers 6.2 reads them; without one they are
refused.

A bi-encoder's folder has the layout of sentence-transformers, read here with transformers alone: `modules.json` lists a
transformer and the modules behind it (`sentence_modules.py`), each with a folder and a configuration;
`config_sentence_transformers.json` sets the comparison of vectors and the prompts before texts. A list of one transformer is a
cross-encoder. All is done as in sentence-transformers 6.2, or the folder is refused with the name of the unknown part.
"""

from __future__ import annotations

import bisect
import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from parley.envs.core.errors import CheckpointError
from parley.envs.corpora.pairs.turns import Utterance, detokenise, written
from parley.envs.ranking.groups import Context
from parley.policies.core.responder import model_inside, reading
from parley.policies.hugging_face.gguf import base_of
from parley.policies.hugging_face.models import read_config, read_pretrained
from parley.policies.hugging_face.tokens import longest_input, reply_room
from parley.policies.ranking.ranker import LimitedRanker, Pair, Unread, first_read
from parley.policies.ranking.sentence_modules import (
    LAYERS,
    TOKENS,
    VECTOR,
    PackedTransformer,
    Pooling,
    Read,
    SentenceModule,
    StaticWords,
    activation_named,
    read_module,
    read_settings,
    read_weights,
)

logger = logging.getLogger(__name__)

_PROBES = ("alpha", "bravo", "charlie")


class PairTemplate:
    """A writer of pairs in the chat template of a tokenizer.

    Args:
        tokenizer: with a chat template.
        prompt: message of the system before the pair; empty for none.

    Raises:
        CheckpointError: the template does not write both texts.
    """

    def __init__(self, tokenizer: Any, prompt: str = "") -> None:
        self._tokenizer, self._prompt = tokenizer, prompt
        self._in_parts = False
        self._in_parts = not self._writes_both()
        if not self._writes_both():
            fix = "give the folder a chat template that writes the roles query and document, or name another ranker"
            where = tokenizer.name_or_path or None
            raise CheckpointError("the chat template writes no pair of query and document", where=where, fix=fix)

    def text(self, context: str, reply: str) -> str:
        """Return the text of a pair."""
        pairs = [("system", self._prompt)] * bool(self._prompt) + [("query", context), ("document", reply)]
        messages = [
            {"role": role, "content": [{"type": "text", "text": text}] if self._in_parts else text} for role, text in pairs
        ]
        return str(self._tokenizer.apply_chat_template(messages, tokenize=False))

    def tokens(self, context: str, reply: str) -> Read:
        """Return the tokens of a pair; the template writes all marks."""
        return dict(self._tokenizer(self.text(context, reply), add_special_tokens=False, verbose=False))

    def _writes_both(self) -> bool:
        first, second, third = _PROBES
        try:
            written = [self.text(first, second), self.text(third, second), self.text(first, third)]
        # A template may raise any error.
        except Exception:
            return False
        return written[0] != written[1] and written[0] != written[2]


def require_separator(tokenizer: Any) -> None:
    """Check that a tokenizer marks the end of a context and the beginning of a reply.

    Raises:
        CheckpointError: it puts nothing between two texts.
    """
    first, second = _PROBES[:2]
    both = [number for text in (first, second) for number in tokenizer(text, add_special_tokens=False)["input_ids"]]
    pair = tokenizer(first, second)
    ids, has_one_type = pair["input_ids"], len({*(pair.get("token_type_ids") or [0])}) == 1
    if has_one_type and any(ids[start : start + len(both)] == both for start in range(len(ids) - len(both) + 1)):
        raise CheckpointError(
            "the tokenizer puts nothing between a context and a reply, so the model would read them as one text",
            where=tokenizer.name_or_path or None,
            got=repr(tokenizer.decode(ids)),
            fix="name a folder with a chat template for the roles query and document (chat_template.jinja), or another ranker",
        )


def without_first_tokens(tokenizer: Any, text: str, num: int) -> str:
    """Return a text without its first tokens, so many and at least one character."""
    spans = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)["offset_mapping"]
    return text[max(1, *(end for _, end in spans[:num])) if len(spans) > num else len(text) :]


_SIDE_BY_SIDE = 64
"""Number of texts read at once on a device that is no CPU."""
_NO_LIMIT = 10**9
_NUM_KEPT = 4096
"""Vectors of contexts, and of replies, that a bi-encoder keeps: attacks ask about contexts, and pools about replies, again."""
_text = lru_cache(maxsize=16 * _NUM_KEPT)(detokenise)


class _Cut(NamedTuple):
    """The part of a pair that a cross-encoder reads."""

    context: Context
    """The newest turns, of which the tokenizer may have to cut the beginning."""
    reply: Utterance
    """Its first words."""
    num_unread: int
    """Turns that are not read, or not whole."""


class CrossEncoder(LimitedRanker):
    """A classifier of pairs of context and reply.

    Args:
        model: with a head for sequence classification: one logit, or two, of which the second stands for a right reply.
        tokenizer: of the model.
        activation: of the logits; None for none.
        longest: most tokens that are read, special ones included; by default the limit of model and tokenizer.
        prompt: text before a context, or message of the system in a template.
        by_template: whether pairs are read as the tokenizer's chat template writes a query and a document.

    Raises:
        CheckpointError: it has more logits, the template writes no pairs, or nothing parts a context from a reply.
    """

    is_free = True

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        activation: torch.nn.Module | None = None,
        longest: int | None = None,
        prompt: str = "",
        by_template: bool = False,
    ) -> None:
        self.model, self._tokenizer = model.eval().requires_grad_(False), tokenizer
        self._activation, self._prompt = activation or torch.nn.Identity(), prompt
        self._template = PairTemplate(tokenizer, prompt) if by_template else None
        if model.config.num_labels not in (1, 2):
            raise CheckpointError(
                "a ranker has one logit, or two, for wrong and right",
                where=model.config.name_or_path or type(model).__name__,
                got=f"{model.config.num_labels} logits",
                fix="name a model that was trained to rank or to tell right from wrong",
            )
        # The beginning is cut off.
        tokenizer.truncation_side = "left"
        self._longest = _most_tokens(tokenizer, model, longest)
        if self._template is None:
            require_separator(tokenizer)
            self._room = self._longest - tokenizer.num_special_tokens_to_add(pair=True) - self._count(prompt)
        else:
            self._room = self._longest - len(self._template.tokens("", "")["input_ids"])
        self._newest = lru_cache(maxsize=_NUM_KEPT)(self._first_read)

    @torch.inference_mode()
    def score_all(self, pairs: Sequence[Pair]) -> list[np.ndarray]:
        """Return the logit of a right reply behind the activation; of two logits, the difference."""
        scores_P = self._logits(pairs, self._activation).cpu()
        return [scores.numpy() for scores in scores_P.split([len(candidates) for _, candidates in pairs])]

    def learned_scores(self, pairs: Sequence[Pair]) -> list[Tensor]:
        """Return the log-odds of each pair's candidates (C,) float64, with gradients."""
        scores_P = self._logits(pairs, torch.nn.Identity(), _SIDE_BY_SIDE)
        return list(scores_P.split([len(candidates) for _, candidates in pairs]))

    def _logits(self, pairs: Sequence[Pair], activation: torch.nn.Module, together: int = 0) -> Tensor:
        """Return the scores of all candidates in a row (P,) float64; `together` as of `_alike`."""
        rows = [self._read(context, reply) for context, candidates in pairs for reply in candidates]
        if not rows:
            return torch.zeros(0, dtype=torch.float64, device=self.model.device)
        index_of: dict[tuple[int, ...], int] = {}
        indices = [index_of.setdefault(tuple(chain(*row.values())), len(index_of)) for row in rows]
        distinct = list(dict(zip(indices, rows, strict=True)).values())
        if PackedTransformer.fits(self.model):
            logits_NK = PackedTransformer(self.model).logits(distinct)
        else:
            blocks = [(block, self.model(**read).logits) for block, read in _alike(distinct, self.model.device, together)]
            order = torch.tensor([index for block, _ in blocks for index in block]).argsort()
            logits_NK = torch.cat([logits_BK for _, logits_BK in blocks])[order]
        logits_PK = activation(logits_NK.double())[indices]
        return logits_PK[:, -1] - logits_PK[:, 0] if logits_PK.shape[1] == 2 else logits_PK[:, 0]

    def unread(self, context: Context, candidates: Sequence[Utterance]) -> Unread:
        cuts = [self._cut(context, reply) for reply in candidates]
        shortened = sum(len(cut.reply) < len(reply) for cut, reply in zip(cuts, candidates, strict=True))
        return Unread(max((cut.num_unread for cut in cuts), default=0), shortened)

    def _read(self, context: Context, reply: Utterance) -> Read:
        """Return the tokens of a pair."""
        cut = self._cut(context, reply)
        text, answer = context_text(cut.context), detokenise(cut.reply)
        if self._template is None and not (self._prompt and cut.num_unread):
            limit = {"truncation": "only_first", "max_length": int(self._longest)} if cut.num_unread else {}
            return self._pair(text, answer, **limit)
        # The beginning of the context is cut off, not the prompt.
        tokens = self._pair if self._template is None else self._template.tokens
        read = tokens(text, answer)
        while (excess := len(read["input_ids"]) - self._longest) > 0 and text:
            text = without_first_tokens(self._tokenizer, text, int(excess))
            read = tokens(text, answer)
        return read

    def _pair(self, text: str, answer: str, **limit: Any) -> Read:
        # As a batch of one: alone, transformers 5.23 takes an empty second text for none, and leaves its marks out.
        read = self._tokenizer([(self._prompt + text, answer)], verbose=False, **limit)
        return {name: rows[0] for name, rows in read.items()}

    def _cut(self, context: Context, reply: Utterance) -> _Cut:
        """Return the part of a pair that is read; either side may take half, and the rest of the other."""
        if self._longest == math.inf:
            return _Cut(context, reply, 0)
        size, half = self._count(detokenise(reply)), self._room // 2
        start, context_size = self._newest(context, max(reply_room(self._longest), min(size, half)))
        if size > (left := max(self._room - context_size, half)):
            words = bisect.bisect_right(range(1, len(reply) + 1), left, key=lambda n: self._count(detokenise(reply[:n])))
            reply, size = reply[:words], self._count(detokenise(reply[:words]))
        return _Cut(context[start:], reply, start + (context_size + size > self._room))

    def _first_read(self, context: Context, room: int) -> tuple[int, int]:
        """Return the index of the oldest turn read beside a reply, and the number of tokens from there on."""
        start = first_read(context, lambda turns: self._count(context_text(turns)) + room <= self._room)
        return start, self._count(context_text(context[start:]))

    def _count(self, text: str) -> int:
        return len(self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


class BiEncoder(LimitedRanker):
    """A model that makes a vector of each text; the score is the product of two, or their cosine.

    Args:
        model: without a head.
        tokenizer: of the model.
        modules: make a vector of a text's token states.
        cosine: whether vectors are brought to length 1.
        longest: most tokens that are read, special ones included; by default the limit of model and tokenizer.
        prompts: texts before a context, and before a reply.
        default_prompt: text before texts that are neither.
        truncate: entries of a vector that are kept, its first ones; by default all.
    """

    is_free = True

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        modules: Sequence[SentenceModule] = (Pooling(),),
        cosine: bool = True,
        longest: int | None = None,
        prompts: tuple[str, str] = ("", ""),
        *,
        default_prompt: str = "",
        truncate: int | None = None,
    ) -> None:
        self.model, self._tokenizer = model.eval().requires_grad_(False), tokenizer
        self._modules, self.cosine, self._prompts = tuple(modules), cosine, prompts
        self._default_prompt, self._truncate = default_prompt, truncate
        self._longest = _most_tokens(tokenizer, model, longest)
        self._num_marks = tokenizer.num_special_tokens_to_add()
        self._read_context = lru_cache(maxsize=_NUM_KEPT)(self._newest)
        # A pool is the same for all contexts.
        self._size_of_reply = lru_cache(maxsize=_NUM_KEPT)(lambda reply: self._size(self._prompts[1] + _text(reply)))
        self._kept: dict[str, Tensor] = {}
        self._kept_replies: dict[str, Tensor] = {}
        self._ids: dict[str, int] = {}
        self._words: tuple[str, ...] = ()

    def score_all(self, pairs: Sequence[Pair]) -> list[np.ndarray]:
        """Return products of the context's and the candidates' vectors, or cosines; a text that comes twice is read once."""
        context_texts = [self._read_context(context)[0] for context, _ in pairs]
        self._keep(context_texts)
        replied = [[self._prompts[1] + _text(reply) for reply in candidates] for _, candidates in pairs]
        texts = list(dict.fromkeys(chain.from_iterable(replied)))
        self._kept_replies = self._with_vectors(self._kept_replies, texts, "right", self._prompts[1])
        return [
            np.array([float(self._kept[text] @ self._kept_replies[reply]) for reply in replies])
            for text, replies in zip(context_texts, replied, strict=True)
        ]

    def unread(self, context: Context, candidates: Sequence[Utterance]) -> Unread:
        shortened = sum(self._size_of_reply(reply) > self._longest for reply in candidates)
        return Unread(self._read_context(context)[1], shortened)

    def cosines(self, text: str, texts: Sequence[str]) -> list[float]:
        """Return the cosines of a text and each of some others, whatever the model compares by."""
        first, *rest = (f"{self._default_prompt}{string}" for string in (text, *texts))
        vectors = self._vectors(list(dict.fromkeys([first, *rest])), "right", self._default_prompt)
        return [float(F.cosine_similarity(vectors[first], vectors[other], dim=0)) for other in rest]

    def slopes(self, context: Context, reply: Utterance, words: Sequence[str]) -> np.ndarray:
        """Return the first-order rise of the score per replaced word (T, W); 0 where a reply is cut.

        The gradient in the token embeddings, as in GASLITE (Ben-Tov & Sharif 2024, arXiv 2412.20953). A word may have several
        tokens: the one that enters is the mean of its tokens' embeddings, at every position of the word that leaves.
        """
        read_context, pieces = self._read_context(context)[0], list(written(reply))
        self._keep([read_context])
        layer, embedded = self.model.get_input_embeddings(), dict[str, Tensor]()

        def follow(layer: object, given: object, vectors_1LD: Tensor) -> Tensor:
            embedded["vectors_1LD"] = vectors_1LD.detach().requires_grad_()
            return embedded["vectors_1LD"]

        text = self._prompts[1] + "".join(piece for pair in pieces for piece in pair)
        row = self._read(text, "right", self._prompts[1], return_offsets_mapping=True)
        spans_L: Any = row.pop("offset_mapping")
        read = {name: torch.tensor([ids], device=self.model.device) for name, ids in row.items()}
        with torch.enable_grad(), layer.register_forward_hook(follow):
            score = (
                self._pooled(self.model(**read), self._prompt_tokens(self._prompts[1]))[0] * self._kept[read_context].clone()
            ).sum()
            (gradient_1LD,) = torch.autograd.grad(score, embedded["vectors_1LD"])
        with torch.no_grad():
            entering_WD = self._embedded(words)
            leaving_L = (gradient_1LD * embedded["vectors_1LD"]).sum(-1)[0]
            slopes_LW = (gradient_1LD[0] @ entering_WD.T - leaving_L[:, None]).double().cpu().numpy()
        found_TW, end = np.zeros((len(reply), len(words))), len(self._prompts[1])
        for index, (blank, word) in enumerate(pieces):
            start, end = end + len(blank), end + len(blank) + len(word)
            found_TW[index] = slopes_LW[[a < end and b > start for a, b in spans_L]].sum(0)
        return found_TW

    def vocabulary(self) -> tuple[str, ...]:
        """Return words of one token each behind a blank; neither pieces of words nor special tokens."""
        if not self._words:
            special = set(self._tokenizer.all_special_ids)
            ids = [number for number in range(len(self._tokenizer)) if number not in special]
            words = [text.strip() for text in self._tokenizer.batch_decode([[number] for number in ids])]
            read = self._tokenizer([f" {word}" for word in words], add_special_tokens=False)["input_ids"]
            for number, word, again in zip(ids, words, read, strict=True):
                if again == [number] and word.split() == [word]:
                    self._ids.setdefault(word, number)
            self._words = tuple(self._ids)
        return self._words

    def reads(self, reply: Utterance, words: Utterance) -> bool:
        """Return whether a reply with vocabulary words behind it keeps its tokens, with one for each word, none cut."""
        self.vocabulary()
        alone, whole = (
            self._tokenizer(self._prompts[1] + detokenise(utterance), add_special_tokens=False, verbose=False)["input_ids"]
            for utterance in (reply, (*reply, *words))
        )
        return len(whole) + self._num_marks <= self._longest and whole == [*alone, *(self._ids[word] for word in words)]

    def _embedded(self, words: Sequence[str]) -> Tensor:
        """Return embeddings (W, D); a word of several tokens has the mean of theirs."""
        layer, device = self.model.get_input_embeddings(), self.model.device
        if self._words and words is self._words:
            rows_WD: Tensor = layer(torch.tensor([self._ids[word] for word in words], device=device))
            return rows_WD
        read = self._tokenizer([f" {word}" for word in words], add_special_tokens=False)["input_ids"]
        return torch.stack([layer(torch.tensor(ids, device=device)).mean(0) for ids in read])

    def _newest(self, context: Context) -> tuple[str, int]:
        """Return the text of as many of the newest turns as fit, which may have to be cut, and how many are not read whole."""

        def text(turns: Context) -> str:
            return self._prompts[0] + context_text(turns)

        start = first_read(context, lambda turns: self._size(text(turns)) <= self._longest)
        newest_text = text(context[start:])
        return newest_text, start + (self._size(newest_text) > self._longest)

    def _size(self, text: str) -> int:
        if self._longest == math.inf:
            return 0
        return len(self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]) + self._num_marks

    def _keep(self, texts: Sequence[str]) -> None:
        self._kept = self._with_vectors(self._kept, texts, "left", self._prompts[0])

    def _with_vectors(self, kept: dict[str, Tensor], texts: Sequence[str], cut: str, prompt: str) -> dict[str, Tensor]:
        """Return kept vectors with those of texts; too many older ones are left out."""
        new = [text for text in dict.fromkeys(texts) if text not in kept]
        if len(kept) + len(new) > _NUM_KEPT:
            kept = {text: kept[text] for text in {*texts} - {*new}}
        return kept | self._vectors(new, cut, prompt)

    def _read(self, text: str, cut: str, prompt: str, **also: bool) -> Read:
        """Return a text's tokens, cut on a side if they are too many; its prompt stays."""
        self._tokenizer.truncation_side = cut
        limit = {"truncation": True, "max_length": int(self._longest)} if self._longest < math.inf else {}
        if cut == "right" or not prompt or self._size(text) <= self._longest:
            return dict(self._tokenizer(text, **limit, **also))
        row = dict(self._tokenizer(text, verbose=False, **also))
        start = self._prompt_tokens(prompt)
        end = start + len(row["input_ids"]) - int(self._longest)
        return {name: [*ids[:start], *ids[end:]] for name, ids in row.items()}

    def _prompt_tokens(self, prompt: str) -> int:
        """Return the number of tokens of a prompt with the mark before it, without the mark behind a text."""
        if not prompt:
            return 0
        ids = self._tokenizer(prompt)["input_ids"]
        return len(ids) - (ids[-1] in self._tokenizer.all_special_ids)

    def _pooled(self, out: Any, num_prompt: int) -> Tensor:
        """Return the vectors (B, E) float64 of a model's output of texts of equally long prompts, on the CPU."""
        features: dict[str, Any] = {TOKENS: out.last_hidden_state.double()}
        if getattr(self.model.config, "output_hidden_states", False):
            features[LAYERS] = out.hidden_states
        for module in self._modules:
            module(features, num_prompt)
        vectors_BE: Tensor = features[VECTOR][:, : self._truncate].cpu()
        return F.normalize(vectors_BE, dim=1) if self.cosine else vectors_BE

    @torch.inference_mode()
    def _vectors(self, texts: Sequence[str], cut: str, prompt: str) -> dict[str, Tensor]:
        """Return the vector (E,) float64 of each text, cut on a side if it is too long."""
        return self._encoded(texts, cut, prompt)

    def learned_vectors(self, contexts: Sequence[Context], replies: Sequence[Utterance]) -> tuple[Tensor, Tensor]:
        """Return the vectors of contexts (B, E) and of replies (R, E), float64, with gradients."""
        questions = [self._read_context(context)[0] for context in contexts]
        replied = [self._prompts[1] + _text(reply) for reply in replies]
        of_contexts, of_replies = (
            self._encoded(list(dict.fromkeys(texts)), cut, prompt, _SIDE_BY_SIDE)
            for texts, cut, prompt in zip((questions, replied), ("left", "right"), self._prompts, strict=True)
        )
        return torch.stack([of_contexts[text] for text in questions]), torch.stack([of_replies[text] for text in replied])

    def forget(self) -> None:
        """Forget the vectors that are kept, because the weights have changed."""
        self._kept, self._kept_replies = {}, {}

    def _encoded(self, texts: Sequence[str], cut: str, prompt: str, together: int = 0) -> dict[str, Tensor]:
        """Return the vector of each text; `together` as of `_alike`."""
        rows, num_prompt = [self._read(text, cut, prompt) for text in texts], self._prompt_tokens(prompt)
        outputs: Iterator[tuple[list[int], Any]]
        if PackedTransformer.fits(self.model):
            packed = PackedTransformer(self.model).states(rows)
            outputs = ((block, SimpleNamespace(last_hidden_state=states_BTE)) for block, states_BTE in packed)
        else:
            outputs = ((block, self.model(**read)) for block, read in _alike(rows, self.model.device, together))
        vectors: dict[str, Tensor] = {}
        for block, out in outputs:
            vectors |= {texts[row]: vector_E for row, vector_E in zip(block, self._pooled(out, num_prompt), strict=True)}
        return vectors


def _most_tokens(tokenizer: Any, model: Any, longest: int | None) -> int | float:
    """Return the most tokens that are read; infinity if neither model, tokenizer nor folder has a limit."""
    limit = longest_input(tokenizer, model)
    # A tokenizer saved without a limit has one of 10^30.
    return min(limit if limit < _NO_LIMIT else math.inf, math.inf if longest is None else longest)


def context_text(context: Context) -> str:
    """Return the turns as people write them, one a line."""
    return "\n".join(map(detokenise, context))


def _alike(rows: Sequence[Read], device: torch.device, together: int = 0) -> Iterator[tuple[list[int], dict[str, Tensor]]]:
    """Yield at most `together` texts of equally many tokens: their rows, and arguments of a model on a device.

    0 stands for one text on a CPU, and for `_SIDE_BY_SIDE` elsewhere.
    """
    together = together or (1 if device.type == "cpu" else _SIDE_BY_SIDE)
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]["input_ids"]))
    for _, same in groupby(order, key=lambda i: len(rows[i]["input_ids"])):
        alike = list(same)
        for start in range(0, len(alike), together):
            block = alike[start : start + together]
            read = {name: [rows[i][name] for i in block] for name in rows[block[0]]}
            yield block, {name: torch.tensor(ids, dtype=torch.long, device=device) for name, ids in read.items()}


_MODULES, _SETTINGS = "modules.json", "config_sentence_transformers.json"
_LIBRARY = "sentence_transformers."
_BEHIND = ("Pooling", "Dense", "Normalize", "LayerNorm", "WeightedLayerPooling", "Dropout")
_TRANSFORMER, _STATIC = "Transformer", "StaticEmbedding"
_CAUSAL = ("ForCausalLM", "LMHeadModel")
_OTHER_PROMPTS = ("passage", "corpus")
"""Names of prompts that the library documents for documents, but never uses."""
_ENCODERS = {"t5": "T5EncoderModel", "mt5": "MT5EncoderModel", "umt5": "UMT5EncoderModel"}
"""Models with a decoder whose encoder alone is read."""
_TRANSFORMER_SETTINGS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
_HARMLESS = {"max_seq_length", "do_lower_case", "transformer_task", "modality_config", "module_output_name", "unpad_inputs"}
"""Settings of a transformer that are read, or change no result."""
_HARMLESS_ARGUMENTS = {
    *("attn_implementation", "torch_dtype", "dtype", "use_safetensors", "trust_remote_code", "padding_side", "use_fast"),
    *("low_cpu_mem_usage", "device_map"),
}
_ARGUMENTS = ("model_args", "model_kwargs", "tokenizer_args", "processor_kwargs", "config_args", "config_kwargs")
_IDENTITY, _SIGMOID = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Sigmoid"


class _Module(NamedTuple):
    kind: str
    folder: Path


def load_hugging_face_ranker(folder: Path, device: str = "cpu") -> CrossEncoder | BiEncoder:
    """Return the ranker of a folder; nothing is downloaded, no code in it is run, weights are safetensors.

    Args:
        folder: as `save_pretrained`, or sentence-transformers, wrote it; or a run that holds it as its checkpoint.
        device: torch device.

    Raises:
        ConfigError: transformers is not installed.
        CheckpointError: it holds no ranker, one whose parts are not known here, or one that `read_pretrained` refuses.
    """
    folder = model_inside(folder)
    modules = _modules(folder)
    with reading(folder):
        settings = read_settings(folder / _SETTINGS)
    if any(module.kind in (_STATIC, "Pooling") for module in modules):
        return _bi_encoder(folder, modules, settings, device)
    transformer = modules[0].folder if modules else folder
    architectures = read_config(transformer).architectures or ["none"]
    # Another model would get a head of random weights.
    if not architectures[0].endswith("ForSequenceClassification"):
        raise CheckpointError(
            "the folder holds no ranker",
            where=folder,
            got=f"architecture {architectures[0]}, and no pooling in a {_MODULES}",
            fix="name a cross-encoder (...ForSequenceClassification) or a folder that sentence-transformers wrote",
        )
    if len(modules) > 1:
        _refuse(folder / _MODULES, ", ".join(module.kind for module in modules), "a cross-encoder of one transformer")
    return _cross_encoder(folder, transformer, settings, is_listed=bool(modules), device=device)


def transformer_folder(folder: Path) -> Path:
    """Return the folder of the transformer in the folder of a ranker."""
    modules = _modules(folder)
    return modules[0].folder if modules else folder


def is_causal(folder: Path) -> bool:
    """Return whether a folder holds a causal language model, which ranks replies by likelihood."""
    folder = base_of(model_inside(folder))
    if (folder / _MODULES).is_file() or not (folder / "config.json").is_file():
        return False
    with reading(folder):
        settings = read_settings(folder / "config.json")
    # Models that see or hear, too, are called as those with an encoder are.
    ends = _CAUSAL if settings.get("is_encoder_decoder") else (*_CAUSAL, "ForConditionalGeneration")
    return any(name.endswith(ends) for name in settings.get("architectures") or [])


def _cross_encoder(
    folder: Path, transformer: Path, settings: Mapping[str, Any], *, is_listed: bool, device: str
) -> CrossEncoder:
    _require_model_type(folder, settings, "CrossEncoder")
    reads = _transformer_settings(transformer, "sequence-classification")
    tokenizer, model = read_pretrained(transformer, lambda config: "AutoModelForSequenceClassification")
    _lower_case(tokenizer, reads, transformer)
    # The library reads a template by default, and if the folder asks for it.
    modalities = reads.get("modality_config", {} if is_listed else {"message": {}})
    template = bool(tokenizer.chat_template) and "message" in modalities
    labels = model.config.num_labels
    old = getattr(model.config, "sentence_transformers", None) or {}
    name = settings.get("activation_fn") or old.get("activation_fn")
    name = name or getattr(model.config, "sbert_ce_default_activation_function", None)
    if labels == 2 and name not in (None, _IDENTITY):
        _refuse(folder, f"{labels} logits behind {name}", "two logits as they are, or one behind an activation")
    return CrossEncoder(
        model.to(device),
        tokenizer,
        activation=activation_named(name or (_SIGMOID if labels == 1 else _IDENTITY), folder),
        longest=reads.get("max_seq_length"),
        prompt=(settings.get("prompts") or {}).get(settings.get("default_prompt_name")) or "",
        by_template=template,
    )


def _bi_encoder(folder: Path, modules: Sequence[_Module], settings: Mapping[str, Any], device: str) -> BiEncoder:
    _require_model_type(folder, settings, "SentenceTransformer")
    first, *behind = modules
    with reading(folder):
        stages = [stage for module in behind if (stage := read_module(module.kind, module.folder)) is not None]
    comparison, prompts = settings.get("similarity_fn_name") or "cosine", settings.get("prompts") or {}
    if comparison not in ("cosine", "dot"):
        _refuse(folder, comparison, "a comparison by cosine or dot")
    if first.kind == _STATIC:
        with reading(folder):
            tokenizer, model, reads = _static_tokenizer(first.folder), StaticWords(read_weights(first.folder)), {}
        stages = [Pooling(), *stages]
    else:
        reads = _transformer_settings(first.folder, "feature-extraction")
        tokenizer, model = read_pretrained(first.folder, lambda config: _ENCODERS.get(config.model_type, "AutoModel"))
        if model.config.is_encoder_decoder and model.config.model_type not in _ENCODERS:
            _refuse(first.folder, model.config.model_type, f"an encoder, or the encoder of {', '.join(_ENCODERS)}")
        _lower_case(tokenizer, reads, first.folder)
    default = prompts.get(settings.get("default_prompt_name")) or ""
    # Queries and documents have prompts of their own, empty ones if the folder names none.
    if unused := [name for name in _OTHER_PROMPTS if prompts.get(name) and not prompts.get("document")]:
        what = "%s: no prompt stands before replies, as in encode_document of sentence-transformers 6.2; call %r document"
        logger.warning(what, folder, unused[0])
    return BiEncoder(
        model.eval().to(device),
        tokenizer,
        stages,
        cosine=comparison == "cosine",
        longest=reads.get("max_seq_length"),
        prompts=(prompts.get("query") or "", prompts.get("document") or ""),
        default_prompt=default,
        truncate=settings.get("truncate_dim"),
    )


def _modules(folder: Path) -> list[_Module]:
    """Return the modules that `modules.json` lists; empty without the file."""
    with reading(folder):
        path = folder / _MODULES
        listed: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
        # Older and newer versions put the same classes into other packages of the library.
        types, paths = [str(entry["type"]) for entry in listed], [folder / entry["path"] for entry in listed]
    if any(not path.resolve().is_relative_to(folder.resolve()) for path in paths):
        _refuse(folder / _MODULES, "a path out of the folder", "paths below it")
    kinds = [name.rpartition(".")[2] if name.startswith(_LIBRARY) else name for name in types]
    unknown = [kind for kind in kinds[:1] if kind not in (_TRANSFORMER, _STATIC)]
    unknown += [kind for kind in kinds[1:] if kind not in _BEHIND]
    unknown += [f"{kind} with {entry['kwargs']}" for kind, entry in zip(kinds, listed, strict=True) if entry.get("kwargs")]
    if unknown:
        _refuse(folder / _MODULES, ", ".join(unknown), f"{_TRANSFORMER} or {_STATIC}, and then {', '.join(_BEHIND)}")
    return [_Module(kind, path) for kind, path in zip(kinds, paths, strict=True)]


def _require_model_type(folder: Path, settings: Mapping[str, Any], wanted: str) -> None:
    if (kind := settings.get("model_type") or wanted) != wanted:
        _refuse(folder / _SETTINGS, kind, f"a {wanted} of sentence-transformers")


def _transformer_settings(folder: Path, task: str) -> dict[str, Any]:
    """Return the settings of sentence-transformers beside a transformer; unknown ones are an error."""
    names = [f"sentence_{kind}_config.json" for kind in _TRANSFORMER_SETTINGS]
    with reading(folder):
        settings = next(filter(None, (read_settings(folder / name) for name in names)), {})
    given = {name: value for name, value in settings.items() if value not in (None, False, "", [], {})}
    unknown = [name for name in given if name not in _HARMLESS and name not in _ARGUMENTS]
    unknown += [f"{name}.{key}" for name in _ARGUMENTS for key in {*given.get(name, {})} - _HARMLESS_ARGUMENTS]
    unknown += [f"modality {name}" for name in given.get("modality_config", {}) if name not in ("text", "message")]
    if task == "feature-extraction" and "message" in given.get("modality_config", {}):
        unknown.append("modality message (texts in a chat template)")
    if given.get("transformer_task", task) != task:
        unknown.append(f"task {given['transformer_task']}")
    if unknown:
        _refuse(folder, ", ".join(sorted(unknown)), f"a transformer with the settings {', '.join(sorted(_HARMLESS))}")
    return settings


def _lower_case(tokenizer: Any, reads: Mapping[str, Any], folder: Path) -> None:
    """Make a tokenizer lower-case texts first, if the folder asks for it."""
    if not reads.get("do_lower_case"):
        return
    from tokenizers import normalizers

    if not tokenizer.is_fast:
        _refuse(folder, "do_lower_case with a slow tokenizer", "a folder with a tokenizer.json")
    inner = tokenizer.backend_tokenizer
    inner.normalizer = normalizers.Sequence([normalizers.Lowercase(), *filter(None, [inner.normalizer])])


def _static_tokenizer(folder: Path) -> Any:
    """Return the tokenizer of word vectors, which puts no marks around a text."""
    from tokenizers import Tokenizer
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer.from_file(str(folder / "tokenizer.json"))
    longest = (inner.truncation or {}).get("max_length")
    inner.no_truncation()
    inner.no_padding()
    inner.post_processor = TemplateProcessing(single="$A")
    limit = {} if longest is None else {"model_max_length": longest}
    return PreTrainedTokenizerFast(tokenizer_object=inner, **limit)


def _refuse(where: Path, got: str, alternatives: str) -> None:
    raise CheckpointError(
        "the folder asks for what is not known here", where=where, got=got, fix=f"name a model of {alternatives}"
    )
