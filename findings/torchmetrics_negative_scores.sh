#!/usr/bin/env bash
# torchmetrics: a right answer whose score is zero or less counts as wrong in MRR, MAP, precision and recall of a ranking.
#
# Guess before the first run: the measures of torchmetrics.retrieval ask for the order of scores alone, so that they equal trec_eval's
#   on scores without ties, and adding a number to all scores changes nothing. `preds` are called probabilities in the
#   documentation, and may be any floats.
# Seen with torchmetrics 1.9.0, pytrec-eval-terrier 0.5.11: on random scores from 1 upwards all measures agree. If 100 is taken from
#   each score, RetrievalMRR, RetrievalMAP, RetrievalPrecision and RetrievalRecall are 0.0, whatever the ranker does.
#   RetrievalHitRate, RetrievalRPrecision and RetrievalNormalizedDCG are what they were, so in one table a ranker is right at the
#   first place for every question and has an MRR of 0. With scores on both sides of zero, the values lie in between, and nothing
#   shows. The four set the label of each document with a score of zero or less to "not relevant".
# Why it matters: rankers of replies by log probability (all negative), by logits of a cross-encoder or by cosine are measured too low,
#   and one that moves its scores up looks better. Give ranks, or a sigmoid of the scores.
# Needs a Python (PYTHON) with torch. Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-python3}
packages=(torchmetrics==1.9.0 lightning-utilities==0.15.2 pytrec-eval-terrier==0.5.11)
"$python" -m pip install --quiet --no-deps --target "$folder/packages" "${packages[@]}" 2> /dev/null
PYTHONPATH=$folder/packages "$python" -W ignore - <<'PYTHON'
from importlib.metadata import version

import numpy as np
import pytrec_eval
import torch
from torchmetrics import retrieval

print("torchmetrics", version("torchmetrics"), "pytrec-eval-terrier", version("pytrec-eval-terrier"))
QUESTIONS, REPLIES = 200, 10
draws = np.random.default_rng(0)
right = np.zeros((QUESTIONS, REPLIES), int)
right[np.arange(QUESTIONS), draws.integers(0, REPLIES, QUESTIONS)] = 1
scores = np.array([draws.permutation(REPLIES) + 1.0 for _ in range(QUESTIONS)])
MEASURES = {
    "MRR": (retrieval.RetrievalMRR(), "recip_rank"),
    "MAP": (retrieval.RetrievalMAP(), "map"),
    "precision at 3": (retrieval.RetrievalPrecision(top_k=3), "P_3"),
    "recall at 3": (retrieval.RetrievalRecall(top_k=3), "recall_3"),
    "hit rate at 3": (retrieval.RetrievalHitRate(top_k=3), "success_3"),
    "R-precision": (retrieval.RetrievalRPrecision(), "Rprec"),
    "NDCG": (retrieval.RetrievalNormalizedDCG(), "ndcg"),
}
LOWERED = ("MRR", "MAP", "precision at 3", "recall at 3")


def measured(shift):
    """The values of both libraries for scores that are moved by a number."""
    moved = scores + shift
    of_each = torch.arange(QUESTIONS).repeat_interleave(REPLIES)
    flat = torch.tensor(moved.ravel()), torch.tensor(right.ravel()), of_each
    qrels = {f"q{q}": {f"d{d}": int(right[q, d]) for d in range(REPLIES)} for q in range(QUESTIONS)}
    run = {f"q{q}": {f"d{d}": float(moved[q, d]) for d in range(REPLIES)} for q in range(QUESTIONS)}
    trec = pytrec_eval.RelevanceEvaluator(qrels, {"map", "recip_rank", "Rprec", "ndcg", "P.3", "recall.3", "success.3"}).evaluate(run)
    means = {name: float(np.mean([values[name] for values in trec.values()])) for _, name in MEASURES.values()}
    both = {name: (float(measure(*flat)), means[trec_name]) for name, (measure, trec_name) in MEASURES.items()}
    print(f"scores moved by {shift:+}:", {name: tuple(np.round(pair, 3).tolist()) for name, pair in both.items()})
    return both


above, below, between = measured(0), measured(-100), measured(-8.5)
for name, (ours, trec) in above.items():
    assert abs(ours - trec) < 1e-6
    assert abs(below[name][1] - trec) < 1e-6 and abs(between[name][1] - trec) < 1e-6
    if name in LOWERED:
        assert below[name][0] == 0.0 and 0.0 < between[name][0] < trec
    else:
        assert abs(below[name][0] - trec) < 1e-6 and abs(between[name][0] - trec) < 1e-6
perfect = torch.tensor([-1.0, -2.0, -3.0]), torch.tensor([1, 0, 0]), torch.zeros(3, dtype=torch.long)
hit, mrr = float(retrieval.RetrievalHitRate(top_k=1)(*perfect)), float(retrieval.RetrievalMRR()(*perfect))
print(f"log probabilities -1, -2, -3, the first reply is right: hit rate at 1 {hit}, MRR {mrr}")
assert (hit, mrr) == (1.0, 0.0)
print("as seen")
PYTHON
