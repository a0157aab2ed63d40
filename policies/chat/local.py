"""Chat models whose weights are in this process: they answer, and say how likely a reply is.

An answer is drawn token by token from the softmax of the logits alone: what a `generation_config` sets beside the ends (a
repetition penalty, top-p) is not applied, for a temperature says all of a `ChatDecoding`. Every chat draws from a generator of
its own seed. With `batch_size` 1 no chat is padded and nothing depends on its company; larger batches are padded at the left
(answers) and at the right (scores), and are equal up to the rounding of their sums. Replies to the same messages, such as the
choices of a game or the candidates of a ranking, share one reading of them.

    B chats, P tokens before an answer, T tokens of an answer, V tokens of the vocabulary
"""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

import torch
from torch import Tensor

from envs.core.errors import ConfigError
from policies.chat.model import Access, Answer, Chat, ChatDecoding, ChatTooLongError, ReplyScore
from policies.chat.prompts import ChatPrompts
from policies.chat.usage import ChatUsage
from policies.hugging_face_tokens import reply_room

logger = logging.getLogger(__name__)
MOST_AT_ONCE = 64
"""Chats that are tried at once first, where the memory decides."""
ItemT = TypeVar("ItemT")
FoundT = TypeVar("FoundT")


class LocalChatModel:
    """A causal model of Hugging Face that answers messages.

    Args:
        name: its address.
        model: with a language-modelling head; its parameters are frozen.
        tokenizer: of the model.
        batch_size: chats that are read at once; 0 for as many as the memory holds.

    Attributes:
        prompts: messages as tokens.
        usage: what was asked.

    Raises:
        ConfigError: as `ChatPrompts`.
    """

    access = Access.GRADIENTS

    def __init__(self, name: str, model: Any, tokenizer: Any, batch_size: int = 1) -> None:
        self.name, self.model, self.tokenizer = name, model.eval().requires_grad_(False), tokenizer
        self.prompts, self.usage = ChatPrompts(tokenizer, model, name), ChatUsage()
        # Padding at the left moves positions, which not every model can be told.
        parameters = inspect.signature(model.forward).parameters
        alone, self._keeps = "position_ids" not in parameters, "logits_to_keep" in parameters
        self._at_once = 1 if alone else batch_size or MOST_AT_ONCE

    def answer(self, chats: Sequence[Chat], *, decoding: ChatDecoding, seeds: Sequence[int] = ()) -> list[Answer]:
        """Answers, see `ChatModel`."""
        return [answer for _, answer in self.arriving(chats, decoding=decoding, seeds=seeds)]

    def arriving(
        self, chats: Sequence[Chat], *, decoding: ChatDecoding, seeds: Sequence[int] = ()
    ) -> Iterator[tuple[int, Answer]]:
        """Answers as they come, in order, see `ArrivingChatModel`; none before all chats were found to fit."""
        if decoding.temperature > 0 and len(seeds) != len(chats):
            raise ConfigError("one seed a chat is needed to draw answers", where=self.name, got=f"{len(seeds)} seeds")
        asked = [(self.prompts.ids(chat), seed) for chat, seed in zip(chats, seeds or [0] * len(chats), strict=True)]
        for place, answer in enumerate(self._in_pieces(lambda piece: self._answered(piece, decoding), asked)):
            self.usage.count([answer])
            yield place, answer

    def score(self, chats: Sequence[Chat], replies: Sequence[str]) -> list[ReplyScore]:
        """How likely each reply is as the answer to its chat, see `ScoringChatModel`."""
        pairs = [(self.prompts.ids(chat), self.prompts.reply_ids(reply)) for chat, reply in zip(chats, replies, strict=True)]
        for before, reply in pairs:
            if len(before) + len(reply) > self.prompts.longest:
                got = f"{len(before)} + {len(reply)} tokens, and it reads {self.prompts.longest:,.0f}"
                fix = "score less, or take a model that reads more"
                raise ChatTooLongError("messages and reply are longer than the model reads", where=self.name, got=got, fix=fix)
        # Neighbours that answer the same, as the choices of a game do, share one reading of it.
        scores: list[ReplyScore] = []
        for before, answers in groupby(pairs, key=itemgetter(0)):
            scores += self._answers_scored(before, [reply for _, reply in answers])
        return scores

    def has_room(self, chat: Chat) -> bool:
        """Whether a reply of usual length can be scored behind a chat."""
        try:
            return len(self.prompts.ids(chat)) + reply_room(self.prompts.longest) <= self.prompts.longest
        except ChatTooLongError:
            return False

    @torch.inference_mode()
    def _answered(self, asked: Sequence[tuple[list[int], int]], decoding: ChatDecoding) -> list[Answer]:
        prompts = [ids for ids, _ in asked]
        longest = max(map(len, prompts))
        padding = [longest - len(ids) for ids in prompts]
        ids_BP = self._tensor([[self.prompts.end_ids[0]] * pad + ids for pad, ids in zip(padding, prompts, strict=True)])
        mask_BP = self._tensor([[0] * pad + [1] * (longest - pad) for pad in padding])
        generators = [torch.Generator().manual_seed(seed) for _, seed in asked]
        most = [int(min(decoding.max_tokens, self.prompts.longest - len(ids))) for ids in prompts]
        said: list[list[int]] = [[] for _ in asked]
        ended = [False] * len(asked)
        read_BP, cache = ids_BP, None
        for _ in range(max(most)):
            given: dict[str, Any] = {"past_key_values": cache, "use_cache": True, **self._logits_of_the_last(1)}
            if len(asked) > 1:
                # A chat that has come to its end is read on beside the others, and has no positions to spare.
                positions_BP = (mask_BP.cumsum(1) - 1).clamp(min=0, max=min(self.prompts.longest, 2**31) - 1)
                given |= {"attention_mask": mask_BP, "position_ids": positions_BP[:, -read_BP.shape[1] :]}
            found = self.model(input_ids=read_BP, **given)
            cache = found.past_key_values
            chosen = _chosen(found.logits[:, -1].float(), decoding.temperature, generators)
            for row, token in enumerate(chosen):
                if not ended[row] and len(said[row]) < most[row]:
                    ended[row] = token in self.prompts.end_ids
                    said[row] += [] if ended[row] else [token]
            if all(end or len(ids) == cut for end, ids, cut in zip(ended, said, most, strict=True)):
                break
            read_BP = self._tensor([[token] for token in chosen])
            mask_BP = torch.cat([mask_BP, torch.ones_like(read_BP)], dim=1)
        return [
            Answer(self.tokenizer.decode(ids, skip_special_tokens=True), "stop" if end else "length", len(before), len(ids))
            for ids, end, before in zip(said, ended, prompts, strict=True)
        ]

    @torch.inference_mode()
    def _answers_scored(self, before: list[int], replies: Sequence[list[int]]) -> list[ReplyScore]:
        read = self.model(input_ids=self._tensor([before]), use_cache=True, **self._logits_of_the_last(1))
        first_1V, cache = read.logits[:, -1], read.past_key_values

        def scored(piece: Sequence[list[int]]) -> list[ReplyScore]:
            # What stands behind a reply is never read by it, so that nothing has to be masked.
            longest = max(map(len, piece))
            filled = [reply[:-1] + [self.prompts.end_ids[0]] * (longest - len(reply)) for reply in piece]
            logits_BTV = first_1V[:, None].expand(len(piece), -1, -1)
            if longest > 1:
                known = copy.deepcopy(cache)
                known.batch_repeat_interleave(len(piece))
                rest_BTV = self.model(input_ids=self._tensor(filled), past_key_values=known, use_cache=True).logits
                logits_BTV = torch.cat([logits_BTV, rest_BTV], dim=1)
            found = []
            for logits_TV, reply in zip(logits_BTV, piece, strict=True):
                own_TV = logits_TV[: len(reply)].float().log_softmax(-1)
                nats = own_TV.gather(1, torch.tensor(reply, device=own_TV.device)[:, None]).sum(dtype=torch.float64)
                found.append(ReplyScore(min(float(nats), 0.0), len(reply)))
            return found

        return list(self._in_pieces(scored, replies))

    def _logits_of_the_last(self, num: int) -> dict[str, int]:
        """Asks for the logits of the last positions alone, which are the most memory, of a model that can be asked so."""
        return {"logits_to_keep": num} if self._keeps else {}

    def _tensor(self, rows: list[list[int]]) -> Tensor:
        return torch.tensor(rows, device=self.model.get_input_embeddings().weight.device)

    def _in_pieces(self, call: Callable[[Sequence[ItemT]], list[FoundT]], items: Sequence[ItemT]) -> Iterator[FoundT]:
        """As many at once as are found to fit; half as many from then on where memory runs out."""
        done = 0
        while done < len(items):
            piece = items[done : done + self._at_once]
            try:
                found = call(piece)
            except torch.OutOfMemoryError as error:
                if len(piece) == 1:
                    got, fix = str(error).splitlines()[0], "take a smaller model or dtype, another device, or a device_map"
                    raise ConfigError("a single chat does not fit into the memory", where=self.name, got=got, fix=fix) from None
            else:
                yield from found
                done += len(piece)
                continue
            # Not within the handler: while the error lives its frames hold the tensors that are to be given back.
            self._at_once = len(piece) // 2
            torch.cuda.empty_cache()
            logger.warning("out of memory: from here on %d chats at a time", self._at_once)


def _chosen(logits_BV: Tensor, temperature: float, generators: Sequence[torch.Generator]) -> list[int]:
    """The next token of each chat: the likeliest, or one drawn by its generator."""
    if not logits_BV.isfinite().any(-1).all() or logits_BV.isnan().any():
        raise ConfigError("the model's logits are no numbers", fix="take another dtype; float16 holds no large numbers")
    if temperature == 0:
        likeliest: list[int] = logits_BV.argmax(-1).tolist()
        return likeliest
    # Drawn on the CPU in float64, so that a device changes no draw but by the logits' own rounding.
    probabilities_BV = (logits_BV.double().cpu() / temperature).softmax(-1)
    return [
        int(torch.multinomial(probabilities_V, 1, generator=generator))
        for probabilities_V, generator in zip(probabilities_BV, generators, strict=True)
    ]
