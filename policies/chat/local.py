"""Chat models whose weights are in this process, and their views as responders and chat models.

`LocalChatModel` draws an answer token by token from the softmax of the logits alone. Of a `generation_config` it takes the
ends, and no repetition penalty or top-p: `ChatDecoding.temperature` decides. Each chat has its own generator. With
`batch_size` 1 no chat is padded and nothing depends on the batch. Larger batches are padded at the left (answers) and at the
right (scores), and are equal up to rounding. With them chats of like length are answered together, those that have ended
leave, and a chat that goes on from one that was read before is read from there (`KeptReadings`). Replies to the same messages
share one reading of them. Models that cannot share a reading read whole texts; the log says so once
(`policies/hugging_face/caches.py`). Thinking between marks of the template is parted from the reply
(`completions.part_thinking`); thinking without an end counts as cut.

`ChatResponder` answers contexts: conversations in which the user has spoken last. A template wants a user's turn first, so
with an even number of turns the oldest two become one. Texts are written as people write them
(`envs/corpora/pairs/turns.py`), and an answer is read as lines, each cut into words.

`RespondingChatModel` lets a response model answer messages, of which it reads the newest.

    B chats, P tokens before an answer, T tokens of an answer, V tokens of the vocabulary
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.core.visible import is_blank
from parley.envs.corpora.pairs.tokens import tokenise
from parley.envs.corpora.pairs.turns import Turn, Turns, detokenise
from parley.policies.chat.completions import is_tool_call, opens_thinking, part_thinking
from parley.policies.chat.model import (
    ROLES,
    Access,
    Answer,
    ArrivingChatModel,
    Chat,
    ChatDecoding,
    ChatModel,
    ChatTooLongError,
    ChatUsage,
    Message,
    ReplyScore,
)
from parley.policies.chat.newest import answer_newest
from parley.policies.chat.settings import MAX_REPLY_TOKENS, ChatModelSettings
from parley.policies.chat.templates import options_of, prints_date, role_notes, write_prompt
from parley.policies.core.decoding import raced
from parley.policies.core.responder import GREEDY, DecoderSettings, ModelReply, Responder, answer, require_known
from parley.policies.hugging_face.caches import (
    KeptReadings,
    TokenTree,
    can_select_rows,
    continues_reading,
    give_room,
    logits_of_last,
    padded_left,
    pads_left,
    reads_trees,
    select_rows,
)
from parley.policies.hugging_face.models import read_placed
from parley.policies.hugging_face.tokens import decode_marked, ends_of, longest_input, reply_room

logger = logging.getLogger(__name__)

_PROBE = "where-the-user-speaks"


class ChatPrompt(NamedTuple):
    """The prompt of an answer.

    Args:
        ids: its tokens.
        thinks: whether it ends with a start of thinking, so that the answer begins inside.
        notes: changes of messages whose roles the template does not take, as in `Answer.notes`.
    """

    ids: list[int]
    thinks: bool
    notes: tuple[str, ...] = ()


class ChatPrompts:
    """Prompts of a model, and checks that they fit.

    Args:
        tokenizer: of the model.
        model: the model, whose positions limit the prompt.
        where: address of the model, for messages.

    Attributes:
        end_ids: tokens that end an answer: those that the model's `generation_config` names, and the tokenizer's own.
        longest: tokens that the model reads at most; infinity where nothing limits them.

    Raises:
        ConfigError: the tokenizer has no end, or its template no place for what the user says.
    """

    def __init__(self, tokenizer: Any, model: Any, where: str) -> None:
        self._tokenizer, self._where = tokenizer, where
        self.end_ids: tuple[int, ...] = tuple(sorted(ends_of(tokenizer, model)))
        self.longest = longest_input(tokenizer, model)
        self._num_tokens = len(model.get_input_embeddings().weight)
        if _PROBE not in write_prompt(tokenizer, (Message("user", _PROBE),)):
            fix = "write message['content'] of the user into the chat_template of its tokenizer"
            raise ConfigError("the chat template has no place for what the user says", where=where, fix=fix)

    def ids(self, chat: Chat) -> list[int]:
        """Return the tokens before the answer to a chat, see `prompt`."""
        return self.prompt(chat).ids

    def prompt(self, chat: Chat) -> ChatPrompt:
        """Return the prompt of the answer to a chat; at least one more token fits behind it.

        Raises:
            ConfigError: a role is unknown, the template refuses the messages, or the model lacks a token of theirs.
            ChatTooLongError: they are longer than the model reads.
        """
        if not chat:
            raise ConfigError("a chat without messages cannot be answered", where=self._where, fix="ask something")
        if unknown := sorted({message.role for message in chat} - set(ROLES)):
            raise ConfigError("no such role", where=self._where, got=", ".join(unknown), fix=f"one of {', '.join(ROLES)}")
        text = write_prompt(self._tokenizer, chat)
        # A template writes the marks around a text itself.
        ids: list[int] = self._tokenizer(text, add_special_tokens=False).input_ids
        if len(ids) >= self.longest:
            fix = "ask less, or take a model that reads more"
            got = f"{len(ids):,} tokens, and it reads {self.longest:,.0f} with its answer"
            raise ChatTooLongError("the messages are longer than the model reads", where=self._where, got=got, fix=fix)
        if (highest := max(ids, default=0)) >= self._num_tokens:
            got = f"{self._tokenizer.convert_ids_to_tokens(highest)!r}, number {highest:,} of {self._num_tokens:,}"
            fix = "save the tokenizer that the model was trained with beside it"
            raise ConfigError("the tokenizer writes a token that the model lacks", where=self._where, got=got, fix=fix)
        return ChatPrompt(ids, opens_thinking(text), role_notes(self._tokenizer, chat))

    def reply_ids(self, reply: str) -> list[int]:
        """Return the tokens of a reply, without an end.

        Raises:
            ConfigError: it has none.
        """
        ids: list[int] = self._tokenizer(reply, add_special_tokens=False).input_ids
        if not ids:
            what = "a reply without tokens has no likelihood"
            raise ConfigError(what, where=self._where, got=repr(reply), fix="say something")
        return ids


MOST_AT_ONCE = 64
"""First batch size, in chats, if the memory decides."""
_LEAVES = 0.75
"""Share of the chats read at once that still run, from which the ended ones are read no longer."""
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class LocalChatModel(ArrivingChatModel):
    """A causal model of Hugging Face that answers messages.

    Args:
        name: its address.
        model: with a language-modelling head; its parameters are frozen.
        tokenizer: of the model.
        batch_size: chats that are read at once; 0 for as many as the memory holds.
        parts_thinking: whether reasoning between marks is parted from replies.

    Attributes:
        prompts: messages as tokens.
        usage: counters of its answers.
        answers_depend_on: inputs of answers beside name, messages, decoding and seed; empty for none.

    Raises:
        ConfigError: as `ChatPrompts`.
    """

    access = Access.GRADIENTS

    def __init__(self, name: str, model: Any, tokenizer: Any, batch_size: int = 1, *, parts_thinking: bool = True) -> None:
        self.name, self.model, self.tokenizer = name, model.eval().requires_grad_(False), tokenizer
        self.prompts, self.usage = ChatPrompts(tokenizer, model, name), ChatUsage()
        self.answers_depend_on = ""
        self._at_once, self._parts_thinking = batch_size or MOST_AT_ONCE, parts_thinking
        self._readings = KeptReadings(model)

    def arriving(
        self, chats: Sequence[Chat], *, decoding: ChatDecoding, seeds: Sequence[int] = ()
    ) -> Iterator[tuple[int, Answer]]:
        """Yield answers as they arrive, see `ArrivingChatModel`; all chats are checked to fit first."""
        if decoding.temperature > 0 and len(seeds) != len(chats):
            raise ConfigError("one seed a chat is needed to draw answers", where=self.name, got=f"{len(seeds)} seeds")
        questions = [(self.prompts.prompt(chat), seed) for chat, seed in zip(chats, seeds or [0] * len(chats), strict=True)]
        yield from self._arriving(questions, decoding)

    def continuing(self, prompts: Sequence[str], max_tokens: int) -> Iterator[tuple[int, Answer]]:
        """Yield the likeliest answers behind prompts whose special tokens are spelled out, each with its place."""
        ids = [self.tokenizer(prompt, add_special_tokens=False).input_ids for prompt in prompts]
        return self._arriving(
            [(ChatPrompt(each, False), 0) for each in ids], ChatDecoding(temperature=0, max_tokens=max_tokens)
        )

    def _arriving(self, questions: list[tuple[ChatPrompt, int]], decoding: ChatDecoding) -> Iterator[tuple[int, Answer]]:
        # Padding at the left moves positions, which not every model accepts.
        if len(questions) > 1 and self._at_once > 1 and not pads_left(self.model):
            self._at_once = 1
        order = list(range(len(questions)))
        if self._at_once > 1:
            order.sort(key=lambda index: len(questions[index][0].ids))
        replies = self._in_pieces(lambda piece: self._answered(piece, decoding), [questions[index] for index in order])
        for index, reply in zip(order, replies, strict=True):
            self.usage.count([reply])
            yield index, reply

    @torch.inference_mode()
    def score(self, chats: Sequence[Chat], replies: Sequence[str]) -> list[ReplyScore]:
        """Return the log probability of each reply as the answer to its chat, see `ScoringChatModel`."""
        pairs = [(self.prompts.ids(chat), self.prompts.reply_ids(reply)) for chat, reply in zip(chats, replies, strict=True)]
        for before, reply in pairs:
            if len(before) + len(reply) > self.prompts.longest:
                got = f"{len(before)} + {len(reply)} tokens, and it reads {self.prompts.longest:,.0f}"
                fix = "score less, or take a model that reads more"
                raise ChatTooLongError("messages and reply are longer than the model reads", where=self.name, got=got, fix=fix)
        # Replies to one chat, such as the choices of a game, share one reading of it.
        groups: dict[tuple[int, ...], list[int]] = {}
        for index, (before, _) in enumerate(pairs):
            groups.setdefault(tuple(before), []).append(index)
        if self._keeps and pads_left(self.model):
            self._readings.share(list(groups))
        scores: dict[int, ReplyScore] = {}
        for messages, indices in groups.items():
            scores |= zip(indices, self._answers_scored(list(messages), [pairs[index][1] for index in indices]), strict=True)
        return [scores[index] for index in range(len(pairs))]

    @torch.inference_mode()
    def probability(self, chat: Chat, reply: str, temperature: float) -> float:
        """Return the probability that a reply and its end are the answer to a chat; 0 or 1 at temperature 0."""
        before, ids = self.prompts.ids(chat), self.prompts.reply_ids(reply)
        if len(before) + len(ids) > self.prompts.longest:
            raise ChatTooLongError("messages and reply are longer than the model reads", where=self.name)
        num, ends = len(ids) + 1, list(self.prompts.end_ids)
        read = self.model(input_ids=self._tensor([[*before, *ids]]), use_cache=False, **logits_of_last(self.model, num))
        logits_TV = read.logits[0, -num:].double()
        if temperature == 0:
            *greedy, end = logits_TV.argmax(-1).tolist()
            return float(greedy == ids and end in ends)
        log_TV = (logits_TV / temperature).log_softmax(-1)
        return float((log_TV[range(len(ids)), ids].sum() + log_TV[-1, ends].logsumexp(0)).exp())

    def has_room(self, chat: Chat) -> bool:
        """Return whether a reply of usual length can be scored behind a chat."""
        try:
            return len(self.prompts.ids(chat)) + reply_room(self.prompts.longest) <= self.prompts.longest
        except ChatTooLongError:
            return False

    @property
    def _keeps(self) -> bool:
        return self._at_once > 1 and continues_reading(self.model)

    @torch.inference_mode()
    def _answered(self, questions: Sequence[tuple[ChatPrompt, int]], decoding: ChatDecoding) -> list[Answer]:
        prompts, pad = [prompt.ids for prompt, _ in questions], self.prompts.end_ids[:1]
        cache, known = None, [0] * len(prompts)
        if keeps := self._keeps:
            cache, known = self._readings.begin(prompts)
        padded = padded_left(prompts, known, pad[0])
        ids_BP, mask_BP, num_new = self._tensor(padded.ids), self._tensor(padded.mask), padded.num_new
        generators = [np.random.default_rng(seed) for _, seed in questions]
        most = [int(min(decoding.max_tokens, self.prompts.longest - len(ids))) for ids in prompts]
        written: list[list[int]] = [[] for _ in questions]
        ends: list[int | None] = [None] * len(questions)
        first_tokens: list[tuple[tuple[str, float], ...]] = [()] * len(questions)
        rows = list(range(len(questions)))
        for number in range(max(most)):
            logits_BV, cache = self._next(ids_BP, mask_BP if len(questions) > 1 else None, cache, num_new)
            num_new = 1
            if decoding.first_tokens and number == 0:
                first_tokens = self._likeliest(logits_BV, decoding.first_tokens)
            chosen = _chosen(logits_BV.float(), decoding.temperature, [generators[row] for row in rows])
            for row, token in zip(rows, chosen, strict=True):
                if ends[row] is None and len(written[row]) < most[row]:
                    if token in self.prompts.end_ids:
                        ends[row] = token
                    else:
                        written[row].append(token)
            running = [index for index, row in enumerate(rows) if ends[row] is None and len(written[row]) < most[row]]
            leaving = len(running) <= _LEAVES * len(rows) and can_select_rows(cache)
            if keeps and (leaving or not running):
                ended = {index: [*prompts[row], *written[row]] for index, row in enumerate(rows) if index not in running}
                self._readings.keep(ended, cache, mask_BP)
            if not running:
                break
            ids_BP = torch.cat([ids_BP, self._tensor([[token] for token in chosen])], dim=1)
            mask_BP = torch.cat([mask_BP, torch.ones_like(ids_BP[:, :1])], dim=1)
            if leaving:
                rows = [rows[index] for index in running]
                ids_BP, mask_BP = ids_BP[running], mask_BP[running]
                select_rows(cache, running)
        answers = zip(questions, written, ends, first_tokens, strict=True)
        return [replace(self._answer(prompt, ids, end), first_tokens=likeliest) for (prompt, _), ids, end, likeliest in answers]

    def _likeliest(self, logits_BV: Tensor, num: int) -> list[tuple[tuple[str, float], ...]]:
        """Return the likeliest tokens of each row, as texts with their log probabilities."""
        nats_BK, ids_BK = logits_BV.float().log_softmax(-1).topk(min(num, logits_BV.shape[-1]))
        return [
            tuple((decode_marked(self.tokenizer, [token]), value) for token, value in zip(ids, nats, strict=True))
            for ids, nats in zip(ids_BK.tolist(), nats_BK.tolist(), strict=True)
        ]

    def _next(self, ids_BP: Tensor, mask_BP: Tensor | None, cache: Any, num_new: int) -> tuple[Tensor, Any]:
        """Return the logits (B, V) behind texts, and the cache, which lacks the last new tokens; only these are read."""
        given: dict[str, Any] = logits_of_last(self.model, 1)
        if mask_BP is not None:
            # A chat that has ended is still read beside the others, and may have no positions left.
            positions_BP = (mask_BP.cumsum(1) - 1).clamp(min=0, max=min(self.prompts.longest, 2**31) - 1)
            given |= {"attention_mask": mask_BP, "position_ids": positions_BP}
        if not continues_reading(self.model):
            return self.model(input_ids=ids_BP, use_cache=False, **given).logits[:, -1], None
        if cache is not None:
            ids_BP = ids_BP[:, -num_new:]
            given |= {"position_ids": given["position_ids"][:, -num_new:]} if "position_ids" in given else {}
        read = self.model(input_ids=ids_BP, past_key_values=cache, use_cache=True, **given)
        return read.logits[:, -1], give_room(read.past_key_values)

    def _answer(self, prompt: ChatPrompt, ids: Sequence[int], end: int | None) -> Answer:
        """Return the answer of tokens and the token that ended them, if one did; its reasoning is parted from its reply."""
        text, reasoning, ended, closed = decode_marked(self.tokenizer, ids), "", end is not None, True
        if self._parts_thinking:
            text, reasoning, closed = part_thinking(text, begun=prompt.thinks, ended=ended)
            # An end in the middle of thinking ends no reply.
            ended = ended and closed
        reason = "stop" if ended else "length"
        if self._parts_thinking and is_tool_call(text):
            reason = "tool_calls"
        withheld = f"({len(ids)} tokens without a word)" if closed and is_blank(text) and not (ended or reasoning) else ""
        return Answer(text, reason, len(prompt.ids), len(ids), reasoning=reasoning, withheld=withheld, notes=prompt.notes)

    def _answers_scored(self, before: list[int], replies: Sequence[list[int]]) -> list[ReplyScore]:
        if not reads_trees(self.model):
            return list(self._in_pieces(partial(self._scored_alone, before), replies))
        device, layers = self.model.get_input_embeddings().weight.device, list[tuple[Tensor, Tensor]]()
        cache = self._readings.begin([before])[0] if self._keeps else None
        messages = TokenTree([before], device, cache and [(layer.keys, layer.values) for layer in cache.layers])
        first_V = messages.logits(self.model, [len(messages) - 1], layers).float().log_softmax(-1)[0]

        def scored(piece: Sequence[list[int]]) -> list[ReplyScore]:
            tree = TokenTree([[*before, *reply[:-1]] for reply in piece], device, layers)
            log_MV = tree.logits(self.model, range(len(tree))).float().log_softmax(-1) if len(tree) else first_V[None]
            firsts = first_V[[reply[0] for reply in piece]].tolist()
            rests = [
                log_MV[places, reply[1:]].sum(dtype=torch.float64) for places, reply in zip(tree.places, piece, strict=True)
            ]
            return [
                ReplyScore(min(first + float(rest), 0.0), len(reply))
                for first, rest, reply in zip(firsts, rests, piece, strict=True)
            ]

        return list(self._in_pieces(scored, replies))

    def _scored_alone(self, before: list[int], replies: Sequence[list[int]]) -> list[ReplyScore]:
        """Return scores of replies that are read side by side, each behind the messages."""
        # A reply never reads the tokens behind it, so nothing has to be masked.
        length, scores = max(map(len, replies)), []
        filled = [[*before, *reply[:-1], *[self.prompts.end_ids[0]] * (length - len(reply))] for reply in replies]
        read = self.model(input_ids=self._tensor(filled), use_cache=False, **logits_of_last(self.model, length))
        for logits_TV, reply in zip(read.logits[:, -length:], replies, strict=True):
            log_TV = logits_TV[: len(reply)].float().log_softmax(-1)
            nats = log_TV[range(len(reply)), reply].sum(dtype=torch.float64)
            scores.append(ReplyScore(min(float(nats), 0.0), len(reply)))
        return scores

    def _tensor(self, rows: list[list[int]]) -> Tensor:
        return torch.tensor(rows, device=self.model.get_input_embeddings().weight.device)

    def _in_pieces(self, call: Callable[[Sequence[ItemT]], list[ResultT]], items: Sequence[ItemT]) -> Iterator[ResultT]:
        """Yield results, as many items at once as fit; the batch is halved for good when memory runs out."""
        done = 0
        while done < len(items):
            piece = items[done : done + self._at_once]
            try:
                results = call(piece)
            except torch.OutOfMemoryError as error:
                if len(piece) == 1:
                    got, fix = str(error).splitlines()[0], "take a smaller model or dtype, another device, or a device_map"
                    raise ConfigError("a single chat does not fit into the memory", where=self.name, got=got, fix=fix) from None
            else:
                yield from results
                done += len(piece)
                continue
            # Not within the handler: while the error lives, its frames hold the tensors to be freed.
            self._at_once = len(piece) // 2
            torch.cuda.empty_cache()
            logger.warning("out of memory: from here on %d chats at a time", self._at_once)


def _chosen(logits_BV: Tensor, temperature: float, generators: Sequence[np.random.Generator]) -> list[int]:
    """Return the next token of each chat: the likeliest, or one drawn by its generator."""
    if not logits_BV.amax(-1).isfinite().all():
        raise ConfigError("the model's logits are no numbers", fix="take another dtype; float16 holds no large numbers")
    if temperature == 0:
        likeliest: list[int] = logits_BV.argmax(-1).tolist()
        return likeliest
    # Drawn on the CPU in float64, so that a device changes no draw but by the logits' own rounding.
    chosen: list[int] = raced(logits_BV.double().cpu() / temperature, generators).tolist()
    return chosen


def load_local(name: str, settings: ChatModelSettings) -> LocalChatModel:
    """Return the chat model of a folder of `save_pretrained` or of a file of llama.cpp; no code in it is run.

    Args:
        name: `hf:FOLDER` or `gguf:FILE`; folder and file may be URIs.
        settings: device, precision, batch size.

    Raises:
        ConfigError: a package is missing, the tokenizer has no end, its template no place for the user, or no such device.
        CheckpointError: there is no such model, it wants code of its own to be run, its weights are pickled or not finite, or
            it is none that answers messages.
    """
    tokenizer, model = read_placed(name, _causal, settings, settings.device)
    chat_model = LocalChatModel(name, model, tokenizer, settings.batch_size, parts_thinking=settings.thinking == "part")
    chat_model.answers_depend_on = settings.answers_depend_on
    if prints_date(tokenizer):
        chat_model.answers_depend_on += f" on {options_of(tokenizer).day}"
    return chat_model


def _causal(config: Any) -> str:
    if config.is_encoder_decoder:
        fix = "name a causal model, such as Llama, Qwen or GPT-2"
        got = f"model_type {config.model_type}"
        raise CheckpointError("a model with an encoder answers no messages", where=config.name_or_path, got=got, fix=fix)
    return "AutoModelForCausalLM"


_ROLES = ("user", "assistant")


class ChatResponder:
    """A chat model that answers contexts.

    Args:
        chat_model: the model that answers.
        max_tokens: of a reply at most.
    """

    turns = 2
    """Turns of context that are read, as the paper's models do; more on request."""
    decoders: tuple[str, ...] = ("greedy", "sample")
    """Rules that it knows."""

    def __init__(self, chat_model: ChatModel, max_tokens: int = MAX_REPLY_TOKENS) -> None:
        self.chat_model, self._max_tokens = chat_model, max_tokens

    def respond(self, contexts: Sequence[Turns], *, decoder: DecoderSettings = GREEDY, seeds: Sequence[int] = ()) -> list[Turn]:
        """Return replies, see `parley.policies.core.responder.Responder`; a turn without words for no reply."""
        return [reply.turn for reply in self.replies_with_answers(contexts, decoder=decoder, seeds=seeds)]

    def replies_with_answers(
        self, contexts: Sequence[Turns], *, decoder: DecoderSettings = GREEDY, seeds: Sequence[int] = ()
    ) -> list[ModelReply]:
        """Return replies with the model's answers; the arguments are those of `respond`.

        A context that is longer than the model reads is answered without its oldest turns.

        Raises:
            ModelError: the model does not answer.
        """
        require_known(self, decoder, self.chat_model.name)
        decoding = ChatDecoding(temperature=decoder.temperature if decoder.draws else 0.0, max_tokens=self._max_tokens)
        reply_seeds = seeds if decoder.draws else ()
        answers = answer_newest(self.chat_model, [_forms(turns) for turns in contexts], decoding=decoding, seeds=reply_seeds)
        return [ModelReply(turn_of_text(answer.text), answer) for _, answer in answers]


