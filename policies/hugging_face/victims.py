"""Hugging Face models as victims of a trigger search: the shared part, and causal models.

Models of an encoder and a decoder are in `models.py`. A victim holds the model, its tokenizer, and the text around the searched
words: the tokenizer's own marks around a source, or the prompt around the slots of a chat. It maps embeddings to logits as
`TextVictim` of `engine/triggers/scorers/scorer.py`, so any search that a `PlainScorer` can serve works on it.

An input is a sequence of tokens. Its text, tokenised again in its slot, may give other tokens: `allows` tells which inputs
can be typed, `slot_texts` the texts to type, `typed` the tokens that the model then reads, and `say` its reply.

    B inputs, R inputs, N searched positions, P positions around them, S tokens of a prompt, T of a reply, V tokens, E embedding
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from parley.envs.core.config import check
from parley.envs.core.errors import ConfigError, DataError
from parley.policies.chat.model import Chat
from parley.policies.chat.templates import SLOT, SlottedPrompt, default_template
from parley.policies.core.decoding import raced
from parley.policies.hugging_face.caches import continues_reading, next_logits
from parley.policies.hugging_face.tokens import (
    ANY,
    InputRules,
    PromptTokens,
    ends_of,
    leading_blanks,
    longest_input,
    num_positions,
    readable_tokens,
    reply_end,
    require_finite,
    searchable,
    start_of,
    unknown_words,
)


def token_embeddings(layer: Any) -> Tensor:
    """Return the embedding of each token (V, E); a plain layer's own weights, not a copy."""
    if type(layer) is torch.nn.Embedding and layer.max_norm is None and not layer.weight.is_meta:
        return layer.weight.detach()
    # Some models scale their embeddings; weights of a device map are loaded on request.
    table: Tensor = layer(torch.arange(layer.num_embeddings, device="cpu" if layer.weight.is_meta else layer.weight.device))
    return table.detach()


