"""Negotiates in plain text: a prompt in, a sentence out, as a language model would be asked. Here a few lines answer instead.

Replace `answer` by a call of your model: it is given all that its side may see, and its last line says what to do.
"""

from __future__ import annotations

import re

import gymnasium

import parley.envs  # noqa: F401  # makes the environments known to Gymnasium


def answer(prompt: str) -> str:
    """Ask firmly for the kind of most worth; then take it if the partner has agreed."""
    items = [(name, int(count), int(value)) for name, count, value in re.findall(r"^(\w+) +(\d+) +(\d+)", prompt, re.MULTILINE)]
    best, count, _ = max(items, key=lambda item: item[1] * item[2])
    if prompt.endswith("to end the talk"):
        agreed = re.search(r"partner: .*\b(deal|ok|okay|sure|fine|fair|works|agreed)\b", prompt)
        return "<selection>" if agreed else f"i need the {best}{'s' if count > 1 else ''} . you can have the rest"
    return " ".join(str(number if name == best else 0) for name, number, _ in items)


if __name__ == "__main__":
    env = gymnasium.make("parley/NegotiationText-v1", partner="scripted")
    earned, prompt = [], ""
    for seed in range(50):
        prompt = env.reset(seed=seed)[0]
        over, points = False, 0.0
        while not over:
            prompt, reward, over, *_ = env.step(answer(prompt))
            points += float(reward)
        earned.append(points)
    print(prompt)
    print(f"\n{sum(earned) / len(earned):.2f} points a dialogue")
