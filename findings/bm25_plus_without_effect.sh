#!/usr/bin/env bash
# rank_bm25, bm25s: BM25+ ranks as BM25 does, whatever delta is, because a document without the word gets delta, too.
#
# Guess before the first run: BM25Plus and method="bm25+" are the formula of Lv and Zhai (2011), a sum over the words of the query that the
#   document holds. Each of these earns at least delta times its idf, so a long document with the word is above one without it.
# Seen with rank_bm25 0.2.2, bm25s 0.3.16: both sum over all words of the query, so every document, with or without the word, gets delta
#   times its idf. That is one constant for all documents. The order is the one of BM25 with the same idf in 30 of 30 queries, at delta 0,
#   1 and 5; by the formula of the paper another reply stands first in 4 queries, and in 5. BM25L of bm25s errs in the same way. That of
#   rank_bm25 multiplies by the count of the word once more, so ten times the word is worth more than ten times as much. Nothing says
#   it, and scores look plausible.
# Why it matters: BM25+ is a baseline of rankers, and finds hard negatives. "BM25+ equals BM25" is then no result about texts, and a
#   search over delta measures nothing. Subtract delta times the idf of each word that a document lacks.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "rank-bm25==0.2.2" "bm25s==0.3.16" "numpy==2.4.6" 2> /dev/null
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
from importlib.metadata import version

import bm25s
import numpy as np
from rank_bm25 import BM25L, BM25Plus

print(*(f"{name} {version(name)}" for name in ("rank-bm25", "bm25s")))
draws = np.random.default_rng(0)
WORDS = [f"w{number}" for number in range(40)]
shares = np.arange(40, 0, -1) / 820
texts = [draws.choice(WORDS, draws.integers(3, 60), p=shares).tolist() for _ in range(60)]
queries = [draws.choice(WORDS, 4, replace=False).tolist() for _ in range(30)]
lengths = np.array([len(text) for text in texts])
K1, B = 1.5, 0.75
norm = 1 - B + B * lengths / lengths.mean()


def by_paper(query, delta, long=False, absent=False, times=False):
    """BM25+ of the paper, or BM25L; `absent` adds what a document without the word would get, `times` multiplies by the count."""
    total = np.zeros(len(texts))
    for word in query:
        count = np.array([text.count(word) for text in texts])
        frequency = int((count > 0).sum())
        if not frequency:
            continue
        if long:
            value = np.log((len(texts) + 1) / (frequency + 0.5)) * (K1 + 1) * (count / norm + delta) / (K1 + count / norm + delta)
        else:
            value = np.log((len(texts) + 1) / frequency) * (delta + count * (K1 + 1) / (count + K1 * norm))
        total += value * count if times else value if absent else value * (count > 0)
    return total


def by_rank_bm25(kind, delta):
    model = {"bm25+": BM25Plus, "bm25l": BM25L}[kind](texts, k1=K1, b=B, delta=delta)
    return [model.get_scores(query) for query in queries]


def by_bm25s(kind, delta):
    model = bm25s.BM25(method=kind, k1=K1, b=B, delta=delta)
    model.index(texts, show_progress=False)
    return [model.get_scores(query) for query in queries]


def order(scores):
    return np.argsort(-scores.astype(float).round(4), kind="stable").tolist()


def equal(scores, other):
    return sum(order(one) == order(two) for one, two in zip(scores, other, strict=True))


plain = [by_paper(query, 0.0) for query in queries]
changed = []
for delta in (0.0, 1.0, 5.0):
    paper = [by_paper(query, delta) for query in queries]
    changed.append(sum(order(one)[0] != order(two)[0] for one, two in zip(paper, plain, strict=True)))
    for made in (by_rank_bm25, by_bm25s):
        same = equal(made("bm25+", delta), plain)
        print(f"{made.__name__}, delta {delta}: order of BM25 in {same} of 30; by the paper another one stands first in {changed[-1]}")
        assert same == 30
assert changed[0] == 0 < changed[1] <= changed[2]
paper, absent, times = ([by_paper(query, 0.5, True, absent, times) for query in queries] for absent, times in ((0, 0), (1, 0), (1, 1)))
for made, own in ((by_rank_bm25, times), (by_bm25s, absent)):
    scores = made("bm25l", 0.5)
    print(f"{made.__name__}, BM25L: order of the paper in {equal(scores, paper)} of 30, of what is described above in {equal(scores, own)}")
    assert equal(scores, paper) < 10 and equal(scores, own) == 30
print("as seen")
PYTHON
