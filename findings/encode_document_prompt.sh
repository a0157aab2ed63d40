#!/usr/bin/env bash
# encode_document of sentence-transformers never takes a prompt that is called "passage" or "corpus", and encode_query no default.
#
# Guess before the first run: as its documentation says, encode_document takes the first prompt that is there of "document",
#   "passage" and "corpus", and where there is none of them the default prompt; encode_query takes "query", or else the default.
# Seen with sentence-transformers 6.2.0: both keys "query" and "document" are always there, empty ones where a folder names none.
#   So "document" (empty) wins over "passage", and neither method ever reaches `default_prompt_name`, which `encode` does take.
# Why it matters: an asymmetric model with the prompts {"query": ..., "passage": ...} reads its documents without their prompt.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "torch==2.13.0" 2> /dev/null
"$folder/venv/bin/pip" install --quiet "sentence-transformers==6.2.0" "transformers==5.23.0" "numpy==2.4.6" 2> /dev/null
"$folder/venv/bin/python" - "$folder/model" <<'PYTHON' 2> /dev/null
import sys

import numpy as np
import sentence_transformers
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers

print("sentence-transformers", sentence_transformers.__version__)
words = {word: number for number, word in enumerate(["<unk>", "query", "passage", "default", "it", "is"])}
inner = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
table = torch.randn(len(words), 4, generator=torch.Generator().manual_seed(0))
prompts = {"query": "query ", "passage": "passage ", "other": "default "}
made = SentenceTransformer(modules=[StaticEmbedding(inner, embedding_weights=table)], prompts=prompts, default_prompt_name="other")
made.save(sys.argv[1])
model = SentenceTransformer(sys.argv[1])
print("prompts:", model.prompts, "default:", model.default_prompt_name)


def same(vector, text):
    return bool(np.allclose(vector, model.encode(text, prompt=""), atol=1e-6))


document, query, plain = model.encode_document("it is"), model.encode_query("it is"), model.encode("it is")
print("encode_document reads 'passage it is':", same(document, "passage it is"), "- 'it is':", same(document, "it is"))
print("encode_query reads 'query it is':", same(query, "query it is"), "- encode reads 'default it is':", same(plain, "default it is"))
assert same(document, "it is") and not same(document, "passage it is")
assert same(query, "query it is") and same(plain, "default it is")
model.prompts["query"] = ""
assert same(model.encode_query("it is"), "it is"), "no default for queries"
print("as seen")
PYTHON
