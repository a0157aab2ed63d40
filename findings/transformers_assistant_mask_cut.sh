#!/usr/bin/env bash
# transformers: a conversation that is cut at the left has no assistant tokens at all, if the first reply loses its beginning.
#
# Guess before the first run: apply_chat_template(return_assistant_tokens_mask=True, truncation=True) marks those tokens of the
#   assistant's replies that are left after the cut, on whichever side it is.
# Seen with transformers 5.23.0, tokenizers 0.23.3: with truncation_side="right" it does. With "left", two replies and a cut that leaves the
#   second one whole, all marks are 0. The search for marks ends at the first reply whose first token is gone, which is right for a cut
#   at the end alone. A cut in front of the first reply loses nothing. Nothing is said.
# Why it matters: long dialogues are cut at the left, to keep the last reply. Labels by this mask then train on none of the longest
#   dialogues, their loss is 0 or NaN, and a mean over the batch hides it. Cut the tokens and the mask after the call.
# Needs a Python (PYTHON) with transformers and jinja2. Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-}
if [ -z "$python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet "transformers==5.23.0" "tokenizers==0.23.3" "jinja2==3.1.6" 2> /dev/null
  python=$folder/venv/bin/python
fi
cd "$folder"
HF_HUB_OFFLINE=1 "$python" -W ignore - 2> "$folder/errors" <<'PYTHON' || { cat "$folder/errors"; exit 1; }
from importlib.metadata import version

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

print(*(f"{name} {version(name)}" for name in ("transformers", "tokenizers")))
WORDS = "[UNK] [PAD] <user> <assistant> <end> the price is ten nine fine no deal i take it".split()
inner = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="[UNK]", pad_token="[PAD]", eos_token="<end>")
tokenizer.chat_template = (
    "{% for message in messages %}{% if message.role == 'user' %}<user> {{ message.content }} <end> {% else %}"
    "<assistant> {% generation %}{{ message.content }} <end>{% endgeneration %} {% endif %}{% endfor %}"
)
turns = [("user", "the price is ten"), ("assistant", "no deal"), ("user", "nine"), ("assistant", "fine i take it")]
dialogue = [{"role": role, "content": text} for role, text in turns]


def marked(side, length=None):
    """The tokens that are left, and those of them that are marked."""
    tokenizer.truncation_side = side
    options = {"truncation": True, "max_length": length} if length else {}
    made = tokenizer.apply_chat_template(dialogue, return_assistant_tokens_mask=True, return_dict=True, **options)
    tokens = tokenizer.convert_ids_to_tokens(made["input_ids"])
    marks = [token for token, mark in zip(tokens, made["assistant_masks"], strict=True) if mark]
    print(f"{side}, {length}: {len(tokens)} tokens {tokens}; marked {marks}")
    return tokens, marks


FIRST, SECOND = ["no", "deal", "<end>"], ["fine", "i", "take", "it", "<end>"]
assert marked("right")[1] == marked("left")[1] == FIRST + SECOND
assert marked("right", 12)[1] == FIRST and marked("right", 8)[1] == ["no"]
assert marked("left", 12)[1] == FIRST + SECOND
for length in (11, 8, 6):
    tokens, marks = marked("left", length)
    assert tokens[-5:] == SECOND and marks == []
print("as seen")
PYTHON
