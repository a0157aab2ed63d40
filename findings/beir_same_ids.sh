#!/usr/bin/env bash
# beir: a perfect ranker has nDCG 0 where questions and answers are numbered alike, and evaluating once changes what is evaluated next.
#
# Guess before the first run: ids of queries and of documents are names of two kinds. Numbering both from 0, so that answer i belongs to
#   question i, changes no figure; evaluate() reads the results and leaves them as they are.
# Seen with beir 2.2.0: evaluate() drops every document whose id is that of the query, unless ignore_identical_ids=False. With answer i
#   right for question i a ranker that puts it first has nDCG, MAP, recall and precision 0; with ids "q0" and "a0" all are 1. The
#   dictionary of the caller is changed, so evaluate_custom(..., "mrr"), which has no such rule, gives 1 before evaluate() and 0 behind
#   it. A line at the level INFO names the rule, which the logger does not show by default.
# Why it matters: rankers of replies are measured on pairs of a context and its reply, and both get the number of the pair. Worse than a 0
#   is a mixture: where 100 of 1,000 replies share their number with another context, only these pairs lose a candidate. Put a letter in
#   front of one kind of ids.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "pytrec-eval-terrier==0.5.11" "numpy==2.4.6" "scipy==1.17.1" "tqdm==4.70.1" 2> /dev/null
"$folder/venv/bin/pip" install --quiet --no-deps "beir==2.2.0" 2> /dev/null
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
from importlib.metadata import version

from beir.retrieval.evaluation import EvaluateRetrieval

print("beir", version("beir"))
PAIRS = 20


def measured(query, document, **settings):
    """MRR before, the other measures at 10, and MRR behind them, of a ranker that gives the right answer 1 and all others less."""
    right = {query(i): {document(i): 1} for i in range(PAIRS)}
    scores = {query(i): {document(j): 1 / (1 + abs(i - j)) for j in range(PAIRS)} for i in range(PAIRS)}
    before = EvaluateRetrieval.evaluate_custom(right, scores, [10], "mrr")["MRR@10"]
    ndcg, average, recall, precision = EvaluateRetrieval.evaluate(right, scores, [1], **settings)
    after = EvaluateRetrieval.evaluate_custom(right, scores, [10], "mrr")["MRR@10"]
    seen = before, ndcg["NDCG@1"], average["MAP@1"], recall["Recall@1"], precision["P@1"], after
    print("MRR, nDCG@1, MAP@1, recall@1, precision@1, MRR again:", seen, "candidates left:", {len(row) for row in scores.values()})
    return seen


assert measured(str, str) == (1, 0, 0, 0, 0, 0)
assert measured(str, str, ignore_identical_ids=False) == (1,) * 6
assert measured("q{}".format, "a{}".format) == (1,) * 6
print("as seen")
PYTHON
