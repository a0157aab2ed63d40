#!/usr/bin/env bash
# transformers: with scaled rotary positions ("dynamic", "longrope") a text has other logits beside a longer text, or after one.
#
# Guess before the first run: the logits of a text depend on its own tokens alone. A longer text in the same batch, padded at the right and
#   masked, changes nothing, nor does a text that was read before; `generate` has the logits of one forward pass over its answer.
# Seen with transformers 5.23.0, torch 2.13.0, a Llama and a Phi-3 with weights that are drawn, trained length 16, texts of 10, 20 and 60
#   tokens: by rope_type "default" and "linear" all hold to 1e-4. In the Phi-3, whose type is "longrope", the text of 10 is off by 5.7
#   beside the one of 20, as the longest row decides for all which frequencies are taken. With "dynamic" it is off by .2. There the text
#   of 20 is off by 1.8 once the one of 60 was read, in any earlier call, and is right again after a text below 16: the frequencies
#   of the longest text stay. An answer that crosses 16 has other logits than a forward pass, as its first tokens were read before the
#   switch. The code tells of the switch; that it is one for the whole batch, or stays, is said nowhere.
# Why it matters: perplexities, rewards of judges and log probabilities of a policy then depend on batch size, sorting and what was read
#   before. A ratio of PPO or GRPO, whose old log probabilities come from `generate` or another batch, is not 1 for the same weights.
#   Sort by length, with no batch across the trained length, read one short text before each long one, or take a fixed scaling
#   ("linear", "yarn", "llama3").
# Needs a Python (PYTHON) with torch and transformers. Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-}
if [ -z "$python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet "torch==2.13.0" 2> /dev/null
  "$folder/venv/bin/pip" install --quiet "transformers==5.23.0" 2> /dev/null
  python=$folder/venv/bin/python
fi
cd "$folder"
HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 "$python" -W ignore - 2> "$folder/errors" <<'PYTHON' || { cat "$folder/errors"; exit 1; }
import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM, Phi3Config, Phi3ForCausalLM

print("transformers", transformers.__version__, "torch", torch.__version__)
TRAINED, LONGEST = 16, 64
sizes = {"vocab_size": 40, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
scaled = {"rope_theta": 10000.0, "factor": 4.0}
factors = {"short_factor": [1.0] * 4, "long_factor": [2.0, 3.0, 4.0, 5.0]}
longrope = {"rope_type": "longrope", "original_max_position_embeddings": TRAINED, "partial_rotary_factor": 1.0}
ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
WAYS = {
    "default": (LONGEST, {"rope_type": "default", "rope_theta": 10000.0}),
    "linear": (LONGEST, {"rope_type": "linear"} | scaled),
    "dynamic": (TRAINED, {"rope_type": "dynamic"} | scaled),
    "longrope": (LONGEST, longrope | scaled | factors),
}
draws = torch.Generator().manual_seed(1)
short, middle, long = (torch.randint(3, 40, (1, length), generator=draws) for length in (10, 20, 60))


@torch.no_grad()
def differences(positions, rope):
    """Largest differences of logits from those of the text alone, read by a fresh model."""
    torch.manual_seed(0)
    settings = sizes | ids | {"initializer_range": 0.3, "max_position_embeddings": positions, "rope_parameters": rope}
    if rope["rope_type"] == "longrope":
        model = Phi3ForCausalLM(Phi3Config(**settings, original_max_position_embeddings=TRAINED)).eval()
    else:
        model = LlamaForCausalLM(LlamaConfig(**settings)).eval()

    def read(ids, **more):
        return model(ids, use_cache=False, **more).logits

    def beside(text, other):
        """The logits of a text that is padded at the right, beside a longer one."""
        padding = other.shape[1] - text.shape[1]
        batch = torch.cat([torch.nn.functional.pad(text, (0, padding)), other])
        mask = torch.ones_like(batch)
        mask[0, text.shape[1] :] = 0
        return read(batch, attention_mask=mask)[:1, : text.shape[1]]

    def off(one, other):
        return (one - other).abs().max().item()

    alone = {"short": read(short), "middle": read(middle)}
    largest = {"short beside middle": off(beside(short, middle), alone["short"])}
    read(short)
    largest["short beside one as short"] = off(beside(short, middle[:, :12]), alone["short"])
    read(long)
    largest["middle after long"] = off(read(middle), alone["middle"])
    largest["short after long"] = off(read(short), alone["short"])
    largest["middle after short"] = off(read(middle), alone["middle"])
    read(short)
    options = {"max_new_tokens": 10, "do_sample": False, "eos_token_id": None, "output_logits": True, "return_dict_in_generate": True}
    answer = model.generate(short, **options)
    read(short)
    largest["answer across 16"] = off(torch.stack(answer.logits, 1), read(answer.sequences)[:, short.shape[1] - 1 : -1])
    return largest


for way, (positions, rope) in WAYS.items():
    largest = differences(positions, rope)
    print(f"{way}:", ", ".join(f"{name} {value:.4f}" for name, value in largest.items()))
    changed = {name for name, value in largest.items() if value > 0.1}
    assert all(largest[name] < 1e-4 for name in largest if name not in changed)
    expected = {
        "dynamic": {"short beside middle", "middle after long", "answer across 16"},
        "longrope": {"short beside middle", "answer across 16"},
    }
    assert changed == expected.get(way, set())
print("as seen")
PYTHON
