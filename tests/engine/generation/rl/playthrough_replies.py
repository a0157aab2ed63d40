"""A golden playthrough of the two-sided game of replies, as those of `tests/envs/golden`, where Ray is not known.

`python -m tests.engine.generation.rl.playthrough_replies` writes it again after an intended change; read the difference before
you keep it.
"""

from __future__ import annotations

from pathlib import Path

from parley.engine.generation.rl.reply_modules import DISCRIMINATOR, GENERATOR, ReplyMultiAgentEnv
from parley.envs.generation.game import MACHINE, PERSON
from parley.envs.generation.reply_env import reply_action, words_of
from tests.envs.generation.made_up import EXAMPLES, RULES
from tests.envs.golden.playthrough import indented

PATH = Path(__file__).parent / "replies_two_sided.txt"
SEED, NUM_EPISODES = 5, 4
"""Both replies are shown, and taken for either."""


def record() -> str:
    """Episodes in which the same is said to every context, and the listener takes every second reply for a person's."""
    words = words_of(EXAMPLES)
    env = ReplyMultiAgentEnv({"vocabulary": words, "examples": EXAMPLES, "rules": RULES, "seed": SEED})
    said = reply_action(words, RULES, ["it", "is", "full"])
    lines = ["environment: ReplyMultiAgentEnv", f"seed: {SEED}"]
    for number in range(NUM_EPISODES):
        observations, infos = env.reset()
        lines += ["", f"episode {number}", *indented({"observations": observations, "infos": infos})]
        for agent, action in ((GENERATOR, said), (DISCRIMINATOR, (MACHINE, PERSON)[number % 2])):
            observations, rewards, terminated, truncated, infos = env.step({agent: action})
            shown = {"action": action, "observations": observations, "rewards": rewards, "terminated": terminated}
            lines += [f"  {agent}", *indented({**shown, "truncated": truncated, "infos": infos}, depth=2)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PATH.write_text(record())
