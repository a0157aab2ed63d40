#!/usr/bin/env bash
# transformers: a decoder that scores texts reads its score before the end token where that is the padding token, too, and ignores the mask.
#
# Guess before the first run: the score of a text is read at the last token that attention_mask marks, the end token included; input_ids
#   and their embeddings (inputs_embeds) give the same score.
# Seen with transformers 5.23.0, LlamaForSequenceClassification with weights that are drawn: it reads at the last token that is not
#   pad_token_id, whatever the mask says. With one token for end and padding, "a b c", "a b c END" and "a b c END END" have one
#   score, that of c. With a padding token of its own the three scores differ, as do the positions. A token that the mask hides is where
#   the score is read, unless it is the padding token. The embeddings of "a b c END" are read at END, so they give another score
#   than the same ids; of this a warning is logged, once.
# Why it matters: a reward model or judge with pad = eos cannot tell a reply that ended from one that was cut off, whatever it was trained
#   on. An attack by gradients goes through inputs_embeds, so it improves another number than the one that is measured on its ids.
#   Give the model a padding token of its own.
# Needs a Python (PYTHON) for which torch 2.13.0 exists. Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-}
if [ -z "$python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet "torch==2.13.0" 2> /dev/null
  "$folder/venv/bin/pip" install --quiet "transformers==5.23.0" "numpy==2.4.6" 2> /dev/null
  python=$folder/venv/bin/python
fi
HF_HUB_OFFLINE=1 "$python" -W ignore - 2> "$folder/said" <<'PYTHON' || { cat "$folder/said"; exit 1; }
import torch
import transformers
from transformers import LlamaConfig, LlamaForSequenceClassification

print("transformers", transformers.__version__, "torch", torch.__version__)
END, A, B, C, OTHER = 2, 5, 6, 7, 9


def build(pad):
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=20, initializer_range=0.2, eos_token_id=END, pad_token_id=pad, num_labels=1, **sizes)
    return LlamaForSequenceClassification(config).eval()


@torch.no_grad()
def score(model, tokens, mask=None, embed=False):
    ids = torch.tensor([tokens])
    given = {"inputs_embeds": model.get_input_embeddings()(ids)} if embed else {"input_ids": ids}
    return float(model(**given, attention_mask=torch.tensor([mask or [1] * len(tokens)])).logits)


@torch.no_grad()
def scores_by_position(model, tokens):
    return model.score(model.model(torch.tensor([tokens])).last_hidden_state)[0, :, 0].tolist()


def close(first, second):
    return abs(first - second) < 1e-4


texts = [A, B, C], [A, B, C, END], [A, B, C, END, END]
shared, own = build(END), build(1)
by_text = {name: [score(model, text) for text in texts] for name, model in (("pad = eos", shared), ("own pad", own))}
for name, scores in by_text.items():
    print(f"{name}: a b c, a b c END, a b c END END:", [round(value, 3) for value in scores])
positions = scores_by_position(shared, texts[1])
embedded = score(shared, texts[1], embed=True)
print("at each position of a b c END:", [round(value, 3) for value in positions], f"by embeddings {embedded:.3f}")
first, ended, twice = by_text["pad = eos"]
assert close(first, ended) and close(first, twice) and close(ended, positions[2]) and not close(ended, positions[3])
assert close(embedded, positions[3])
first, ended, twice = by_text["own pad"]
assert not close(first, ended) and not close(ended, twice) and close(score(own, texts[1], embed=True), ended)
hidden = score(own, [A, B, C, OTHER], mask=[1, 1, 1, 0])
print(f"own pad: a b c and a token that the mask hides {hidden:.3f}, a b c {first:.3f}")
assert not close(hidden, first)
print("as seen")
PYTHON
