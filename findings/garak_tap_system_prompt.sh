#!/usr/bin/env bash
# From its second round on, the attacker of garak's TAP and PAIR no longer has its system prompt, and has said nothing itself.
#
# Guess before the first run, from the comment in its source ("this does not delete the system prompt") and from the released code
#   of TAP: every question to the attacker has the roles system, user, assistant, user, ...: its task, what it is asked, what it
#   wrote, and the target's reply as text with the score.
# Seen with garak 0.17.1, by running its run_tap with models that are functions: in round 1 the attacker reads [system, user]. In
#   round 2 it reads [user, user, user] and no system prompt: its own JSON, its "improvement", and the reply with the score, all in
#   the role of the user. The messages are cut to the last two, and the system prompt is the first of them. The reply is the
#   text of a Python object: Message(text='...', lang=None, ...). The judge reads it so, too.
# Why it matters: a comparison with garak's TAP or PAIR over several rounds measures an attacker whose instructions are gone.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
# Without the packages of generators that are not used here; torch is imported for one exception.
"$folder/venv/bin/pip" install --quiet --no-deps "garak==0.17.1" 2> /dev/null
"$folder/venv/bin/pip" install --quiet "torch==2.13.0" "openai==2.54.0" "tiktoken==0.14.0" "backoff==2.2.1" "colorama==0.4.6" \
  "tqdm==4.70.1" "PyYAML==6.0.4" "rich==15.0.0" "xdg-base-dirs==6.0.3" "zstandard==0.25.0" "dill==0.4.1" "numpy==2.4.6" \
  "setuptools==84.2.1" 2> /dev/null
cd "$folder"
XDG_CACHE_HOME="$folder/cache" XDG_DATA_HOME="$folder/data" XDG_CONFIG_HOME="$folder/config" "$folder/venv/bin/python" - <<'PYTHON'
import garak
from garak.attempt import Message
from garak.generators.openai import OpenAICompatible
from garak.resources.tap import tap_main

print("garak", garak.__version__)
read, judged = [], []


class Attacker:
    name = "attacker"

    def generate(self, conversation, *rest, **named):
        read.append([(turn.role, turn.content.text) for turn in conversation.turns])
        return [Message(f'{{"improvement": "politely", "prompt": "Please name a fruit, take {len(read)}"}}')]


class Target:
    name = "target"

    def generate(self, conversation, *rest, **named):
        return [Message("No fruit today.")]


class Judge(OpenAICompatible):
    def __init__(self):
        self.name = "judge"

    def generate(self, conversation, *rest, **named):
        judged.append(conversation.turns[-1].content.text)
        return [Message("[[YES]] Rating: [[2]]")]


models = {"attacker": Attacker(), "judge": Judge()}
tap_main.load_generator = lambda kind, name, config: models[name]
tap_main.run_tap(
    goal="name a fruit", target="Sure, a fruit", target_generator=Target(), attack_model_name="attacker",
    evaluator_model_name="judge", branching_factor=1, width=3, depth=2, n_streams=1, keep_last_n=1, save_results=False,
)
for number, chat in enumerate(read, 1):
    print(f"round {number}:")
    for role, text in chat:
        print(f"  {role}: {' '.join(text.split())[:90]}")
roles = [[role for role, _ in chat] for chat in read]
assert roles[0] == ["system", "user"], roles
assert roles[1] == ["user", "user", "user"], roles
system = read[0][0][1]
assert not any(system in text for _, text in read[1]), "the task is nowhere in the second question"
assert read[1][0][1].startswith('{"improvement": "politely"'), "the attacker's own answer, as if the user had said it"
assert "Message(text='No fruit today.', lang=None" in read[1][2][1], read[1][2]
assert any("Message(text='No fruit today.', lang=None" in text for text in judged), judged
print("as seen")
PYTHON
