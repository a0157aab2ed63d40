#!/usr/bin/env bash
# PyYAML's two safe loaders read different languages: a question in braces is an error in one and a text in the other.
#
# Guess before the first run: `SafeLoader` and `CSafeLoader` differ in speed alone, so a prompt such as {text: What is it?} is the
#   same mapping in both, and a file of prompts needs no quotes around questions.
# Seen with PyYAML 6.0.4 and ruamel.yaml 0.19.1: `SafeLoader`, which `yaml.safe_load` takes, ends in a ParserError at any question
#   mark of a plain text between braces or brackets, even within a word. `CSafeLoader` of the same package and ruamel.yaml read
#   the text. Outside of braces all three do.
# Why it matters: one file of prompts is read by a program that takes the quick loader and refused by one that takes the other,
#   or by the same program where libyaml is not built in.
# Fails (rc 1) where this changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "PyYAML==6.0.4" "ruamel.yaml==0.19.1"
"$folder/venv/bin/python" - <<'PYTHON' | tee "$folder/out"
import yaml
from ruamel.yaml import YAML

loaders = {
    "SafeLoader": lambda text: yaml.load(text, Loader=yaml.SafeLoader),
    "CSafeLoader": lambda text: yaml.load(text, Loader=yaml.CSafeLoader),
    "ruamel.yaml": YAML(typ="safe").load,
}
for text in ("{text: What is it?}", "[Who?, Why?]", "{a: b?c}", "text: What is it?", "{text: 'What is it?'}"):
    for name, load in loaders.items():
        try:
            outcome = load(text)
        except yaml.YAMLError as error:
            outcome = type(error).__name__
        print(f"{text} | {name} | {outcome}")
PYTHON
diff "$folder/out" - <<'SEEN'
{text: What is it?} | SafeLoader | ParserError
{text: What is it?} | CSafeLoader | {'text': 'What is it?'}
{text: What is it?} | ruamel.yaml | {'text': 'What is it?'}
[Who?, Why?] | SafeLoader | ParserError
[Who?, Why?] | CSafeLoader | ['Who?', 'Why?']
[Who?, Why?] | ruamel.yaml | ['Who?', 'Why?']
{a: b?c} | SafeLoader | ParserError
{a: b?c} | CSafeLoader | {'a': 'b?c'}
{a: b?c} | ruamel.yaml | {'a': 'b?c'}
text: What is it? | SafeLoader | {'text': 'What is it?'}
text: What is it? | CSafeLoader | {'text': 'What is it?'}
text: What is it? | ruamel.yaml | {'text': 'What is it?'}
{text: 'What is it?'} | SafeLoader | {'text': 'What is it?'}
{text: 'What is it?'} | CSafeLoader | {'text': 'What is it?'}
{text: 'What is it?'} | ruamel.yaml | {'text': 'What is it?'}
SEEN
echo "as seen"
