#!/usr/bin/env bash
# Who ties all candidates is right always or never: trec_eval's measures ask the names of the candidates, ranx their order in the file.
#
# Guess before the first run: three toolkits (pytrec_eval, ir_measures, ranx) give a ranker that scores ten candidates alike one
#   MRR, near .29, the mean over orders, or at least .1, whatever the candidates are called and wherever the right one stands.
# Seen with pytrec-eval-terrier 0.5.11, ir-measures 0.4.3, ranx 0.3.21: MRR and P@1 are 1.0 where the right one's id comes last in
#   the alphabet and .1 and 0.0 where it comes first (the first two); ranx gives 1.0 where it is inserted first and .1 where last.
# Why it matters: benchmarks of replies put the right one first in a file, or call it pos. A ranker that says nothing, or one in
#   half precision with many ties, then wins or loses by its spelling, and two toolkits disagree by .9 on one file.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "pytrec-eval-terrier==0.5.11" "ir-measures==0.4.3" "ranx==0.3.21" 2> /dev/null
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import ir_measures
import pytrec_eval
from ranx import Qrels, Run, evaluate

seen = {}
for right in ("a", "z"):
    for place in ("first", "last"):
        others = [f"m{number}" for number in range(9)]
        names = [right, *others] if place == "first" else [*others, right]
        qrels, run = {"q": {right: 1}}, {"q": dict.fromkeys(names, 1.0)}
        trec = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank", "P_1"}).evaluate(run)["q"]
        both = ir_measures.calc_aggregate([ir_measures.RR, ir_measures.P @ 1], qrels, run)
        other = evaluate(Qrels(qrels), Run(run), ["mrr", "precision@1"])
        seen[right, place] = [
            (round(trec["recip_rank"], 3), trec["P_1"]),
            (round(both[ir_measures.RR], 3), both[ir_measures.P @ 1]),
            (round(float(other["mrr"]), 3), float(other["precision@1"])),
        ]
        print(f"the right one is called {right} and stands {place}: MRR, P@1 of pytrec_eval, ir_measures, ranx:", seen[right, place])
best, worst = (1.0, 1.0), (0.1, 0.0)
assert seen == {
    ("a", "first"): [worst, worst, best],
    ("a", "last"): [worst, worst, worst],
    ("z", "first"): [best, best, best],
    ("z", "last"): [best, best, worst],
}, seen
print("as seen")
PYTHON
