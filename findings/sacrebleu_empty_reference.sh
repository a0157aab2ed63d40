#!/usr/bin/env bash
# sacrebleu: a missing second reference that is written as "" takes the brevity penalty away, so half a reply has a BLEU of 100.
#
# Guess before the first run: None and "" both say that a text has no second reference, as a docstring of the library has it, so BLEU, chrF and
#   TER are those of the first reference alone.
# Seen with sacrebleu 2.6.0: with None they are. With "" the empty text is a reference of length 0, which is the closest one to a short
#   reply: two replies that say the first half of their reference have a BLEU of 100 instead of 21.1, and one word has 100 by itself with
#   effective_order. TER is divided by a mean length with that 0 in it: 78 instead of 61. chrF is not touched. The BLEU of replies of
#   full length is not touched either, so a check on good ones shows nothing. The command line reads an empty line of a file as
#   "", too. Nothing is said.
# Why it matters: dialogues have several references, not equally many, and tables fill up with "". A model whose replies are cut, or an
#   attack that makes them short, is then measured as better. Replace "" by None.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-}
if [ -z "$python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet "sacrebleu==2.6.0" 2> /dev/null
  python=$folder/venv/bin/python
fi
cd "$folder"
"$python" -W ignore - <<'PYTHON'
import json
import subprocess
import sys
from pathlib import Path

import sacrebleu

print("sacrebleu", sacrebleu.__version__)
FIRST = ["i take the ball and hat and you get all of the books", "we do not have a deal at all for today"]
SHORT = ["i take the ball and hat", "we do not"]
LONG = ["i take the ball and hat and you get all of that", "we do not have a deal at all for me"]


def scores(replies, second=None):
    """BLEU, chrF and TER with the first reference and this second one for each reply."""
    references = [FIRST] if second is None else [FIRST, [second["text"]] * len(replies)]
    measures = (sacrebleu.corpus_bleu, sacrebleu.corpus_chrf, sacrebleu.corpus_ter)
    return tuple(round(measure(replies, references).score, 1) for measure in measures)


ways = {"one reference": None, "second is None": {"text": None}, 'second is ""': {"text": ""}}
for name, replies in (("short", SHORT), ("long", LONG)):
    seen = {way: scores(replies, second) for way, second in ways.items()}
    print(f"{name} replies; BLEU, chrF, TER:", seen)
    alone, none, empty = seen.values()
    assert none == alone and empty[1] == alone[1] and empty[2] > alone[2]
    assert (alone[0] < 40 and empty[0] == 100) if name == "short" else empty[0] == alone[0]
single = sacrebleu.BLEU(effective_order=True)
one, two = single.sentence_score("we", FIRST[1:]).score, single.sentence_score("we", [FIRST[1], ""]).score
print(f"BLEU of the one word 'we': {one:.2f} with one reference, {two:.2f} with a second one that is empty")
assert one < 1 and round(two) == 100
for name, lines in (("replies", SHORT), ("first", FIRST), ("second", ["", ""])):
    Path(name).write_text("\n".join(lines) + "\n")
shell = [sys.executable, "-m", "sacrebleu", "first", "-i", "replies", "--score-only"]
by_shell = []
for more in ([], ["second"]):
    printed = subprocess.check_output([*shell[:4], *more, *shell[4:]], stderr=subprocess.DEVNULL)
    by_shell.append(float(json.loads(printed)))
print("command line, without and with a file of empty lines:", by_shell)
assert by_shell[0] < 40 and by_shell[1] == 100
print("as seen")
PYTHON