class HuggingFaceVictim:
    """The shared part of both kinds of models; `reply_logits` is theirs.

    Args:
        model: a Hugging Face model with a language-modelling head; its parameters are frozen.
        tokenizer: of the model.
        length: N, tokens of an input.
        end: whether a reply ends behind a target; otherwise targets are beginnings of replies.
        rules: rules of allowed inputs.

    Attributes:
        embedding_VE: embeddings of all tokens as the model's layers read them.
        searchable_V: tokens that an input may hold: all that are text on their own, and that the rules allow.
        input_length: N.
        end_ids: tokens that end a reply: those of the model's `generation_config`, and the tokenizer's.
        end_id: the one of them that is expected behind a target.

    Raises:
        ConfigError: there is no token that ends a reply, no position to search, or no token that an input may hold.
        CheckpointError: weights are not finite.
    """

    def __init__(self, model: Any, tokenizer: Any, length: int, *, end: bool = True, rules: InputRules = ANY) -> None:
        self.model, self.tokenizer, self.input_length = model.eval().requires_grad_(False), tokenizer, length
        self.end, self.rules = end, rules
        check(self, "input_length", length >= 1, "at least 1")
        require_finite(model)
        self.end_ids = ends_of(tokenizer, model)
        self.end_id = reply_end(tokenizer, self.end_ids)
        embedding = model.get_input_embeddings()
        self.embedding_VE = token_embeddings(embedding)
        allowed_V = searchable(tokenizer, embedding.num_embeddings, rules)
        if not bool(allowed_V.any()):
            fix = "allow more characters, or forbid fewer words"
            raise ConfigError("no token may stand in an input", got=repr(rules), fix=fix)
        self.searchable_V = allowed_V.to(self.embedding_VE.device)

    def to(self, device: str) -> Self:
        """Move it to a device and return it; not for a model that a device map has spread."""
        self.model.to(device)
        self.embedding_VE, self.searchable_V = self.embedding_VE.to(device), self.searchable_V.to(device)
        return self

    def target(self, text: str) -> Tensor:
        """Return the tokens (T,) int64 of a reply as a search takes them, with its end if a reply ends behind a target.

        Args:
            text: the target text.

        Raises:
            DataError: no tokens stand for some of it.
        """
        if unknown := unknown_words(self.tokenizer, text):
            fix = "write the target with other words"
            raise DataError("the model cannot say some words of a target", where=text, got=", ".join(unknown), fix=fix)
        ids = self.tokenizer(text, add_special_tokens=False).input_ids
        return torch.tensor([*ids, self.end_id] if self.end else ids, device=self.embedding_VE.device)

    @property
    def longest_reply(self) -> int | None:
        """Most tokens of a reply by the model's positions, its end included; None without a limit."""
        positions = num_positions(self.model)
        # Nothing is read after the last token.
        return None if math.isinf(positions) else int(positions) - self.num_before_reply + 1

    @property
    def num_before_reply(self) -> int:
        """Tokens that are read before a reply, the searched ones among them."""
        raise NotImplementedError

    def words(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each token, as people write it; a part of a character stays as the tokenizer spells it."""
        return readable_tokens(self.tokenizer, ids)

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of an input's tokens; a line for each slot."""
        return "\n".join(self.slot_texts(ids))

    def slot_texts(self, ids: Sequence[int]) -> list[str]:
        """Return the text to type into each slot.

        Args:
            ids: of an input.
        """
        return [self.tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)]

    def allows(self, words_RN: Tensor) -> Tensor:
        """Return which inputs (R,) the rules allow: those that can be typed and hold no forbidden text.

        Args:
            words_RN: inputs of allowed tokens.
        """
        rows = words_RN.tolist()
        allowed = [True] * len(rows)
        if self.rules.typed:
            allowed = [typed == self._read(ids) for typed, ids in zip(self._typed(rows), rows, strict=True)]
        if self.rules.forbidden:
            texts = ["\n".join(self.slot_texts(ids)).lower() for ids in rows]
            forbidden = [word.lower() for word in self.rules.forbidden]
            allowed = [ok and not any(word in text for word in forbidden) for ok, text in zip(allowed, texts, strict=True)]
        return torch.tensor(allowed, dtype=torch.bool, device=words_RN.device)

    def retokenises(self, ids: Sequence[int]) -> bool:
        """Return whether the text of an input, typed into its slot, gives its tokens again."""
        return self.typed(ids) == self._read(ids)

    def reply_text(self, ids: Sequence[int]) -> str:
        """Return the text of a reply's tokens."""
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    @property
    def start_ids(self) -> list[int] | None:
        """The tokens (N,) that a search starts from, by the rules; None if they are drawn. See `start_of`.

        A blank leads the text if its slot needs one: where words behind a blank, or at the beginning, have other tokens.
        """
        text = self.rules.start
        candidates = [
            (candidate, self.tokenizer(candidate, add_special_tokens=False).input_ids)
            for candidate in (text, f" {text}")
            if text
        ]
        stands = (candidate for candidate, ids in candidates if self._read_texts([candidate]) == self._in_first_slot(ids))
        return start_of(self.tokenizer, next(stands, text), self.input_length, self.searchable_V)

    def typed(self, ids: Sequence[int]) -> list[int]:
        """Return the tokens that the model reads, of the whole prompt or source, with an input's text typed into its slot."""
        return self._typed([ids])[0]

    def say(
        self,
        read: Sequence[int],
        num_tokens: int,
        *,
        temperature: float = 0.0,
        seed: int = 0,
        min_log_probability: float = -math.inf,
    ) -> tuple[list[int], bool]:
        """Return the model's reply, and whether it came to an end.

        Args:
            read: the tokens of a prompt, or a source.
            num_tokens: of the reply at most; fewer where the model reads no more.
            temperature: of the distribution of tokens; 0 takes the likeliest.
            seed: of the draws.
            min_log_probability: only tokens whose log probability at temperature 1 is above this are drawn, in nats; where
                there is none the reply is cut.

        Returns:
            The reply's tokens without its end, and whether it ended.
        """
        generator, reply = np.random.default_rng(seed), list[int]()
        step, most = self.steps(read), min(num_tokens, self.room(read))
        with torch.inference_mode():
            while len(reply) < most:
                logits_V = step(reply)
                if temperature == 0:
                    word = int(logits_V.argmax())
                else:
                    logits_V = logits_V.double().cpu()
                    logits_V[logits_V.log_softmax(-1) <= min_log_probability] = -torch.inf
                    if not bool(logits_V.isfinite().any()):
                        return reply, False
                    word = int(raced((logits_V / temperature)[None], [generator]))
                if word in self.end_ids:
                    return reply, True
                reply.append(word)
        return reply, False

    def read_text(self, text: str) -> list[int] | None:
        """Return the tokens that the model reads with a text in the first slot, the others empty; None if too many."""
        read = self._read_texts([text])
        longest = longest_input(self.tokenizer, self.model)
        return read if 0 < len(read) < longest else None

    def _read_texts(self, texts: Sequence[str]) -> list[int]:
        """Return the tokens that the model reads with texts in slots; slots without a text are empty."""
        raise NotImplementedError

    def _read(self, ids: Sequence[int]) -> list[int]:
        raise NotImplementedError

    def _in_first_slot(self, ids: Sequence[int]) -> list[int]:
        """Return the tokens that the model reads with an input of any length in the first slot, the others empty."""
        return self._read(ids)

    def _typed(self, rows: Sequence[Sequence[int]]) -> list[list[int]]:
        raise NotImplementedError

    def steps(self, read: Sequence[int]) -> Callable[[list[int]], Tensor]:
        """Return a function from the reply so far to the logits (V,) of its next token, float32; each call adds one token."""
        raise NotImplementedError

    def room(self, read: Sequence[int]) -> int | float:
        """Return how many tokens of a reply fit behind a prompt."""
        return math.inf if self.longest_reply is None else self.longest_reply

    def _embedded(self, ids: list[int], like_BNE: Tensor) -> Tensor:
        return self.embedding_VE[ids].expand(len(like_BNE), -1, -1)


