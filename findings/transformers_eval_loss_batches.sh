#!/usr/bin/env bash
# transformers: the eval_loss of Trainer is another number for another batch size, where texts have unequal lengths.
#
# Guess before the first run: evaluate() gives the mean loss over tokens, from which perplexity is taken, whatever
#   per_device_eval_batch_size is; training takes the mean over tokens of all accumulated batches, too.
# Seen with transformers 5.23.0, torch 2.13.0, a Llama with weights that are drawn and eight texts of 2 to 30 tokens: the mean over tokens
#   is 5.448. Batches of one give 4.938, of two 5.447, of four 5.434 and only one of eight 5.448. Each batch has the mean over its own
#   tokens, and these are averaged by the number of texts, so with batches of one a token of a short text counts up to 29 times as much.
#   Texts of one length give one number. Nothing is said.
# Why it matters: perplexities before and after an attack or a hardening, or of two models of which one needs smaller batches, are means of
#   other weights. Dialogues have short turns, so the difference is large. Sum the losses of tokens in compute_metrics, or take one
#   batch size for all.
# Needs a Python (PYTHON) with torch, transformers and accelerate. Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-}
if [ -z "$python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet "torch==2.13.0" "transformers==5.23.0" "accelerate==1.15.0" 2> /dev/null
  python=$folder/venv/bin/python
fi
cd "$folder"
HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 "$python" -W ignore - 2> "$folder/errors" <<'PYTHON' || { cat "$folder/errors"; exit 1; }
from importlib.metadata import version

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PrinterCallback, Trainer, TrainingArguments

print(*(f"{name} {version(name)}" for name in ("transformers", "torch")))
torch.manual_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "initializer_range": 0.5}
model = LlamaForCausalLM(LlamaConfig(vocab_size=16, max_position_embeddings=64, **sizes)).eval()
draws = torch.Generator().manual_seed(0)


def texts(lengths):
    return [{"input_ids": torch.randint(5, 16, (length,), generator=draws)} for length in lengths]


def collate(rows):
    padded = {"batch_first": True, "padding_side": "right"}
    ids = [row["input_ids"] for row in rows]
    return {
        "input_ids": torch.nn.utils.rnn.pad_sequence(ids, padding_value=1, **padded),
        "labels": torch.nn.utils.rnn.pad_sequence(ids, padding_value=-100, **padded),
        "attention_mask": torch.nn.utils.rnn.pad_sequence([torch.ones_like(one) for one in ids], padding_value=0, **padded),
    }


def token_losses(ids):
    with torch.no_grad():
        scores = torch.log_softmax(model(ids[None]).logits[0, :-1], -1)
    return -scores.gather(-1, ids[1:, None])[:, 0]


def compared(rows):
    """The mean over all tokens, that over the texts' means, and eval_loss by batch size."""
    losses = [token_losses(row["input_ids"]) for row in rows]
    over_tokens, over_texts = float(torch.cat(losses).mean()), float(torch.stack([one.mean() for one in losses]).mean())
    reported = {}
    for size in (1, 2, 4, 8):
        arguments = TrainingArguments("run", per_device_eval_batch_size=size, report_to=[], use_cpu=True, disable_tqdm=True)
        trainer = Trainer(model, arguments, eval_dataset=rows, data_collator=collate)
        trainer.remove_callback(PrinterCallback)
        reported[size] = trainer.evaluate()["eval_loss"]
    shown = {size: round(loss, 3) for size, loss in reported.items()}
    print(f"mean over tokens {over_tokens:.3f}, over texts {over_texts:.3f}, eval_loss by batch size {shown}")
    return over_tokens, over_texts, reported


over_tokens, over_texts, reported = compared(texts([2, 30, 3, 25, 4, 20, 2, 28]))
assert abs(reported[8] - over_tokens) < 1e-3 and abs(reported[1] - over_texts) < 1e-3 and abs(reported[1] - reported[8]) > 0.5
assert abs(reported[4] - over_tokens) > 0.005
over_tokens, _, reported = compared(texts([12] * 8))
assert max(abs(loss - over_tokens) for loss in reported.values()) < 1e-3
print("as seen")
PYTHON
