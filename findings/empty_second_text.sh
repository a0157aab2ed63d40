#!/usr/bin/env bash
# A fast tokenizer of transformers reads the pair (text, "") as the text alone; in a batch of one it is a pair.
#
# Guess before the first run: tokenizer("it is", "") and tokenizer([("it is", "")]) give the same tokens. An empty string is a
#   text as any other: both are [CLS] it is [SEP] [SEP] with the token types of a pair, as `text_pair=None` is the way to say none.
# Seen with transformers 5.23.0, tokenizers 0.23.3: alone the second [SEP] and its token type are missing; in a batch they are there.
# Why it matters: a cross-encoder that scores an empty answer gives another logit than sentence-transformers, which always batches.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "transformers==5.23.0" "tokenizers==0.23.3" 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import tokenizers
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

print("transformers", transformers.__version__, "tokenizers", tokenizers.__version__)
words = {"<pad>": 0, "<cls>": 1, "<sep>": 2, "<unk>": 3, "it": 4, "is": 5}
inner = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
inner.post_processor = processors.TemplateProcessing(
    single="<cls> $A <sep>", pair="<cls> $A <sep> $B:1 <sep>:1", special_tokens=[("<cls>", 1), ("<sep>", 2)]
)
tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", unk_token="<unk>")
alone = tokenizer("it is", "")["input_ids"]
named = tokenizer(text="it is", text_pair="")["input_ids"]
batch = tokenizer([("it is", "")])["input_ids"][0]
plain = inner.encode("it is", "").ids
print("alone:", alone, "named:", named, "batch of one:", batch, "tokenizers itself:", plain)
assert alone == named == [1, 4, 5, 2], (alone, named)
assert batch == plain == [1, 4, 5, 2, 2], (batch, plain)
assert tokenizer("it is", " ")["input_ids"] == [1, 4, 5, 2, 2], "a blank is a second text"
print("as seen")
PYTHON
