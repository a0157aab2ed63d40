#!/usr/bin/env bash
# transformers: save_pretrained writes the truncation and padding of the tokenizer's last call into tokenizer.json.
#
# Guess before the first run: save_pretrained writes the tokenizer that was loaded; how some batch was cut and filled is a matter of that
#   call, so tokenizer.json is the same file before and after it.
# Seen with transformers 5.23.0, tokenizers 0.23.3: after a call with truncation, max_length=3 and padding="max_length" the saved
#   tokenizer.json cuts at 3 and fills to 3. AutoTokenizer reads that folder as if nothing were there, so a test by transformers shows no
#   difference. Whoever reads the file by `tokenizers` cuts every text at 3 tokens, and gets padding behind a single short one. A
#   call without truncation before the saving takes both out again. Nothing is said.
# Why it matters: a training cuts its batches, and saves the tokenizer beside the model at its end. Programs that read the file without
#   transformers, among them the StaticEmbedding of sentence-transformers (read, not run), then see the first words of a dialogue alone,
#   an attack beyond them does nothing, and the file's digest changes with the last batch. Call `tokenizer("")` before saving.
# Needs a Python (PYTHON) with transformers. Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-}
if [ -z "$python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet "transformers==5.23.0" "tokenizers==0.23.3" 2> /dev/null
  python=$folder/venv/bin/python
fi
cd "$folder"
HF_HUB_OFFLINE=1 "$python" -W error::UserWarning - 2> /dev/null <<'PYTHON'
import json
from importlib.metadata import version
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

print(*(f"{name} {version(name)}" for name in ("transformers", "tokenizers")))
WORDS = "[UNK] [PAD] the price is ten but take nine".split()
made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
made.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]", pad_token="[PAD]").save_pretrained("loaded")
LONG, SHORT = "the price is ten but take nine", "ten"


def saved(name, tokenizer):
    """The truncation and padding that stand in the saved file, and what both libraries read with it."""
    tokenizer.save_pretrained(name)
    file = json.loads(Path(name, "tokenizer.json").read_text(encoding="utf-8"))
    by_tokenizers, by_transformers = Tokenizer.from_file(f"{name}/tokenizer.json"), AutoTokenizer.from_pretrained(name)
    direct = [by_tokenizers.encode(text).tokens for text in (LONG, SHORT)]
    again = [by_transformers.convert_ids_to_tokens(by_transformers(text).input_ids) for text in (LONG, SHORT)]
    cut, filled = (file["truncation"] or {}).get("max_length"), (file["padding"] or {}).get("strategy")
    print(f"{name}: cut at {cut}, padding {filled}; tokenizers read {direct}, transformers {again}")
    return cut, filled, direct, again


whole = [LONG.split(), SHORT.split()]
tokenizer = AutoTokenizer.from_pretrained("loaded")
assert saved("at_once", tokenizer) == (None, None, whole, whole)
tokenizer([LONG, SHORT], truncation=True, max_length=3, padding="max_length")
assert saved("after_a_batch", tokenizer) == (3, {"Fixed": 3}, [LONG.split()[:3], ["ten", "[PAD]", "[PAD]"]], whole)
tokenizer("")
assert saved("after_a_plain_call", tokenizer) == (None, None, whole, whole)
print("as seen")
PYTHON
