"""The embedded corpus of interviews: dialogues of scripted sides, each with a style of its own."""

from __future__ import annotations

from parley.envs.negotiation.interview.bargainers import Applicant
from parley.envs.negotiation.interview.wording import interview_vocabulary
from parley.envs.negotiation.scripted.corpus import corpus_lines


def embedded_corpus(num_dialogues: int, seed: int) -> dict[str, list[str]]:
    """Generates the corpus; arguments, lines and errors as those of `corpus_lines`."""
    vocabulary = interview_vocabulary()
    return corpus_lines(num_dialogues, seed, "embedded-interview", vocabulary, lambda styles: Applicant(vocabulary, styles))
