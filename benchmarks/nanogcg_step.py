"""A step of nanoGCG itself, clocked.

`chat_triggers.py` runs it with the interpreter of an environment that has nanoGCG, which needs older libraries than Parley:

    python -m venv other; other/bin/pip install nanogcg gguf accelerate       # and torch for this machine
    python -m benchmarks.chat_triggers --nanogcg other/bin/python

It reads nothing of Parley. Arguments: the model's folder, its GGUF file, the reply, searched tokens, candidates. It prints
one JSON line: the processor's seconds for the losses of a step's candidates, these candidates, and their losses.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any


def main(folder: str, file: str, reply: str, length: int, candidates: int) -> dict[str, Any]:
    """Run the step."""
    import torch
    from nanogcg import gcg as nanogcg  # type: ignore[import-not-found]  # of the other environment
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    # The first token of a text begins every turn of this template: nanoGCG takes it out of templates, and tokenizers add one.
    tokenizer.add_bos_token, tokenizer.bos_token = False, None
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, torch_dtype=torch.float32).eval()
    config = nanogcg.GCGConfig(
        num_steps=1, optim_str_init=" x" * length, search_width=candidates, batch_size=candidates,
        filter_ids=False, seed=1, verbosity="ERROR",
    )  # fmt: skip
    tried, losses, seconds = list[Any](), list[Any](), list[float]()
    sample, score = nanogcg.sample_ids_from_grad, nanogcg.GCG._compute_candidates_loss_original

    def sampled(*arguments: Any, **named: Any) -> Any:
        tried.append(sample(*arguments, **named))
        return tried[-1]

    def scored(self: Any, search_batch_size: int, input_embeds: Any) -> Any:
        start = time.process_time()
        losses.append(score(self, search_batch_size, input_embeds))
        seconds.append(time.process_time() - start)
        return losses[-1]

    nanogcg.sample_ids_from_grad, nanogcg.GCG._compute_candidates_loss_original = sampled, scored
    nanogcg.GCG(model, tokenizer, config).run("{optim_str}", reply)
    # The first losses are those of the input that it starts from.
    return {"seconds": seconds[1], "tried": tried[0].tolist(), "losses": losses[1].tolist()}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], sys.argv[3], *map(int, sys.argv[4:]))))
