"""Attacks a negotiation agent of one's own: how many points does it lose to a tough bargainer, and to a sentence plugged in?

`parley check attack_my_agent.py:GivesWay` tests the agent first. The same agent plays on the command line:
`parley selfplay --adversary scripted-tough --target attack_my_agent.py:GivesWay`.
"""

from __future__ import annotations

import numpy as np

import parley
from parley.envs.core.play import Session, Utterances
from parley.envs.negotiation.domain import Vocabulary
from parley.envs.negotiation.game import SideView
from parley.envs.negotiation.scripted.bargainers import scripted, scripted_tough
from parley.envs.negotiation.scripted.wording import bargainer_vocabulary


class GivesWay:
    """Bargains as the scripted bargainer does, and ends the talk as soon as it is asked a third time."""

    name = "gives-way"

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.wrapped = scripted(vocabulary)

    def join(self, view: SideView) -> Session:
        """Take a side."""
        return GivesWaySession(self.wrapped.join(view), view)


class GivesWaySession:
    """Asks the scripted bargainer what to say, as long as there is patience."""

    def __init__(self, wrapped: Session, view: SideView) -> None:
        self.wrapped, self.view = wrapped, view

    def speak(self, rows: np.ndarray) -> Utterances:
        """Say the bargainer's words, or end the talk."""
        utterances = self.wrapped.speak(rows)
        end = self.view.vocabulary.encode(["<selection>"])
        words = [tokens[:length] for tokens, length in zip(utterances.tokens, utterances.lengths, strict=True)]
        return Utterances.of([end if self.view.num_turns[row] >= 4 else mine for row, mine in zip(rows, words, strict=True)])

    def choose(self, rows: np.ndarray) -> np.ndarray:
        """Choose as the bargainer does."""
        return self.wrapped.choose(rows)


if __name__ == "__main__":
    vocabulary = bargainer_vocabulary()
    target, fair = GivesWay(vocabulary), scripted(vocabulary)
    for adversary in (fair, scripted_tough(vocabulary)):
        metrics = parley.negotiation_metrics(parley.play_dialogues(adversary, target, dialogues=300))
        lead, agreed = metrics["advantage"], metrics["agreement"]
        print(f"{adversary.name}: leads by {lead.value:.2f} [{lead.low:.2f}, {lead.high:.2f}] points, {agreed.value:.0%} agree")
