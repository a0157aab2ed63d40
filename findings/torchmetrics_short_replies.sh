#!/usr/bin/env bash
# torchmetrics: a reply of two letters that equals its reference has a chrF of .375, and smoothed BLEU is 0 where smoothing is needed.
#
# Guess before the first run: SacreBLEUScore, BLEUScore and CHRFScore give the values of sacrebleu, whose implementation their
#   documentation says they follow; a text that equals its reference has a chrF of 1, however short it is. With smooth=True a corpus
#   without any shared run of four words has a BLEU above 0.
# Seen with torchmetrics 1.9.0, sacrebleu 2.6.0: on texts of eight words and more both agree, chrF++ and plain BLEU. "ok" for "ok" has a
#   chrF++ of .375 and "fine" for "fine" .625, where sacrebleu gives 100: orders for which a text is too short count as 0 in
#   the mean of torchmetrics, and are left out by sacrebleu. BLEU with smooth=True is 0 as soon as one order has no match, since
#   the test for that stands in front of the smoothing; sacrebleu's add-k with k = 1, the same rule, gives 14.3.
# Why it matters: replies in dialogues are short. A model that answers "ok" rightly is measured worse than one that talks on, and a
#   smoothed BLEU of single dialogues is 0 for most of them.
# Needs a Python (PYTHON) with torch. Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-python3}
packages=(torchmetrics==1.9.0 lightning-utilities==0.15.2 sacrebleu==2.6.0 portalocker==4.4.2 colorama==0.4.6 tabulate==0.10.0)
"$python" -m pip install --quiet --no-deps --target "$folder/packages" "${packages[@]}" regex==2026.11.15 lxml==6.1.3 2> /dev/null
PYTHONPATH=$folder/packages "$python" -W ignore - <<'PYTHON'
import random
from importlib.metadata import version

import sacrebleu
from torchmetrics.text import BLEUScore, CHRFScore, SacreBLEUScore

print("torchmetrics", version("torchmetrics"), "sacrebleu", version("sacrebleu"))


def chrf(replies, references):
    """chrF++ by both, of 1."""
    ours = float(CHRFScore()(replies, [[text] for text in references]))
    return round(ours, 4), round(sacrebleu.corpus_chrf(replies, [references], word_order=2).score / 100, 4)


def bleu(replies, references, smooth):
    """BLEU by the two classes of torchmetrics and by sacrebleu, of 100."""
    both = [100 * float(kind(smooth=smooth)(replies, [[text] for text in references])) for kind in (BLEUScore, SacreBLEUScore)]
    options = {"smooth_method": "add-k", "smooth_value": 1} if smooth else {"smooth_method": "none"}
    return [round(value, 2) for value in (*both, sacrebleu.corpus_bleu(replies, [references], **options).score)]


words, draws = "the a price is ten nine fine no deal i take it".split(), random.Random(0)
for _ in range(100):
    references = [" ".join(draws.choices(words, k=draws.randint(8, 14))) for _ in range(3)]
    replies = [" ".join(word if draws.random() < 0.8 else draws.choice(words) for word in text.split()) for text in references]
    ours, theirs = chrf(replies, references)
    assert abs(ours - theirs) < 1e-3, (replies, references, ours, theirs)
    first, second, third = bleu(replies, references, smooth=False)
    assert abs(first - third) < 0.02 and abs(second - third) < 0.02
print("100 corpora of long texts: equal")
seen = {text: chrf([text], [text]) for text in ("ok", "fine", "i take it")}
print("chrF++ of a reply that equals its reference, torchmetrics and sacrebleu:", seen)
assert seen == {"ok": (0.375, 1.0), "fine": (0.625, 1.0), "i take it": (1.0, 1.0)}
replies, references = ["i take it for nine", "no deal at all then"] * 5, ["i take two for nine", "no thanks at all"] * 5
seen = {smooth: bleu(replies, references, smooth) for smooth in (False, True)}
print("BLEU without a shared run of four words; smooth: BLEUScore, SacreBLEUScore, sacrebleu:", seen)
assert seen[False] == [0.0, 0.0, 0.0] and seen[True][:2] == [0.0, 0.0] and 14 < seen[True][2] < 15
print("as seen")
PYTHON
