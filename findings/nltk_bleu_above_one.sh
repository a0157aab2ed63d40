#!/usr/bin/env bash
# nltk: by smoothing methods 5 and 7 a reply that equals its reference has a BLEU of 1.12 if it is long and of .19 if it is one word.
#
# Guess before the first run: BLEU lies between 0 and 1 under every smoothing, which changes only orders without a match; a reply of four words
#   and more that equals its reference has 1.
# Seen with nltk 3.10.4: methods 0 to 4 give 1 for equal texts of four words and more. Methods 5 and 7 average the precisions of neighbouring
#   orders, and put the first precision plus one in front of them, as the paper has it (Chen and Cherry 2014), so an equal reply of 12
#   words has 1.117, one of four 1.011, of two .39 and .44, of one word .19. One wrong word of twelve gives .83 instead of .73.
#   A long reply with a wrong word is above a short one without any. "ok" for "ok" is .18, .60, .35, 1.0, .19 and .19 by methods 1, 2, 3,
#   4, 5 and 7. Nothing is said.
# Why it matters: evaluations of dialogues, among them those on DailyDialog after a well-known model with latent variables, take method 7,
#   and their replies are short. A mean of these numbers, or 1 minus BLEU as a distance in an attack, is a figure of lengths and has
#   values below 0. Take one method for all systems, name it, and never read it as a share.
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
"$python" -W ignore - <<'PYTHON'
import nltk
from nltk.translate.bleu_score import SmoothingFunction, corpus_bleu, sentence_bleu

print("nltk", nltk.__version__)
SMOOTHING = SmoothingFunction()
METHODS = (0, 1, 2, 3, 4, 5, 7)


def scores(reply, reference):
    """BLEU by each method of smoothing."""
    methods = {number: getattr(SMOOTHING, f"method{number}") for number in METHODS}
    words, truth = reply.split(), [reference.split()]
    return {number: round(sentence_bleu(truth, words, smoothing_function=way), 3) for number, way in methods.items()}


LONG = "i take the ball and you get the rest of it all"
equal = {text: scores(text, text) for text in (LONG, "i take it all", "i see", "ok")}
for text, values in equal.items():
    print(f"{text!r} for itself, by method:", values)
for text in (LONG, "i take it all"):
    assert all(equal[text][number] == 1 for number in (0, 1, 2, 3, 4))
assert equal[LONG][5] == equal[LONG][7] == 1.117 and equal["i take it all"][5] == equal["i take it all"][7] == 1.011
assert (equal["i see"][5], equal["i see"][7]) == (0.39, 0.436)
assert tuple(equal["ok"].values()) == (0.0, 0.178, 0.595, 0.354, 1.0, 0.192, 0.192)
wrong = scores(LONG.replace("ball", "hat"), LONG)
print("with one wrong word of twelve:", wrong)
assert wrong[0] == 0.735 and wrong[7] == 0.83 and equal["i see"][7] < equal["i take it all"][0] and equal["i see"][7] < wrong[7]
corpus = corpus_bleu([[LONG.split()]] * 50, [LONG.split()] * 50, smoothing_function=SMOOTHING.method7)
print(f"a corpus of 50 equal replies, method 7: {corpus:.3f}")
assert corpus > 1.1
print("as seen")
PYTHON
