#!/usr/bin/env bash
# transformers 5 takes the pre-tokenizer of the class that tokenizer_config.json names, not the one of tokenizer.json.
#
# Guess before the first run: AutoTokenizer reads tokenizer.json as it stands, as the fast tokenizers of transformers 4 did; the
#   class says no more than which special tokens there are. Both readings of "12345" are equal.
# Seen with transformers 5.23.0 and tokenizers 0.23.3: a tokenizer.json that parts numbers by threes, as Llama 3's does, is read
#   with single digits under "tokenizer_class": "Qwen2Tokenizer"; under "GPT2Tokenizer" its pre-tokenizer keeps the number whole.
#   Nothing is warned of.
#   PreTrainedTokenizerFast.from_pretrained on the same folder reads what the file says.
# Why it matters: fine-tunes often keep a tokenizer_class of another family; such a model reads other tokens than in its training.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "transformers==5.23.0" "tokenizers==0.23.3" "jinja2==3.1.6"
cat > "$folder/read.py" <<'PYTHON'
import contextlib
import io
import json
import sys
import warnings
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

folder = Path(sys.argv[1])
by_threes = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
inner = Tokenizer(models.BPE())
split = pre_tokenizers.Split(Regex(by_threes), "isolated")
inner.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
inner.decoder = decoders.ByteLevel()
alphabet = pre_tokenizers.ByteLevel.alphabet()
trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<e>"], initial_alphabet=alphabet, show_progress=False)
inner.train_from_iterator(["12345 67890 123 45 678 90"] * 9, trainer)
stored = inner.encode("12345").tokens
print("tokenizer.json".ljust(16), stored)
assert stored == ["123", "45"], stored
wanted = {"Qwen2Tokenizer": ["1", "2", "3", "4", "5"], "GPT2Tokenizer": None}
for name in wanted:
    place = folder / name
    PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<e>").save_pretrained(place)
    config = json.loads((place / "tokenizer_config.json").read_text())
    (place / "tokenizer_config.json").write_text(json.dumps(config | {"tokenizer_class": name}))
    (place / "config.json").write_text('{"model_type": "llama"}')
    said = io.StringIO()
    with contextlib.redirect_stderr(said), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        read = AutoTokenizer.from_pretrained(place, local_files_only=True)
    as_stored = PreTrainedTokenizerFast.from_pretrained(place, local_files_only=True)
    parts = [part for part, _ in read.backend_tokenizer.pre_tokenizer.pre_tokenize_str("12345")]
    print(name.ljust(16), read.tokenize("12345"), "pre-tokenizer", parts, "warnings", len(warned), repr(said.getvalue()[:80]))
    assert as_stored.tokenize("12345") == stored
    assert parts != ["123", "45"], "the pre-tokenizer of the file is kept: this changed"
    assert "tokenizer" not in said.getvalue().lower() and not warned, "it is warned of: this changed"
    if wanted[name]:
        assert read.tokenize("12345") == wanted[name], read.tokenize("12345")
PYTHON
"$folder/venv/bin/python" "$folder/read.py" "$folder"
echo "transformers 5.23.0 reads such folders with the pre-tokenizer of the class, without a word"
