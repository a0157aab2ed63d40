#!/usr/bin/env bash
# transformers: guidance_scale is right in greedy search alone; beams and assisted decoding give texts and scores of something else.
#
# Guess before the first run: assisted decoding (by a model, or prompt_lookup_num_tokens) gives the greedy text under any processor of
#   logits, so under guidance_scale, too; the score of a beam is the sum of the guided log probabilities of its tokens.
# Seen with transformers 5.23.0, torch 2.13.0, a Llama with weights that are drawn: greedy search with guidance_scale=1.5 equals a search
#   that reads everything anew at each step, in 8 of 8 prompts. Assisted by the model itself or by lookup it does in at most 2. With 4
#   beams no sequences_scores is that of its text: they are off by 5 to 16 nats, with use_cache=False as well. The processor
#   reads the text without its prompt on a cache of its own. It appends one token at each call, so it never learns which candidates were
#   refused, nor which beam was gone on with. 13 other processors under assisted decoding (run once, not here), and beams without
#   guidance, are as guessed. Nothing is said.
# Why it matters: guidance is how a model is steered towards or away from a prompt (negative_prompt_ids). A faster decoding then measures
#   another steering, and best-of-beams by score chooses by chance. Use one beam and no assistant with it.
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
torch.manual_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "initializer_range": 0.3}
config = LlamaConfig(vocab_size=40, max_position_embeddings=64, eos_token_id=None, pad_token_id=0, bos_token_id=1, **sizes)
model = LlamaForCausalLM(config).eval()
draws = torch.Generator().manual_seed(1)
prompts = [torch.randint(3, 40, (1, length), generator=draws) for length in (3, 12, 5, 9, 2, 7, 4, 6)]
SCALE, NEW = 1.5, 12


@torch.no_grad()
def guided(text, length, scale):
    """Scores of the next token; without its prompt the text begins with the prompt's last token, as in transformers."""
    whole, without = (torch.log_softmax(model(part[None]).logits[0, -1], -1) for part in (text, text[length - 1 :]))
    return scale * (whole - without) + without


def own_search(prompt):
    text = prompt[0]
    for _ in range(NEW):
        text = torch.cat([text, guided(text, prompt.shape[1], SCALE).argmax()[None]])
    return text.tolist()


def generated(prompt, scale=SCALE, **options):
    settings = {"do_sample": False, "max_new_tokens": NEW, "length_penalty": 0.0, "guidance_scale": scale if scale != 1 else None}
    return model.generate(
        prompt, attention_mask=torch.ones_like(prompt), return_dict_in_generate=True, output_scores=True, **settings, **options
    )


def equal(name, **options):
    """In how many prompts the text is that of the own search."""
    count = sum(generated(prompt, **options).sequences[0].tolist() == own_search(prompt) for prompt in prompts)
    print(f"{name}: text of the guided greedy search in {count} of {len(prompts)}")
    return count


def score_errors(scale, **options):
    """How far each score of the best beam is from the sum over its own text."""
    errors = []
    for prompt in prompts:
        result, length = generated(prompt, scale, num_beams=4, **options), prompt.shape[1]
        text = result.sequences[0]
        true = sum(float(guided(text[:end], length, scale)[text[end]]) for end in range(length, len(text)))
        errors.append(abs(true - float(result.sequences_scores[0])))
    print(f"4 beams, guidance_scale {scale}, {options}: scores off by", [f"{error:.2g}" for error in errors])
    return errors


assert equal("greedy") == len(prompts)
assert equal("assisted by itself", assistant_model=model) <= 2
assert equal("assisted by lookup", prompt_lookup_num_tokens=5) <= 2
assert max(score_errors(1.0)) < 1e-3
for cache in (True, False):
    errors = score_errors(SCALE, use_cache=cache)
    assert max(errors) > 1 and sum(error > 0.01 for error in errors) >= 6
print("as seen")
PYTHON
