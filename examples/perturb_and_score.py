"""Perturbs a list of strings and scores a function of one's own: how often does its answer change when it should not?"""

from __future__ import annotations

import parley

TEXTS = [
    "my screen is black and i can not see anything",
    "i forgot my password and i want to reset it",
    "the printer does not work since monday morning",
    "can you install the new program on my machine",
]


def answer(text: str) -> str:
    """Reply by a bag of words that knows three topics; put your own model here."""
    topics = {"password": "reset it", "printer": "restart it", "screen": "check the cable"}
    return next((reply for word, reply in topics.items() if word in text.split()), "tell me more")


perturbed = parley.perturb_by_strategy(
    TEXTS, "random-swap,stopword-dropout,add-negation", settings=parley.PerturbSettings(lexicon="built-in")
)
for strategy, texts in perturbed.items():
    changed = [answer(text) != answer(before) for text, before in zip(texts, TEXTS, strict=True)]
    share = parley.rate(sum(changed), len(changed))
    print(f"{strategy}: {share.value:.0%} of the answers change [{share.low:.0%}, {share.high:.0%}], n = {share.n}")
    print(f"    {TEXTS[0]}\n    {texts[0]}")
