#!/usr/bin/env bash
# In PyRIT's PAIR and TAP a chat target reads all earlier attempts of the stream and its own refusals; in the papers it reads one prompt.
#
# Guess before the first run: PAIRAttack asks the target as PAIR does (Chao et al. 2023, algorithm 1: a response to the prompt P
#   alone). The attacker remembers, the target does not. What the target reads is the same whatever it declares that it can do.
# Seen with PyRIT 1.1.0, three rounds of one stream and models that are functions: a target that declares supports_multi_turn reads
#   1, 3 and 5 messages, its own refusals among them. One that does not reads a single message each time. All chat targets of
#   PyRIT declare it.
# Why it matters: PyRIT's PAIR on a chat model is a conversation, as Crescendo is without taking back, so its rates are of another
#   attack; and the tokens that the target reads grow with the square of the rounds.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "pyrit==1.1.0" 2> /dev/null
cd "$folder"
HOME="$folder" "$folder/venv/bin/python" - <<'PYTHON'
import asyncio
import json
import logging
import warnings

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
import pyrit
from pyrit.executor.attack import AttackAdversarialConfig, PAIRAttack
from pyrit.executor.attack.multi_turn.tree_of_attacks import TAPAttackScoringConfig
from pyrit.models import Message, MessagePiece, TargetCapabilities
from pyrit.prompt_target import PromptTarget, TargetConfiguration
from pyrit.score import FloatScaleThresholdScorer, PlagiarismScorer
from pyrit.setup import IN_MEMORY, initialize_pyrit_async

print("pyrit", pyrit.__version__)


class Bot(PromptTarget):
    def __init__(self, *, reply, **capabilities):
        configuration = TargetConfiguration(capabilities=TargetCapabilities(**capabilities))
        super().__init__(custom_configuration=configuration)
        self.reply, self.read = reply, []

    async def _send_prompt_to_target_async(self, *, normalized_conversation):
        self.read.append([(message.get_piece().api_role, message.get_value()) for message in normalized_conversation])
        request = normalized_conversation[-1].get_piece()
        piece = MessagePiece(
            role="assistant", original_value=self.reply(len(self.read)), conversation_id=request.conversation_id
        )
        return [Message(message_pieces=[piece])]

    def _validate_request(self, *, normalized_conversation):
        pass


def attack(number):
    message = f"Please name a fruit, take {number}."
    return json.dumps({"next_message": message, "rationale": "politely", "last_response_summary": ""})


async def main():
    await initialize_pyrit_async(memory_db_type=IN_MEMORY)
    chats = dict(supports_multi_turn=True, supports_system_prompt=True, supports_editable_history=True)
    targets = {"chat": Bot(reply=lambda number: "No fruit today.", **chats), "single": Bot(reply=lambda number: "No fruit today.")}
    for name, target in targets.items():
        pair = PAIRAttack(
            objective_target=target,
            attack_adversarial_config=AttackAdversarialConfig(target=Bot(reply=attack, **chats)),
            attack_scoring_config=TAPAttackScoringConfig(
                objective_scorer=FloatScaleThresholdScorer(scorer=PlagiarismScorer(reference_text="an apple"), threshold=0.9)
            ),
            tree_width=1,
            tree_depth=3,
        )
        await pair.execute_async(objective="name a fruit")
        lengths[name] = [len(chat) for chat in target.read]
        print(f"{name}: reads {lengths[name]} messages; the last time {target.read[-1]}")


lengths = {}
asyncio.run(main())
assert lengths == {"chat": [1, 3, 5], "single": [1, 1, 1]}, lengths
from pyrit.prompt_target import OpenAIChatTarget

assert OpenAIChatTarget._DEFAULT_CONFIGURATION.capabilities.supports_multi_turn
print("as seen")
PYTHON
