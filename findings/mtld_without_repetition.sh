#!/usr/bin/env bash
# lexicalrichness, lexical_diversity: MTLD of a reply whose words are all different is its length, or 0; a repetition lifts it to 3 times that, and more.
#
# Guess before the first run: a text that repeats no word has the highest MTLD, and it falls with each repetition, in both packages.
# Seen with lexicalrichness 0.5.1, lexical_diversity 0.1.1: a reply of 12 different words has 12.0 and 0; with one word said twice it has
#   40.3 in both. With 24 words it is 24 and 0, then 161.3; with 50 words 50 and 0, then 700. MTLD is the number of words for each
#   "factor" that is used up. Where nothing is repeated no factor is, so one package divides by 1 instead, and the other gives 0 for a
#   division by 0. From the first repetition on both fall, as they should. No error and no warning tells.
# Why it matters: replies in dialogues are short, and many repeat nothing. A mean of MTLD over replies then is a mean of lengths or
#   zeros; an agent that says the same thing in fewer words, or repeats "the", looks more or less diverse by chance. Take MTLD of
#   the joined replies of a dialogue, or count the words of an unfinished factor by hand.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
packages=("lexicalrichness==0.5.1" "lexical_diversity==0.1.1" "setuptools==80.9.0" "scipy==1.17.1" "numpy==2.4.6" "pandas==3.1.1")
"$folder/venv/bin/pip" install --quiet "${packages[@]}" 2> /dev/null
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
from importlib.metadata import version
from math import isclose
from string import ascii_lowercase

from lexical_diversity import lex_div
from lexicalrichness import LexicalRichness

print(*(f"{name} {version(name)}" for name in ("lexicalrichness", "lexical_diversity")))
WORDS = [one + other for one in ascii_lowercase for other in ascii_lowercase]


def mtld(words):
    """MTLD by both packages."""
    assert lex_div.tokenize(" ".join(words)) == words
    return LexicalRichness(" ".join(words)).mtld(), lex_div.mtld(words)


for length in (12, 24, 50):
    different = WORDS[:length]
    values = [mtld(different)]
    for repeated in (1, 2, 3):
        words = different.copy()
        words[length // 2 : length // 2 + repeated] = words[:repeated]
        values.append(mtld(words))
    print(f"{length} words, of which 0, 1, 2, 3 are said again:", [tuple(round(value, 1) for value in pair) for pair in values])
    assert values[0] == (length, 0)
    assert isclose(values[1][0], 0.28 * length**2) and all(isclose(*pair) for pair in values[1:])
    assert values[1][0] > values[2][0] > values[3][0] > 0 and values[1][0] > 3 * length
print("as seen")
PYTHON
