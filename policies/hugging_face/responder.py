"""Local models as response models: `hf:FOLDER` or `gguf:FILE`.

A model reads the text that it was trained on: the turns in the tokenizer's chat template; turns with ends between them, as for
DialoGPT, if a causal model has no template; one turn a line for an encoder. A causal model answers as a chat model does
(`policies/chat/local.py`), except by beams. Beams, and models with an encoder, are decoded by transformers, one context at a
time; a context longer than the model's positions loses its beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from parley.envs.core.errors import ConfigError
from parley.envs.corpora.pairs.turns import Turn, Turns, detokenise
from parley.policies.chat.answers import kept_answers
from parley.policies.chat.completions import is_tool_call, opens_thinking, part_thinking
from parley.policies.chat.local import ChatResponder, LocalChatModel, load_local, turn_of_text
from parley.policies.chat.model import Answer, ChatModel, Message
from parley.policies.chat.settings import DEFAULT, MAX_REPLY_TOKENS, ChatModelSettings
from parley.policies.chat.templates import write_prompt
from parley.policies.core.responder import GREEDY, DecoderSettings, ModelReply, require_known
from parley.policies.hugging_face.caches import continues_reading
from parley.policies.hugging_face.models import is_encoder_decoder, read_placed
from parley.policies.hugging_face.tokens import decode_marked, ends_of, longest_input, num_positions

_ROLES = ("user", "assistant")


class HuggingFaceResponder:
    """An encoder and decoder, or a causal model, as a response model.

    Args:
        model: with a language-modelling head.
        tokenizer: of the model.
        max_tokens: of a reply at most.

    Raises:
        ConfigError: a causal model whose tokenizer has neither a chat template nor a token that ends a turn.
    """

    turns = 2
    """Number of context turns that are read by default, as by the paper's models."""
    decoders = ("greedy", "beam")
    """Rules that it knows."""

    def __init__(self, model: Any, tokenizer: Any, max_tokens: int = MAX_REPLY_TOKENS) -> None:
        self.model, self._tokenizer = model.eval().requires_grad_(False), tokenizer
        self._max_tokens = max_tokens
        self._encodes = bool(model.config.is_encoder_decoder)
        if not self._encodes and not tokenizer.chat_template and tokenizer.eos_token is None:
            fix = "set its chat_template, or its eos_token to the token that ends a turn"
            what = "the tokenizer does not say how turns are separated"
            raise ConfigError(what, where=tokenizer.name_or_path or None, fix=fix)

    def respond(self, contexts: Sequence[Turns], *, decoder: DecoderSettings = GREEDY, seeds: Sequence[int] = ()) -> list[Turn]:
        """Return replies, see `parley.policies.core.responder.Responder`; one context at a time, without padding."""
        return [reply.turn for reply in self.replies_with_answers(contexts, decoder=decoder, seeds=seeds)]

    def replies_with_answers(
        self, contexts: Sequence[Turns], *, decoder: DecoderSettings = GREEDY, seeds: Sequence[int] = ()
    ) -> list[ModelReply]:
        """Return replies, those of a causal model with its answers; the arguments are those of `respond`."""
        require_known(self, decoder, type(self).__name__)
        return [self._reply(turns, decoder) for turns in contexts]

    def _reply(self, turns: Turns, decoder: DecoderSettings) -> ModelReply:
        prompt_ids, thinks = self._asked([[detokenise(utterance) for utterance in turn] for turn in turns])
        positions = num_positions(self.model) if self._encodes else longest_input(self._tokenizer, self.model)
        length = int(min(self._max_tokens, positions / 2))
        kept = prompt_ids[-int(min(positions - length, len(prompt_ids))) :]
        ids_1T = torch.tensor([kept], device=self.model.device)
        with torch.inference_mode():
            said_1T = self.model.generate(
                ids_1T,
                attention_mask=torch.ones_like(ids_1T),
                do_sample=False,
                num_beams=decoder.beam,
                length_penalty=decoder.length,
                max_new_tokens=length,
                pad_token_id=self._tokenizer.pad_token_id if self._tokenizer.pad_token_id is not None else 0,
                **self._reading(),
            )
        reply = said_1T[0] if self._encodes else said_1T[0, len(kept) :]
        if self._encodes:
            return ModelReply(turn_of_text(self._tokenizer.decode(reply, skip_special_tokens=True)))
        ended = len(reply) < length or int(reply[-1]) in ends_of(self._tokenizer, self.model)
        parted = part_thinking(decode_marked(self._tokenizer, reply.tolist()), begun=thinks, ended=ended)
        finish_reason = "tool_calls" if is_tool_call(parted.reply) else "stop" if ended and parted.closed else "length"
        answer = Answer(parted.reply, finish_reason, len(kept), len(reply), reasoning=parted.reasoning)
        return ModelReply(turn_of_text(answer.text), answer)

    def _reading(self) -> dict[str, Any]:
        """Return the options of decoding a causal model: its ends, and its cache if that can be continued."""
        if self._encodes:
            return {}
        return {"eos_token_id": list(ends_of(self._tokenizer, self.model)), "use_cache": continues_reading(self.model)}

    def _asked(self, turns: list[list[str]]) -> tuple[list[int], bool]:
        """Return the tokens that the model is given, and whether they end with a start of thinking."""
        texts = [" ".join(turn) for turn in turns]
        if self._encodes:
            ids: list[int] = self._tokenizer("\n".join(texts)).input_ids
            return ids, False
        if self._tokenizer.chat_template and len(texts) % 2 == 0:
            # Templates want a user's turn first and last: with an even number the oldest two are one.
            texts = ["\n".join(texts[:2]), *texts[2:]]
        text = write_prompt(self._tokenizer, tuple(Message(_ROLES[number % 2], words) for number, words in enumerate(texts)))
        ids = self._tokenizer(text, add_special_tokens=False).input_ids
        return ids, opens_thinking(text)


