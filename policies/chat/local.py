"""Chat models whose weights are in this process: they answer, and say how likely a reply is.

An answer is drawn token by token from the softmax of the logits alone: what a `generation_config` sets beside the ends (a
repetition penalty, top-p) is not applied, for a temperature says all of a `ChatDecoding`. Every chat draws from a generator of
its own seed. With `batch_size` 1 no chat is padded and nothing depends on its company; larger batches are padded at the left
(answers) and at the right (scores), and are equal up to the rounding of their sums. Replies to the same messages, such as the
choices of a game or the candidates of a ranking, share one reading of them. Models with a running state that cannot do so, or
keep nothing, read whole texts; the log says so once (`policies/hugging_face/caches.py`).

What a model thinks between marks of its template is parted from its reply (`thinking.py`); thinking that never ends is cut.

    B chats, P tokens before an answer, T tokens of an answer, V tokens of the vocabulary
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

import torch
from torch import Tensor

from parley.envs.core.errors import ConfigError
from parley.policies.chat.model import Access, Answer, Chat, ChatDecoding, ChatTooLongError, ReplyScore
from parley.policies.chat.prompts import ChatPrompt, ChatPrompts
from parley.policies.chat.thinking import is_tool_call, part_thinking
from parley.policies.chat.usage import ChatUsage
from parley.policies.hugging_face.caches import continues_reading, logits_of_last, pads_left, shares_reading
from parley.policies.hugging_face.tokens import decode_marked, reply_room

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
        parts_thinking: whether reasoning between marks is parted from replies.

    Attributes:
        prompts: messages as tokens.
        usage: what was asked.
        answers_depend_on: what answers follow from beside name, messages, decoding and seed; empty for nothing else.

    Raises:
        ConfigError: as `ChatPrompts`.
    """

    access = Access.GRADIENTS

    def __init__(self, name: str, model: Any, tokenizer: Any, batch_size: int = 1, *, parts_thinking: bool = True) -> None:
        self.name, self.model, self.tokenizer = name, model.eval().requires_grad_(False), tokenizer
        self.prompts, self.usage = ChatPrompts(tokenizer, model, name), ChatUsage()
        self.answers_depend_on = ""
        self._at_once, self._parts_thinking = batch_size or MOST_AT_ONCE, parts_thinking

    def answer(self, chats: Sequence[Chat], *, decoding: ChatDecoding, seeds: Sequence[int] = ()) -> list[Answer]:
        """Answers, see `ChatModel`."""
        return [answer for _, answer in self.arriving(chats, decoding=decoding, seeds=seeds)]

    def arriving(
        self, chats: Sequence[Chat], *, decoding: ChatDecoding, seeds: Sequence[int] = ()
    ) -> Iterator[tuple[int, Answer]]:
        """Answers as they come, in order, see `ArrivingChatModel`; none before all chats were found to fit."""
        if decoding.temperature > 0 and len(seeds) != len(chats):
            raise ConfigError("one seed a chat is needed to draw answers", where=self.name, got=f"{len(seeds)} seeds")
        questions = [(self.prompts.prompt(chat), seed) for chat, seed in zip(chats, seeds or [0] * len(chats), strict=True)]
        # Padding at the left moves positions, which not every model can be told.
        if len(questions) > 1 and self._at_once > 1 and not pads_left(self.model):
            self._at_once = 1
        for place, answer in enumerate(self._in_pieces(lambda piece: self._answered(piece, decoding), questions)):
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
    def _answered(self, questions: Sequence[tuple[ChatPrompt, int]], decoding: ChatDecoding) -> list[Answer]:
        prompts = [prompt.ids for prompt, _ in questions]
        longest = max(map(len, prompts))
        padding = [longest - len(ids) for ids in prompts]
        ids_BP = self._tensor([[self.prompts.end_ids[0]] * pad + ids for pad, ids in zip(padding, prompts, strict=True)])
        mask_BP = self._tensor([[0] * pad + [1] * (longest - pad) for pad in padding])
        generators = [torch.Generator().manual_seed(seed) for _, seed in questions]
        most = [int(min(decoding.max_tokens, self.prompts.longest - len(ids))) for ids in prompts]
        written: list[list[int]] = [[] for _ in questions]
        ended = [False] * len(questions)
        cache = None
        for _ in range(max(most)):
            logits_BV, cache = self._next(ids_BP, mask_BP, cache)
            chosen = _chosen(logits_BV.float(), decoding.temperature, generators)
            for row, token in enumerate(chosen):
                if not ended[row] and len(written[row]) < most[row]:
                    ended[row] = token in self.prompts.end_ids
                    written[row] += [] if ended[row] else [token]
            if all(end or len(ids) == cut for end, ids, cut in zip(ended, written, most, strict=True)):
                break
            ids_BP = torch.cat([ids_BP, self._tensor([[token] for token in chosen])], dim=1)
            mask_BP = torch.cat([mask_BP, torch.ones_like(ids_BP[:, :1])], dim=1)
        return [self._answer(prompt, ids, ended=end) for (prompt, _), ids, end in zip(questions, written, ended, strict=True)]

    def _next(self, ids_BP: Tensor, mask_BP: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """Return the logits (B, V) behind texts, and what is kept of them; only what was not read before is read."""
        given: dict[str, Any] = logits_of_last(self.model, 1)
        if len(ids_BP) > 1:
            # A chat that has come to its end is read on beside the others, and has no positions to spare.
            positions_BP = (mask_BP.cumsum(1) - 1).clamp(min=0, max=min(self.prompts.longest, 2**31) - 1)
            given |= {"attention_mask": mask_BP, "position_ids": positions_BP}
        if not continues_reading(self.model):
            return self.model(input_ids=ids_BP, use_cache=False, **given).logits[:, -1], None
        if cache is not None:
            ids_BP = ids_BP[:, -1:]
            given |= {"position_ids": given["position_ids"][:, -1:]} if "position_ids" in given else {}
        read = self.model(input_ids=ids_BP, past_key_values=cache, use_cache=True, **given)
        return read.logits[:, -1], read.past_key_values

    def _answer(self, prompt: ChatPrompt, ids: Sequence[int], *, ended: bool) -> Answer:
        """Return the answer of tokens, its reasoning parted from its reply."""
        text, reasoning = decode_marked(self.tokenizer, ids), ""
        if self._parts_thinking:
            text, reasoning, closed = part_thinking(text, begun=prompt.thinks, ended=ended)
            # An end in the middle of thinking ends no reply.
            ended = ended and closed
        reason = "stop" if ended else "length"
        if self._parts_thinking and is_tool_call(text):
            reason = "tool_calls"
        return Answer(text, reason, len(prompt.ids), len(ids), reasoning=reasoning, notes=prompt.notes)

    @torch.inference_mode()
    def _answers_scored(self, before: list[int], replies: Sequence[list[int]]) -> list[ReplyScore]:
        shares = shares_reading(self.model)
        if shares:
            read = self.model(input_ids=self._tensor([before]), use_cache=True, **logits_of_last(self.model, 1))
            first_1V, cache = read.logits[:, -1], read.past_key_values

        def logits_of(filled: list[list[int]], length: int) -> Tensor:
            """Return logits (B, T, V) at each token of replies of T tokens, of which all but the last are read."""
            if not shares:
                ids_BP = self._tensor([[*before, *ids] for ids in filled])
                logits_BTV: Tensor = self.model(input_ids=ids_BP, use_cache=False, **logits_of_last(self.model, length)).logits[
                    :, -length:
                ]
                return logits_BTV
            first_B1V = first_1V[:, None].expand(len(filled), -1, -1)
            if length == 1:
                return first_B1V
            known = copy.deepcopy(cache)
            known.batch_repeat_interleave(len(filled))
            rest_BTV = self.model(input_ids=self._tensor(filled), past_key_values=known, use_cache=True).logits
            return torch.cat([first_B1V, rest_BTV], dim=1)

        def scored(piece: Sequence[list[int]]) -> list[ReplyScore]:
            # What stands behind a reply is never read by it, so that nothing has to be masked.
            length = max(map(len, piece))
            filled = [reply[:-1] + [self.prompts.end_ids[0]] * (length - len(reply)) for reply in piece]
            scores = []
            for logits_TV, reply in zip(logits_of(filled, length), piece, strict=True):
                own_TV = logits_TV[: len(reply)].float().log_softmax(-1)
                nats = own_TV.gather(1, torch.tensor(reply, device=own_TV.device)[:, None]).sum(dtype=torch.float64)
                scores.append(ReplyScore(min(float(nats), 0.0), len(reply)))
            return scores

        return list(self._in_pieces(scored, replies))

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
