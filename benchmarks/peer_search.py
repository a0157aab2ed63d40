"""Searches of nanoGCG and TROPT themselves, clocked step by step.

`time_to_trigger.py` runs it with the interpreters of environments of their own, because both need other libraries than Parley:

    python -m venv nano; nano/bin/pip install nanogcg==0.3.0 transformers==4.47.1 gguf accelerate     # and torch, of a CPU
    python3.12 -m venv tropt; tropt/bin/pip install tropt==0.1.1 transformers==5.8.1 gguf

# TROPT 0.1.1 says that it runs on Python 3.10; it ends at its import below 3.12, where a slice has no hash.

It reads nothing of Parley. The one argument is a JSON object with peer, file (GGUF), prompt, target, start, candidates, steps
and seed. It prints one JSON line: of each step the processor's seconds since the search began, the loss, and the text. Settings
are those of each package but for steps, candidates, and the first text: lists of 256, one swap, prefix cache on, candidates
left out that would be read otherwise when they are typed. In float32, on one thread.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def read(file: str) -> tuple[Any, Any]:
    """Return the tokenizer and the model of a GGUF file."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(1)
    where = {"pretrained_model_name_or_path": str(Path(file).parent), "gguf_file": Path(file).name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    # The first token of a text begins every turn of this template: it is taken out of templates, and tokenizers add one.
    tokenizer.add_bos_token, tokenizer.bos_token = False, None
    return tokenizer, AutoModelForCausalLM.from_pretrained(**where, torch_dtype=torch.float32).eval()


def nanogcg(asked: dict[str, Any]) -> list[tuple[float, float, str]]:
    """Run nanoGCG."""
    from nanogcg import gcg  # type: ignore[import-not-found]  # of the other environment

    tokenizer, model = read(asked["file"])
    config = gcg.GCGConfig(
        num_steps=asked["steps"], optim_str_init=asked["start"], search_width=asked["candidates"], seed=asked["seed"],
        verbosity="ERROR",
    )  # fmt: skip
    steps, add = list[tuple[float, float, str]](), gcg.AttackBuffer.add

    def noted(self: Any, loss: Any, ids: Any) -> None:
        add(self, loss, ids)
        steps.append((time.process_time() - began, float(loss), tokenizer.decode(ids.flatten())))

    gcg.AttackBuffer.add = noted
    search, began = gcg.GCG(model, tokenizer, config), time.process_time()
    search.run(asked["prompt"] + "{optim_str}", asked["target"])
    return steps


def tropt(asked: dict[str, Any]) -> list[tuple[float, float, str]]:
    """Run the GCG recipe of TROPT."""
    from tropt.common import Targets  # type: ignore[import-not-found]  # of the other environment
    from tropt.loss import PrefillCELoss  # type: ignore[import-not-found]
    from tropt.model.huggingface.lm import LMHFModel  # type: ignore[import-not-found]
    from tropt.optimizer.gcg_optimizer import GCGOptimizer  # type: ignore[import-not-found]
    from tropt.recipe_hub.GCG__zou2023 import _GCG_TOKEN_CONSTRAINTS  # type: ignore[import-not-found]

    tokenizer, model = read(asked["file"])
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        loaded = LMHFModel(folder, device="cpu", use_prefix_cache=True, loaded_model=model)
    search = GCGOptimizer(
        loaded, PrefillCELoss(), seed=asked["seed"], num_steps=asked["steps"], n_candidates=asked["candidates"],
        token_constraints=_GCG_TOKEN_CONSTRAINTS,
    )  # fmt: skip
    steps, began = list[tuple[float, float, str]](), time.process_time()

    def noted(loss: float, trigger_str: str, **_: Any) -> None:
        steps.append((time.process_time() - began, float(loss), trigger_str))

    search.log = noted
    search.optimize_trigger(
        templates=[asked["prompt"] + "{{OPTIMIZED_TRIGGER}}"],
        targets=Targets(target_response_strs=[asked["target"]]),
        initial_trigger=asked["start"],
    )
    return steps


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    print(json.dumps({"nanogcg": nanogcg, "tropt": tropt}[given["peer"]](given)))