class LocalChatResponder(ChatResponder):
    """A local causal model that answers as a chat model does, and by beams.

    Args:
        chat_model: the model that answers, perhaps one that keeps its answers.
        local: the same with its weights, which the beams read.
        max_tokens: of a reply at most.
    """

    decoders = (*ChatResponder.decoders, "beam")

    def __init__(self, chat_model: ChatModel, local: LocalChatModel, max_tokens: int = MAX_REPLY_TOKENS) -> None:
        super().__init__(chat_model, max_tokens)
        self._beams = HuggingFaceResponder(local.model, local.tokenizer, max_tokens)

    def replies_with_answers(
        self, contexts: Sequence[Turns], *, decoder: DecoderSettings = GREEDY, seeds: Sequence[int] = ()
    ) -> list[ModelReply]:
        if decoder.rule == "beam":
            return self._beams.replies_with_answers(contexts, decoder=decoder)
        return super().replies_with_answers(contexts, decoder=decoder, seeds=seeds)


def load_local_responder(
    name: str, settings: ChatModelSettings = DEFAULT, *, answers: Path | None = None, max_tokens: int = MAX_REPLY_TOKENS
) -> HuggingFaceResponder | LocalChatResponder:
    """Return the responder of a local model; nothing is downloaded, no code of the model is run.

    Args:
        name: `hf:FOLDER`, as `save_pretrained` wrote it, or `gguf:FILE`.
        settings: precision, device, how many chats are read at once.
        answers: folder of a run in which a causal model's answers are kept; None keeps none.
        max_tokens: of a reply at most.

    Raises:
        ConfigError: a package is missing, there is no such device, or a causal model's tokenizer has no end of a reply or no
            place for what the user says.
        CheckpointError: there is no model that can be read.
    """
    if is_encoder_decoder(name):
        tokenizer, model = read_placed(name, lambda config: "AutoModelForSeq2SeqLM", settings, settings.device)
        return HuggingFaceResponder(model, tokenizer, max_tokens)
    local = load_local(name, settings)
    return LocalChatResponder(kept_answers(local, answers), local, max_tokens)
