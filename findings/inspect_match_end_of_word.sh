#!/usr/bin/env bash
# inspect_ai: match() calls "I disagree" right where the answer is "agree", and "unsafe" right where it is "safe".
#
# Guess before the first run: match(), whose default is location="end", compares the last word or words of the output with the target, and
#   match(location="begin") the first ones. So "disagree" is not "agree".
# Seen with inspect_ai 0.3.285: the text has only to end with the letters of the target. "I disagree." is right for "agree", "unsafe" for
#   "safe", "It is invalid" for "valid", "casino" for "no", "option 12" for "2". location="begin" takes "Notably, yes" for "no". Whole
#   words are not asked for by any setting but location="exact". numeric=True compares numbers, so "12" is wrong for "2". pattern() with
#   \b compares words. The docstring says "location to match at".
# Why it matters: labels of judges and stances in dialogues come in pairs of a word and its opposite, and the opposite is often the longer
#   one. A classifier that always says "unsafe" has accuracy 1 on a set of both. Use pattern(), or targets with another end.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-}
if [ -z "$python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet "inspect_ai==0.3.285" 2> /dev/null
  python=$folder/venv/bin/python
fi
cd "$folder"
"$python" -W ignore - <<'PYTHON'
import asyncio
from importlib.metadata import version

from inspect_ai.model import ModelName, ModelOutput
from inspect_ai.scorer import Target, match, pattern
from inspect_ai.solver import TaskState

print("inspect_ai", version("inspect_ai"))


def right(scorer, output, target):
    """Whether the scorer calls this output right."""
    model = ModelName("mockllm/model")
    state = TaskState(model, 1, 1, "?", [], output=ModelOutput.from_content("mockllm/model", output))
    return asyncio.run(scorer(state, Target(target))).value == "C"


ENDS = {"agree": "I disagree.", "safe": "unsafe", "valid": "It is invalid", "no": "casino", "2": "option 12", "moral": "That is immoral."}
for target, output in ENDS.items():
    words = pattern(r"(\w+)\W*$")
    print(f"{output!r} for {target!r}: match {right(match(), output, target)}, pattern of the last word {right(words, output, target)}")
    assert right(match(), output, target) and not right(words, output, target) and right(words, f"It is {target}.", target)
    assert right(match(location="any"), output, target) and not right(match(location="exact"), output, target)
assert right(match(location="begin"), "Notably, yes", "no")
assert not right(match(), "it is wrong", "right") and not right(match(numeric=True), "option 12", "2")
labels = ["safe", "unsafe"] * 10
accuracy = sum(right(match(), "unsafe", label) for label in labels) / len(labels)
print("accuracy of always saying unsafe, half of the labels being safe:", accuracy)
assert accuracy == 1.0
print("as seen")
PYTHON
