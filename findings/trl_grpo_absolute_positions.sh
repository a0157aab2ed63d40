#!/usr/bin/env bash
# trl: GRPO of a GPT-2 trains other log probabilities than those that its replies were drawn from, where prompts have unequal lengths.
#
# Guess before the first run: model(ids, attention_mask) of a batch that is padded at the left gives each row's own logits, as `generate`
#   does; so the log probabilities in GRPO's loss are those of the replies that were drawn, whatever the model.
# Seen with trl 1.16.0, transformers 5.23.0: a GPT-2 counts positions from the first padding token on, unless it is given position_ids.
#   `generate` gives them, the loss of GRPOTrainer does not. In a batch of the prompts "no" and one of seven words, the log probabilities
#   of replies to "no" are off by up to 4 nats; those of the longest prompt are right to 1e-6. For a Llama, whose positions are
#   relative, all are right. Nothing is said.
# Why it matters: DialoGPT is a GPT-2, as other small models of dialogue are. Each short prompt gets the gradient of another context.
#   Give prompts of one length, or one prompt in each batch. RLOO has the same lines (read, not run).
# Needs a Python (PYTHON) with torch, transformers and accelerate. Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-python3}
packages=(trl==1.16.0 datasets==5.2.0 multiprocess==0.70.19 dill==0.4.1 xxhash==4.1.0)
"$python" -m pip install --quiet --no-deps --target "$folder/packages" "${packages[@]}" 2> /dev/null
cd "$folder"
HF_HUB_OFFLINE=1 HF_HOME=$folder/hub PYTHONPATH=$folder/packages "$python" -W ignore - 2> "$folder/said" <<'PYTHON' || { cat "$folder/said"; exit 1; }
from importlib.metadata import version

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, PrinterCallback
from trl import GRPOConfig, GRPOTrainer

print(*(f"{name} {version(name)}" for name in ("trl", "transformers", "torch")))
WORDS = "[UNK] [PAD] [EOS] the price is ten nine fine no deal i take it".split()
tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", eos_token="[EOS]")
data = Dataset.from_list([{"prompt": "no"}, {"prompt": "the price is nine i take it"}])
marks = {"vocab_size": len(WORDS), "eos_token_id": 2, "pad_token_id": 1, "bos_token_id": 2, "initializer_range": 0.3}


def gpt2():
    drops = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=64, **drops, **marks))


def llama():
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(max_position_embeddings=64, **sizes, **marks))


class RecordingTrainer(GRPOTrainer):
    """Keeps what the loss reads, and the log probabilities that it gets."""

    def _get_per_token_logps_and_entropies(self, model, input_ids, attention_mask, logits_to_keep, *rest, **more):
        result = super()._get_per_token_logps_and_entropies(model, input_ids, attention_mask, logits_to_keep, *rest, **more)
        self.recorded = (input_ids, attention_mask, logits_to_keep, result[0].detach())
        return result


def reward(completions, **more):
    return [float(len(completion)) for completion in completions]


def worst(make):
    """The largest differences to the log probabilities of each row alone: of padded rows, and of the longest."""
    torch.manual_seed(0)
    model = make()
    options = {"max_steps": 1, "per_device_train_batch_size": 8, "num_generations": 4, "max_completion_length": 5}
    arguments = GRPOConfig("run", learning_rate=0.0, report_to=[], use_cpu=True, bf16=False, disable_tqdm=True, save_strategy="no", **options)
    trainer = RecordingTrainer(model=model, reward_funcs=reward, args=arguments, train_dataset=data, processing_class=tokenizer)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    model.eval()
    differences = {"padded": [], "longest": []}
    for ids, mask, got in zip(*(trainer.recorded[place] for place in (0, 1, 3)), strict=True):
        kept = mask[-trainer.recorded[2] :].bool()
        text, length = ids[mask.bool()], int(kept.sum())
        with torch.no_grad():
            own = torch.log_softmax(model(text[None]).logits[0], -1)[-length - 1 : -1].gather(-1, text[-length:, None])[:, 0]
        differences["longest" if mask[0] else "padded"].append(float((own - got[kept]).abs().max()))
    assert all(len(values) == 4 for values in differences.values())
    found = {name: max(values) for name, values in differences.items()}
    print(f"{make.__name__:6} largest difference in nats:", {name: f"{value:.2g}" for name, value in found.items()})
    return found


relative, absolute = worst(llama), worst(gpt2)
assert relative["padded"] < 1e-4 and relative["longest"] < 1e-4 and absolute["longest"] < 1e-4
assert absolute["padded"] > 0.5
print("as seen")
PYTHON
