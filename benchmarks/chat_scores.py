"""Choices of a negotiation that a second of processor scores, behind a talk that was played, against reading each one whole.

A negotiator on SmolLM2-135M-Instruct answers the last message of a talk, as in play, and then scores every legal choice. The
reference reads talk and choice whole, as many side by side as ours, with the logits of the choice alone; it plays nothing. So
"ratio" compares the seconds of a choice where the talk has been read with those where nothing has; "cold" is the ratio where
ours has read nothing either. "identical": log probabilities are equal within 1e-4 of their size.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import BenchmarkOptions, Clock, Result, run
from benchmarks.plain_chat import smollm2
from benchmarks.plain_gcg import plain_layers
from parley.engine.chat.games.negotiation import seat_dialogue
from parley.envs.negotiation.corpora.catalogue import find_negotiations
from parley.policies.chat.local import LocalChatModel, load_local
from parley.policies.chat.model import Chat, ChatDecoding
from parley.policies.chat.negotiator import choices
from parley.policies.chat.settings import ChatModelSettings


@dataclass(frozen=True)
class Options(BenchmarkOptions):
    """Dialogues of the embedded corpus, and who scores their choices."""

    model: str = ""
    """hf:FOLDER or gguf:FILE; SmolLM2-135M-Instruct when empty."""
    dialogues: int = 8
    """Dialogues; two in the quick form."""
    at_once: int = 16
    """Texts that are read side by side."""


@torch.inference_mode()
def score_plainly(model: LocalChatModel, chat: Chat, replies: list[str], at_once: int) -> list[float]:
    """Return the log probability of each reply, every text read whole beside others, padded behind."""
    before, scores = model.prompts.ids(chat), list[float]()
    for start in range(0, len(replies), at_once):
        piece = [model.prompts.reply_ids(reply) for reply in replies[start : start + at_once]]
        length = max(map(len, piece))
        rows = torch.tensor([[*before, *ids, *[0] * (length - len(ids))] for ids in piece])
        logits = model.model(input_ids=rows, use_cache=False, logits_to_keep=length + 1).logits.float().log_softmax(-1)
        scores += [float(logits[row, range(len(ids)), ids].sum()) for row, ids in enumerate(piece)]
    return scores


def measure(options: Options) -> Result:
    """Score all choices in three ways."""
    address, settings = options.model or smollm2(), ChatModelSettings(batch_size=options.at_once)
    corpus: Any = find_negotiations("embedded").read(Path()).require_whole().splits["train"]
    dialogues = [seat_dialogue(record) for record in corpus[: 2 if options.quick else options.dialogues]]
    legal = [choices(dialogue.domain, dialogue.counts) for dialogue in dialogues]
    model = load_local(address, settings)
    # What a model is able to is tried once.
    model.score([dialogues[0].moves[0][0]], ["no"])
    warm, cold, plain = Clock(), Clock(), Clock()
    scores: dict[str, list[float]] = {"warm": [], "cold": [], "plain": []}
    for dialogue, answers in zip(dialogues, legal, strict=True):
        asked = [dialogue.question] * len(answers)
        with cold.running():
            scores["cold"] += [score.nats for score in model.score(asked, answers)]
        model.answer([dialogue.moves[-1][0]], decoding=ChatDecoding(max_tokens=1))
        with warm.running():
            scores["warm"] += [score.nats for score in model.score(asked, answers)]
        with plain.running(), plain_layers(model.model):
            scores["plain"] += score_plainly(model, dialogue.question, answers, options.at_once)
    nats = {name: torch.tensor(values) for name, values in scores.items()}
    return Result(
        ratio=plain.seconds / warm.seconds,
        identical=all(torch.allclose(nats[name], nats["plain"], rtol=1e-4, atol=1e-4) for name in ("warm", "cold")),
        figures={
            "ours_s": warm.seconds,
            "cold_s": cold.seconds,
            "reference_s": plain.seconds,
            "cold": plain.seconds / cold.seconds,
            "choices": len(nats["plain"]),
            "dialogues": len(dialogues),
        },
    )


if __name__ == "__main__":
    run("chat_scores", Options, measure)
