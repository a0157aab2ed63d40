#!/usr/bin/env bash
# transformers: compute_transition_scores adds the log probability of padding to every sampled answer that ended before the longest one.
#
# Guess before the first run: with normalize_logits=True the sum over a row is the log probability of the answer that stands in it, its end
#   included; behind the end the scores are 0, as they are for beams.
# Seen with transformers 5.23.0, torch 2.13.0, a Llama with weights that are drawn: of 40 sampled answers of at most 16 tokens the one that
#   does not end is right to 1e-5. The other 39 are too low, by 17 to 79 nats: behind its end a row goes on with padding, and the model's
#   log probability of each padding token is counted. So the sum depends on how long the others were. Beams are right, as their scores
#   behind the end are 0. Under a mask of the tokens up to the end all are right. Nothing is said.
# Why it matters: best-of-n, rerankers and importance weights take this sum. Answers that end early lose to those that ramble, by how far
#   the longest of the batch rambled. Multiply by the mask first.
# Needs a Python (PYTHON) with torch and transformers. Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-}
if [ -z "$python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet "torch==2.13.0" "transformers==5.23.0" "tokenizers==0.23.3" 2> /dev/null
  python=$folder/venv/bin/python
fi
cd "$folder"
HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 "$python" -W ignore - 2> "$folder/errors" <<'PYTHON' || { cat "$folder/errors"; exit 1; }
from importlib.metadata import version

import torch
from transformers import LlamaConfig, LlamaForCausalLM

print(*(f"{name} {version(name)}" for name in ("transformers", "torch")))
END, PADDING, NEW = 2, 0, 16
torch.manual_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "initializer_range": 0.3}
model = LlamaForCausalLM(LlamaConfig(vocab_size=40, max_position_embeddings=64, eos_token_id=END, pad_token_id=PADDING, **sizes)).eval()
with torch.no_grad():
    model.lm_head.weight[END] *= 1.5
prompt = torch.randint(3, 40, (1, 5))


def own(text):
    """The log probability of an answer behind the prompt."""
    with torch.no_grad():
        scores = torch.log_softmax(model(text[None]).logits[0, prompt.shape[1] - 1 : -1], -1)
    return float(scores.gather(-1, text[prompt.shape[1] :, None]).sum())


def errors(name, normalize, **options):
    """How far each row's sum is from the answer's log probability, and the same under the mask; of short rows and of full ones."""
    result = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=NEW, return_dict_in_generate=True, output_scores=True, **options
    )
    scores = model.compute_transition_scores(
        result.sequences, result.scores, getattr(result, "beam_indices", None), normalize_logits=normalize
    )
    off = {"short": [], "full": [], "masked": []}
    for row, values in zip(result.sequences, scores, strict=True):
        answer = row[prompt.shape[1] :].tolist()
        length = answer.index(END) + 1 if END in answer else len(answer)
        truth = own(row[: prompt.shape[1] + length])
        off["short" if length < len(answer) else "full"].append(float(values.sum()) - truth)
        off["masked"].append(float(values[:length].sum()) - truth)
    print(f"{name}:", {kind: (len(few), f"{min(few, default=0):.3g} to {max(few, default=0):.3g}") for kind, few in off.items()})
    return off


torch.manual_seed(1)
drawn = errors("sampled", True, do_sample=True, top_k=0, num_return_sequences=40)
assert len(drawn["short"]) >= 10 and max(drawn["short"]) < -1e-3 and min(drawn["short"]) < -20
assert drawn["full"] and max(map(abs, drawn["full"])) < 1e-3 and max(map(abs, drawn["masked"])) < 1e-3
beams = errors("beams", False, do_sample=False, num_beams=6, num_return_sequences=6)
assert beams["short"] and max(map(abs, beams["short"] + beams["full"])) < 1e-3
print("as seen")
PYTHON
