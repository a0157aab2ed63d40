"""Plays both sides of the game through PettingZoo: one asks for its best kind of item, the other agrees and takes the rest.

Any PettingZoo learner takes a player's place in this loop. It needs the extra
pettingzoo: `pip install --constraint constraints.txt --editable ".[pettingzoo]"`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from parley.envs.negotiation.dealornodeal_rules import selection_index
from parley.envs.negotiation.env import choose_action, speak_action
from parley.envs.negotiation.game import SELECT
from parley.envs.negotiation.pettingzoo_env import NegotiationAEC

KINDS = ("books", "hats", "balls")


def asking(env: NegotiationAEC, seen: dict[str, Any]) -> dict[str, Any]:
    """Ask for one kind, end the talk after the answer, and choose all of that kind."""
    counts, values = seen["context"][::2], seen["context"][1::2]
    wanted = int(np.argmax(counts * values))
    if seen["phase"] == SELECT:
        picks = [int(count) if kind == wanted else 0 for kind, count in enumerate(counts)]
        return choose_action(env.rules, selection_index(tuple(counts.tolist()), picks))
    dialogue = env.vocabulary.decode(seen["tokens"][: seen["num_tokens"]].tolist())
    words = ["<selection>"] if "YOU:" in dialogue else ["i", "want", "the", KINDS[wanted], "<eos>"]
    return speak_action(env.vocabulary, env.rules, words)


def agreeing(env: NegotiationAEC, seen: dict[str, Any]) -> dict[str, Any]:
    """Agree to the partner's wish, and choose the rest."""
    words = env.vocabulary.decode(seen["tokens"][: seen["num_tokens"]].tolist())
    if seen["phase"] == SELECT:
        counts = tuple(seen["context"][::2].tolist())
        picks = [0 if kind in words else count for kind, count in zip(KINDS, counts, strict=True)]
        return choose_action(env.rules, selection_index(counts, picks))
    return speak_action(env.vocabulary, env.rules, ["deal", "<eos>"])


if __name__ == "__main__":
    env = NegotiationAEC(render_mode="ansi")
    players = dict(zip(env.possible_agents, (asking, agreeing), strict=True))
    points = dict.fromkeys(players, 0.0)
    for dialogue in range(100):
        env.reset(seed=dialogue)
        for agent in env.agent_iter():
            seen, reward, terminated, truncated, _ = env.last()
            points[agent] += reward
            env.step(None if terminated or truncated else players[agent](env, seen))
    print(env.render())
    for agent, total in points.items():
        print(f"{agent}, {players[agent].__name__}: {total / 100:.2f} points a dialogue")