class HuggingFaceCausal(HuggingFaceVictim):
    """A decoder alone, such as GPT-2, DialoGPT or Llama; the slots of a prompt are searched.

    Args:
        model: as for all.
        tokenizer: as for all.
        length: as for all; the slots of a prompt share the tokens in order, as evenly as they can.
        template: messages with slots, or the prompt with `{}` in the place of the input, special tokens written out. By default
            a turn of the user in the tokenizer's chat template; where it has none the input and an end, as DialoGPT is trained.
        prompt: the request in the place of `{prompt}`; None where the template has none.
        end: as for all.
        rules: as for all.

    Attributes:
        template: the prompt as text, `{}` in the place of each slot.

    Raises:
        ConfigError: as for all, the template does not fit (`SlottedPrompt`), or has more slots than there are tokens.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        length: int,
        template: str | Chat | None = None,
        *,
        prompt: str | None = None,
        end: bool = True,
        rules: InputRules = ANY,
    ) -> None:
        super().__init__(model, tokenizer, length, end=end, rules=rules)
        self._asked = default_template(tokenizer) if template is None else template
        self._blanks = leading_blanks(tokenizer)
        self._fill_in(prompt)

    def behind(self, prompt: str) -> Self:
        """Return the same model with another request in its prompt."""
        other = copy.copy(self)
        other._fill_in(prompt)
        return other

    def asked(self, template: Chat, *, end: bool, rules: InputRules) -> Self:
        """Return the same model with other messages; the tokens allowed in an input stay.

        Args:
            template: messages with slots.
            end: whether a reply ends behind a target.
            rules: rules of allowed inputs.
        """
        other = copy.copy(self)
        other._asked, other.end, other.rules = template, end, rules
        other._fill_in(None)
        return other

    def _fill_in(self, prompt: str | None) -> None:
        self._slots = SlottedPrompt(self.tokenizer, self._asked, prompt)
        num = self._slots.num_slots
        if num > self.input_length:
            fix = f"--set hugging_face.length={num} or more"
            raise ConfigError("the template has more slots than there are tokens to search", got=f"{num} slots", fix=fix)
        self.template = SLOT.join(self._slots.pieces)
        self._tokens = PromptTokens(self.tokenizer, self._slots.pieces, self._blanks)
        self._pieces = self._tokens.pieces
        self._ends = [self.input_length * slot // num for slot in range(num + 1)]

    @property
    def num_before_reply(self) -> int:
        """Return the number of tokens of the prompt, the searched ones among them."""
        return sum(map(len, self._pieces)) + self.input_length

    def prompt(self, target_T: Tensor) -> tuple[Sequence[int], Sequence[int]]:
        """Return the tokens before a reply (S,), any at searched positions, and these positions (N,) in rising order.

        Args:
            target_T: the reply's tokens.
        """
        read = self._read([-1] * self.input_length)
        positions = [position for position, word in enumerate(read) if word == -1]
        return [self.end_id if word == -1 else word for word in read], positions

    @torch.no_grad()
    def next_logits(self, words_Bt: Tensor) -> Tensor:
        """Return logits (B, V) of the token behind the first t tokens of inputs; equal ones if nothing stands before it."""
        ids, places = self.prompt(words_Bt)
        num = words_Bt.shape[1]
        read_BS = words_Bt.new_tensor(ids[: places[num]]).repeat(len(words_Bt), 1)
        if not read_BS.shape[1]:
            return torch.zeros(len(words_Bt), len(self.searchable_V), device=words_Bt.device)
        read_BS[:, places[:num]] = words_Bt
        # One by one: whole logits of long prompts need much memory.
        return torch.stack([self.steps(read)([]) for read in read_BS.tolist()])

    def reply_logits(self, embedded_BNE: Tensor, replies_BT: Tensor) -> Tensor:
        """Return logits (B, T, V) of each token of the replies given those before it, differentiable in the embeddings."""
        prompt = [self._embedded(self._pieces[0], embedded_BNE)]
        for slot, piece in enumerate(self._pieces[1:]):
            prompt += [embedded_BNE[:, self._ends[slot] : self._ends[slot + 1]], self._embedded(piece, embedded_BNE)]
        read_BPE = torch.cat([*prompt, self.embedding_VE[replies_BT[:, :-1]]], dim=1)
        logits_BTV: Tensor = self.model(inputs_embeds=read_BPE, use_cache=False).logits[:, -replies_BT.shape[1] :]
        return logits_BTV

    def slot_texts(self, ids: Sequence[int]) -> list[str]:
        """Return the text to type into each slot, as it is recorded."""
        texts = self._tokens.texts([ids[start:end] for start, end in pairwise(self._ends)])
        return texts if self.rules.written is None else [self.rules.written(text) for text in texts]

    def _read(self, ids: Sequence[int]) -> list[int]:
        read = list(self._pieces[0])
        for slot, piece in enumerate(self._pieces[1:]):
            read += [*ids[self._ends[slot] : self._ends[slot + 1]], *piece]
        return read

    def _in_first_slot(self, ids: Sequence[int]) -> list[int]:
        return [*self._pieces[0], *ids, *chain(*self._pieces[1:])]

    def _read_texts(self, texts: Sequence[str]) -> list[int]:
        text = self._slots.text([*texts, *[""] * (self._slots.num_slots - len(texts))])
        read: list[int] = self.tokenizer(text, add_special_tokens=False).input_ids
        return read

    def _typed(self, rows: Sequence[Sequence[int]]) -> list[list[int]]:
        texts = [self._slots.text(self.slot_texts(ids)) for ids in rows]
        typed: list[list[int]] = self.tokenizer(texts, add_special_tokens=False).input_ids
        return typed

    def room(self, read: Sequence[int]) -> int | float:
        # The last token is not read.
        return longest_input(self.tokenizer, self.model) - len(read) + 1

    def steps(self, read: Sequence[int]) -> Callable[[list[int]], Tensor]:
        past: list[Any] = [None]

        def step(reply: list[int]) -> Tensor:
            if not continues_reading(self.model):
                return next_logits(self.model, torch.tensor([[*read, *reply]], device=self.embedding_VE.device))[0].float()
            given = torch.tensor([reply[-1:] or list(read)], device=self.embedding_VE.device)
            output = self.model(input_ids=given, past_key_values=past[0], use_cache=True)
            past[0] = output.past_key_values
            logits_V: Tensor = output.logits[0, -1].float()
            return logits_V

        return step
