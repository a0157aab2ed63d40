#!/usr/bin/env bash
# rouge: a reply that says its words over and over has the ROUGE of one that says them once, and "yes yes yes yes" is "yes".
#
# Guess before the first run: n-grams are counted with clipping, as in ROUGE-1.5.5 and rouge-score, so repetition costs precision:
#   "yes yes yes yes" for "yes" has an F of .4.
# Seen with rouge 1.0.1, rouge-score 0.1.2: for that pair ROUGE-1 and ROUGE-L are 1.0 in rouge and .4 in rouge-score. "i take the ball the ball
#   the ball" for "i take the ball" has 1.0, .86, 1.0 (1, 2, L) and .67, .6, .67. A reference that repeats is as little missed. Of the replies
#   that a loop of "the ball" lengthens, all 20 have the same ROUGE-1 in rouge, and fall from 1 to .17 in rouge-score. Sets are the default,
#   exclusive=True. With Rouge(exclusive=False) both packages agree on all pairs here. Two sentences in the other order are still
#   1.0 by ROUGE-L (.5 by rougeL), since rouge reads "." as an end of sentences. Issues tell of it; nothing is said.
# Why it matters: loops are what attacks and weak models produce, and this metric does not see them. A system that is scored by rouge cannot be
#   compared with one that is scored by rouge-score or torchmetrics. Name package and option.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-}
if [ -z "$python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet "rouge==1.0.1" "rouge-score==0.1.2" 2> /dev/null
  python=$folder/venv/bin/python
fi
"$python" -W ignore - <<'PYTHON'
from importlib.metadata import version

from rouge import Rouge
from rouge_score.rouge_scorer import RougeScorer

print(*(f"{name} {version(name)}" for name in ("rouge", "rouge-score")))
SCORER = RougeScorer(["rouge1", "rouge2", "rougeL"])


def sets(reply, reference, **options):
    """ROUGE-1, ROUGE-2 and ROUGE-L of rouge."""
    scores = Rouge(**options).get_scores(reply, reference)[0]
    return tuple(round(scores[name]["f"], 3) for name in ("rouge-1", "rouge-2", "rouge-l"))


def clipped(reply, reference):
    """ROUGE-1, ROUGE-2 and ROUGE-L of rouge-score."""
    scores = SCORER.score(reference, reply)
    return tuple(round(scores[name].fmeasure, 3) for name in ("rouge1", "rouge2", "rougeL"))


PAIRS = {
    ("yes yes yes yes", "yes"): ((1.0, 0.0, 1.0), (0.4, 0.0, 0.4)),
    ("yes", "yes yes yes yes"): ((1.0, 0.0, 1.0), (0.4, 0.0, 0.4)),
    ("i take the ball the ball the ball", "i take the ball"): ((1.0, 0.857, 1.0), (0.667, 0.6, 0.667)),
    ("i want the book and the hat and the ball", "i want the book and hat ball"): ((1.0, 0.571, 1.0), (0.824, 0.533, 0.824)),
}
for pair, (once, counted) in PAIRS.items():
    seen = sets(*pair), clipped(*pair), sets(*pair, exclusive=False)
    print(f"{pair[0]!r} for {pair[1]!r}: rouge {seen[0]}, rouge-score {seen[1]}, rouge with exclusive=False {seen[2]}")
    assert seen == (once, counted, counted)
loops = ["i take the ball" + " the ball" * loop for loop in range(20)]
first, other = [[score(reply, loops[0])[0] for reply in loops] for score in (sets, clipped)]
print(f"with up to 19 loops: ROUGE-1 of rouge from {first[0]} to {first[-1]}, of rouge-score from {other[0]} to {other[-1]}")
assert set(first) == {1.0} and other[0] == 1 and other == sorted(other, reverse=True) and round(other[-1], 2) == 0.17
turned = "i will take it . you get the hat .", "you get the hat . i will take it ."
print("two sentences in the other order:", sets(*turned), clipped(*turned))
assert sets(*turned)[2] == 1 and clipped(*turned)[2] == 0.5
print("as seen")
PYTHON