def _forms(turns: Turns) -> list[Chat]:
    texts = [" ".join(map(detokenise, turn)) for turn in turns]
    return [chat_of_turns(texts[start:]) for start in range(len(texts))]


def chat_of_turns(texts: Sequence[str]) -> Chat:
    """Return the messages of a conversation.

    Args:
        texts: texts, oldest first; at least one, of which the last is the user's.
    """
    merged = list(texts) if len(texts) % 2 else ["\n".join(texts[:2]), *texts[2:]]
    return tuple(Message(_ROLES[number % 2], text) for number, text in enumerate(merged))


def turn_of_text(text: str) -> Turn:
    """Return the utterances of an answer, one a line; a turn without words if there is none."""
    return tuple(tuple(tokenise(line)) for line in text.splitlines() if line.strip()) or ((),)


class RespondingChatModel:
    """A response model that answers messages, each of which is a turn.

    Args:
        name: of its run.
        responder: the response model that answers.

    Attributes:
        usage: counters of its answers; tokens are words, and those of a context that it does not read are counted, too.
    """

    access = Access.TEXT

    def __init__(self, name: str, responder: Responder) -> None:
        self.name, self.responder, self.usage = name, responder, ChatUsage()

    def answer(self, chats: Sequence[Chat], *, decoding: ChatDecoding, seeds: Sequence[int] = ()) -> list[Answer]:
        """Return one answer to each chat, see `ChatModel`.

        Raises:
            ConfigError: there is a system message, or the model draws no replies.
        """
        if any(message.role == "system" for chat in chats for message in chat):
            fix = "say it in the first message of the user, or take a chat model"
            raise ConfigError("a response model has no place for the system", where=self.name, fix=fix)
        drawn = decoding.temperature > 0
        if drawn and "sample" not in getattr(self.responder, "decoders", ()):
            raise ConfigError("this model draws no replies", where=self.name, fix="ask at temperature 0, without samples")
        decoder = DecoderSettings(rule="sample", temperature=decoding.temperature) if drawn else GREEDY
        contexts = [tuple(turn_of_text(message.content) for message in chat) for chat in chats]
        replies = answer(self.responder, contexts, decoder, seeds if drawn else ())
        answers = [_answer(context, reply, decoding.max_tokens) for context, reply in zip(contexts, replies, strict=True)]
        self.usage.count(answers)
        return answers


def _answer(context: Turns, reply: Turn, most: int) -> Answer:
    read, words = sum(len(utterance) for turn in context for utterance in turn), [*chain.from_iterable(reply)]
    if len(words) > most:
        return Answer(detokenise(words[:most]), "length", read, most)
    return Answer("\n".join(map(detokenise, reply)), "stop", read, len(words))
