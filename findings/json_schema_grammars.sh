#!/usr/bin/env bash
# One JSON schema, three grammars that hold a model to it: a score of 99 where 1 to 10 is asked for is an answer in one of them.
#
# Guess before the first run: xgrammar, llguidance and outlines-core keep {"score": integer from 1 to 10}; what they cannot keep, such
#   as uniqueItems or not, they refuse with an error.
# Seen with outlines-core 0.2.14, xgrammar 0.2.9, llguidance 1.9.1: outlines-core leaves out the bounds of numbers, so that 99 and 7.5
#   (of 0 to 1) are whole answers, and the four of the next sentence, too. xgrammar keeps bounds, and leaves out not, uniqueItems, contains, and a bound beside anyOf.
#   llguidance keeps bounds, the one beside anyOf too, and refuses the other schemas. The first two say nothing.
# Why it matters: servers offer these grammars as response_format. A judge's score, or an attacker's list of different questions, is then
#   taken as read. What stands in the schema has to be checked again in the answer, and the same policy behaves otherwise elsewhere.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "torch==2.13.0" "xgrammar==0.2.9" "outlines-core==0.2.14" "llguidance==1.9.1" "numpy==2.4.6" 2> /dev/null
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import json
import re
from importlib.metadata import version

import llguidance
import xgrammar
from outlines_core.json_schema import build_regex_from_schema

END = 256
BYTES = [bytes([number]) for number in range(END)]
COMPILER = xgrammar.GrammarCompiler(
    xgrammar.TokenizerInfo([*BYTES, b"</s>"], vocab_type=xgrammar.VocabType.RAW, stop_token_ids=[END])
)


class Bytes:
    """A tokenizer whose tokens are bytes."""

    eos_token_id, bos_token_id, special_token_ids, tokens = END, None, [END], [*BYTES, b"</s>"]

    def __call__(self, text):
        return list(text if isinstance(text, bytes) else text.encode())


TOKENIZER = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Bytes()))


def by_xgrammar(schema, answer):
    matcher = xgrammar.GrammarMatcher(COMPILER.compile_json_schema(json.dumps(schema)))
    return matcher.accept_string(answer) and matcher.accept_token(END)


def by_llguidance(schema, answer):
    matcher = llguidance.LLMatcher(TOKENIZER, llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema)))
    if matcher.is_error():
        raise ValueError(matcher.get_error())
    return matcher.validate_tokens([*answer.encode(), END]) == len(answer) + 1


def by_outlines(schema, answer):
    return bool(re.fullmatch(build_regex_from_schema(json.dumps(schema)), answer))


def outcome(judge, schema, answer):
    try:
        return "taken" if judge(schema, answer) else "not taken"
    except Exception:
        return "error"


def one(**keywords):
    return {"type": "object", "properties": {"a": keywords}, "required": ["a"], "additionalProperties": False}


integers = {"type": "array", "items": {"type": "integer"}}
CASES = {
    "within the bounds": (one(type="integer", minimum=1, maximum=10), '{"a": 7}'),
    "above the bound": (one(type="integer", minimum=1, maximum=10), '{"a": 99}'),
    "a share above 1": (one(type="number", minimum=0, maximum=1), '{"a": 7.5}'),
    "bound beside anyOf": (one(anyOf=[{"type": "integer"}, {"type": "string"}], maximum=5), '{"a": 9}'),
    "not": (one(type="string", **{"not": {"const": "x"}}), '{"a": "x"}'),
    "uniqueItems": (one(**integers, uniqueItems=True), '{"a": [1, 1]}'),
    "contains": (one(**integers, contains={"const": 3}), '{"a": [1, 2]}'),
}
print(*(f"{name} {version(name)}" for name in ("xgrammar", "llguidance", "outlines-core")))
seen = {}
for name, (schema, answer) in CASES.items():
    seen[name] = [outcome(judge, schema, answer) for judge in (by_xgrammar, by_llguidance, by_outlines)]
    print(f"{name:20} {answer:15}", *(f"{what:10}" for what in seen[name]))
assert seen["within the bounds"] == ["taken"] * 3
assert seen["above the bound"] == seen["a share above 1"] == ["not taken", "not taken", "taken"]
assert seen["bound beside anyOf"][:2] == ["taken", "not taken"]
assert [seen[name][:2] for name in ("not", "uniqueItems", "contains")] == [["taken", "error"]] * 3
print("as seen")
PYTHON
