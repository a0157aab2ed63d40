#!/usr/bin/env bash
# nlpaug: aug_p=.5 changes 10 words of any text of 20 words or more, and a dialogue comes back on one line.
#
# Guess before the first run: aug_p is the share of words that is changed, so deleting with aug_p=.3 takes 60 of 200 words. The other words,
#   line breaks and punctuation stay as they are.
# Seen with nlpaug 1.1.11: 10 of 200 words, with aug_p .1, .3 and .5 alike, since aug_max is 10 by default; RandomWordAug, SpellingAug and
#   KeyboardAug (aug_word_max) were run. Of 20 words 2, 6 and 10 are changed, as aug_p says. With aug_max=None 20, 60 and 100 of 200 words
#   are. Deleting one word of a dialogue of three lines gives one line, with single blanks. Nothing is said of it; the signature
#   shows aug_max.
# Why it matters: a curve of a model's robustness over the strength of noise is flat on long dialogues, whatever the model, and the share of
#   noise depends on length. Turns that were told by lines are one turn. Give aug_max=None, and change each utterance by itself.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "nlpaug==1.1.11" "numpy==2.4.6" "pandas==3.1.1" "requests==2.34.2" "gdown==6.5.1" 2> /dev/null
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import random
from importlib.metadata import version

import numpy as np
import nlpaug.augmenter.char as nac
import nlpaug.augmenter.word as naw

print("nlpaug", version("nlpaug"))
random.seed(0)
np.random.seed(0)


def changed(augmenter, length):
    """How many of so many equal words are not there any more as they were."""
    return length - augmenter.augment(" ".join(["because"] * length))[0].split().count("because")


MADE = {
    "delete": lambda **settings: naw.RandomWordAug(action="delete", **settings),
    "spelling": lambda **settings: naw.SpellingAug(**settings),
    "keyboard": lambda aug_p, **settings: nac.KeyboardAug(
        aug_word_p=aug_p, **{name.replace("aug_", "aug_word_"): value for name, value in settings.items()}
    ),
}
for name, make in MADE.items():
    usual = {length: [changed(make(aug_p=share), length) for share in (0.1, 0.3, 0.5)] for length in (20, 200)}
    free = [changed(make(aug_p=share, aug_max=None), 200) for share in (0.1, 0.3, 0.5)]
    print(f"{name}, aug_p .1, .3, .5: {usual[20]} of 20 words, {usual[200]} of 200; with aug_max=None {free} of 200")
    assert usual[200] == [10, 10, 10] and free == [20, 60, 100] and usual[20] == [2, 6, 10]
dialogue = "Alice: i want  the book\nBob: the (red) one?\nAlice: yes"
after = naw.RandomWordAug(action="delete", aug_min=1, aug_max=1).augment(dialogue)[0]
print(repr(dialogue), "->", repr(after))
assert dialogue.count("\n") == 2 and "\n" not in after and "  " not in after
print("as seen")
PYTHON
