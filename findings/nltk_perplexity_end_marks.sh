#!/usr/bin/env bash
# nltk: the perplexity of a language model falls with its order even where it predicts the same, because ends of sentences are counted again.
#
# Guess before the first run: padded_everygram_pipeline(n, texts) puts n - 1 marks in front of a text and one end mark behind it, since an
#   end is predicted once. So models that predict each word with equal probabilities have equal perplexities, whatever n is.
# Seen with nltk 3.10.4: n - 1 end marks stand behind each text, and all but the first are predicted with probability 1. The corpus has
#   four places with two words each, in all 16 ways, so every word has probability 1/2 in every model. Per word and end the perplexity
#   is 1.74 for every n from 2 to 5. perplexity() of what pad_both_ends and ngrams give is 1.74, 1.59, 1.49, 1.41. With texts of one
#   word it is 1.41, 1.26, 1.19, 1.15. The documentation of both functions shows the marks, and does not say that perplexity counts them.
# Why it matters: whether replies of an agent are still language is often told by a trigram's perplexity. A fourgram looks better than it
#   is, and short replies look better than long ones. Cut the n-grams behind the first end mark.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-}
if [ -z "$python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet "nltk==3.10.4" 2> /dev/null
  python=$folder/venv/bin/python
fi
cd "$folder"
"$python" -W ignore - <<'PYTHON'
from itertools import product
from math import isclose

import nltk
from nltk.lm import MLE
from nltk.lm.preprocessing import pad_both_ends, padded_everygram_pipeline
from nltk.util import ngrams

print("nltk", nltk.__version__)


def perplexities(length, order):
    """Of texts of coins under their own model: by perplexity() as its users call it, and with each end counted once."""
    texts = [list(text) for text in product(*([f"head{place}", f"tail{place}"] for place in range(length)))]
    model = MLE(order)
    model.fit(*padded_everygram_pipeline(order, texts))
    parts = [list(ngrams(pad_both_ends(text, order), order)) for text in texts]
    every = model.perplexity([gram for part in parts for gram in part])
    once = model.perplexity([gram for part in parts for gram in part[: length + 1]])
    assert all(model.score(gram[-1], gram[:-1]) == 1.0 for part in parts for gram in part[length + 1 :])
    assert [len(part) for part in parts] == [length + order - 1] * len(texts)
    return every, once


for length in (4, 1):
    seen = [perplexities(length, order) for order in (2, 3, 4, 5)]
    print(f"texts of {length}: perplexity()", [round(every, 3) for every, _ in seen], "ends once", [round(once, 3) for _, once in seen])
    assert all(isclose(once, 2 ** (length / (length + 1))) for _, once in seen)
    assert all(isclose(every, 2 ** (length / (length + order - 1))) for (every, _), order in zip(seen, (2, 3, 4, 5)))
print("as seen")
PYTHON
