#!/usr/bin/env bash
# sentence-transformers: the dot products of int8 and of binary embeddings run over, and are random numbers.
#
# Guess before the first run: `model.similarity` of embeddings that encode(precision="int8") gave is nearly that of the floats, and the one
#   of precision="binary" follows the bits that agree, or raises an error.
# Seen with sentence-transformers 6.2.0, torch 2.13.0: with similarity_fn_name="dot" the products are summed in 8 bits, so each is the true
#   sum modulo 256. Their correlation with the similarities of the floats is .00, where the same integers summed in floats have .90. A
#   text is its own nearest neighbour as often as by chance. util.dot_score and util.semantic_search with it do the same, for
#   uint8, binary and ubinary, too. The last two hold eight signs in a byte, and are multiplied as numbers. Nothing is said. Cosine and
#   the two distances raise a RuntimeError.
# Why it matters: memories of agents and corpora of replies are kept in 8 bits to save memory, and models trained for dot products name
#   "dot" themselves. Search and hard negatives are then drawn by lot. Call `.float()` first; unpack bits.
# Needs a Python (PYTHON) with torch and transformers. Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-python3}
"$python" -m pip install --quiet --no-deps --target "$folder/packages" "sentence-transformers==6.2.0" 2> /dev/null
cd "$folder"
HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 PYTHONPATH=$folder/packages "$python" -W ignore - 2> "$folder/errors" <<'PYTHON' || { cat "$folder/errors"; exit 1; }
from importlib.metadata import version

import numpy as np
import torch
from sentence_transformers import SentenceTransformer, util
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers

print(*(f"{name} {version(name)}" for name in ("sentence-transformers", "torch")))
TEXTS, WIDTH = 200, 64
inner = Tokenizer(models.WordLevel({f"w{number}": number for number in range(TEXTS)} | {"<unk>": TEXTS}, unk_token="<unk>"))
inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
table = torch.randn(TEXTS + 1, WIDTH, generator=torch.Generator().manual_seed(0))
model = SentenceTransformer(modules=[StaticEmbedding(inner, embedding_weights=table)], similarity_fn_name="dot")
texts = [f"w{number}" for number in range(TEXTS)]
pairs = np.triu_indices(TEXTS, 1)


def encoded(precision="float32"):
    return torch.tensor(model.encode(texts, precision=precision, show_progress_bar=False))


def agreement(similarities):
    """The correlation with the similarities of the floats."""
    return float(np.corrcoef(truth[pairs], np.asarray(similarities, float)[pairs])[0, 1])


truth = model.similarity(encoded(), encoded()).numpy()
for precision in ("int8", "uint8", "binary", "ubinary"):
    vectors = encoded(precision)
    similarities = model.similarity(vectors, vectors)
    whole = vectors.long() @ vectors.long().T
    first = [hits[0]["corpus_id"] for hits in util.semantic_search(vectors, vectors, top_k=1, score_function=util.dot_score)]
    own = float(np.mean(np.array(first) == np.arange(TEXTS)))
    print(f"{precision}: {similarities.dtype}, correlation {agreement(similarities):.2f}, a text finds itself in {own:.1%}")
    assert similarities.dtype == vectors.dtype and bool(((similarities.long() - whole) % 256 == 0).all())
    assert torch.equal(util.dot_score(vectors, vectors), similarities)
    assert abs(agreement(similarities)) < 0.05 and own < 0.05
    raised = []
    for name in ("cosine", "euclidean", "manhattan"):
        try:
            util.SimilarityFunction.to_similarity_fn(name)(vectors, vectors)
        except RuntimeError:
            raised.append(name)
    assert raised == ["cosine", "euclidean", "manhattan"]
signs = torch.tensor(np.unpackbits(encoded("ubinary").numpy(), axis=1)).float() * 2 - 1
good = {"int8 as floats": agreement(encoded("int8").float() @ encoded("int8").float().T), "signs of ubinary": agreement(signs @ signs.T)}
print({name: round(value, 3) for name, value in good.items()})
assert good["int8 as floats"] > 0.85 and good["signs of ubinary"] > 0.5
print("as seen")
PYTHON
