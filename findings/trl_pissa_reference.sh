#!/usr/bin/env bash
# trl, peft: DPO of an adapter that begins with PiSSA or OLoRA has another reference than the base model, or another policy.
#
# Guess before the first run: `with model.disable_adapter()` gives the base model, as peft documents it, however the adapter was begun.
#   So at the first step of DPO policy and reference are equal: margins 0, a loss of ln 2. It is the same whether trl makes the adapter
#   (peft_config) or is given the model with it.
# Seen with trl 1.16.0, peft 0.21.2, transformers 5.23.0: init_lora_weights="pissa" and "olora" take the principal part out of the base
#   weights, and put it into the adapter. With a peft_config the reference is the model without its adapter, which is what was left
#   over: before any training the margins are .21 and -.27, and the loss is .59 and .83. If trl is given get_peft_model(model, config),
#   it adds a second adapter "ref" by the same configuration, which takes another principal part out; then it copies the first one into
#   it. Now margins are 0 and the loss is ln 2, but both sides are another model: a chosen reply has -19.8 nats instead of -16.5.
#   With plain LoRA all is as guessed. No error and no warning tells. GRPO, KTO and RLOO have the same two branches (read, not run).
# Why it matters: the penalty that should hold a policy near its start pulls it to a broken model, and the rewards in the log of the
#   first step are not those of a policy that has learnt nothing. Give `ref_model`, or begin with plain LoRA.
# Needs a Python (PYTHON) with torch, transformers and accelerate. Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-python3}
packages=(trl==1.16.0 peft==0.21.2 datasets==5.2.0 multiprocess==0.70.19 dill==0.4.1 xxhash==4.1.0)
"$python" -m pip install --quiet --no-deps --target "$folder/packages" "${packages[@]}" 2> /dev/null
cd "$folder"
HF_HUB_OFFLINE=1 HF_HOME=$folder/hub PYTHONPATH=$folder/packages "$python" -W ignore - 2> "$folder/said" <<'PYTHON' || { cat "$folder/said"; exit 1; }
import math
from importlib.metadata import version

import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, PrinterCallback
from trl import DPOConfig, DPOTrainer

print(*(f"{name} {version(name)}" for name in ("trl", "peft", "transformers", "torch")))
WORDS = "[UNK] [PAD] [EOS] the price is ten nine fine no deal i take it".split()
tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", eos_token="[EOS]")
data = Dataset.from_list([{"prompt": "the price is ten ", "chosen": "fine i take it", "rejected": "no deal"}] * 4)
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "initializer_range": 0.2}
names = ["q_proj", "v_proj", "o_proj", "up_proj"]


def first_step(init, given=False, reference=False):
    """The log of the first step; its losses and log probabilities are those before the step."""
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=len(WORDS), max_position_embeddings=64, eos_token_id=2, pad_token_id=1, **sizes)
    model, other = LlamaForCausalLM(config), LlamaForCausalLM(config)
    other.load_state_dict(model.state_dict())
    lora = LoraConfig(r=8, lora_alpha=8, target_modules=names, init_lora_weights=init)
    options = {"max_steps": 1, "per_device_train_batch_size": 4, "learning_rate": 1e-6, "logging_steps": 1, "save_strategy": "no"}
    arguments = DPOConfig("run", report_to=[], use_cpu=True, bf16=False, disable_tqdm=True, **options)
    trainer = DPOTrainer(
        get_peft_model(model, lora) if given else model, ref_model=other if reference else None, args=arguments,
        train_dataset=data, processing_class=tokenizer, peft_config=None if given else lora,
    )  # fmt: skip
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return trainer.state.log_history[0]


def show(name, init, **options):
    log = first_step(init, **options)
    loss, margin, chosen = log["loss"], log["rewards/margins"], log["logps/chosen"]
    print(f"{name:28} {init!s:6} loss {loss:.3f}, margin {margin:+.3f}, log probability of the chosen reply {chosen:.2f}")
    return abs(loss - math.log(2)) < 1e-4, abs(margin) < 1e-4, chosen


plain = show("made by trl", True)
assert plain[:2] == (True, True) and show("given to trl", True, given=True) == plain
for init in ("pissa", "olora"):
    made, given = show("made by trl", init), show("given to trl", init, given=True)
    assert made[:2] == (False, False) and abs(made[2] - plain[2]) < 1e-3, "another reference"
    assert given[:2] == (True, True) and abs(given[2] - plain[2]) > 1, "another policy"
    told = show("made by trl, ref_model", init, reference=True)
    assert told[:2] == (True, True) and abs(told[2] - plain[2]) < 1e-3
print("as seen")
PYTHON
