"""Other replies in the place of those of a group: generic ones (NGR), and turns of the context (COPY_k).

Sources: Li et al. 2019, section 3.6; Yuan et al. 2019, "Multi-hop Selector Network for Multi-turn Response Selection in
Retrieval-based Chatbots", section 5, whose released test sets plant one, two or three turns of the context as candidates.

NGR replaces every right reply, and what comes out is a wrong one. COPY_k replaces k wrong replies, which stay wrong.

  * # Paper: one reply for all contexts, "I am sorry can you repeat". Ours: the same; A_n@k then measures that one string, so
    as an option the reply of each context is drawn from several.
  * # Yuan et al.: silent on which turns. Ours: random ones without repetition; as an option the last. A turn that reads like a
    candidate is none, for it would be a right reply or be there already.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

import numpy as np

from parley.engine.perturb.replies.resources import RuleResources
from parley.engine.perturb.replies.rule import OnReplies
from parley.engine.perturb.replies.settings import ReplySettings
from parley.engine.perturb.strategies.draws import uniforms
from parley.engine.perturb.strategies.flat import Edits, FlatContexts
from parley.envs.core.errors import ConfigError
from parley.envs.corpora.pairs.tokens import tokenise
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import CandidateGroup

SEVERAL = "several"
"""Stands for the replies of the language."""


class Generic(OnReplies):
    """NGR.

    Args:
        replies: that are drawn from, at least one; none without a word.
    """

    name = "ngr"
    attacks = "positives"
    keeps_labels = False

    def __init__(self, replies: Sequence[Utterance]) -> None:
        assert all(replies), "a reply has words"
        self._replies = tuple(replies)

    def edits(self, groups: Sequence[CandidateGroup], flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        """What is changed, see `OnReplies`."""
        drawn = uniforms(seeds, self.name, np.diff(flat.shape_edges)) * len(self._replies)
        others = [self._replies[number] for number in drawn.astype(np.int64).tolist()]
        return _instead(flat, np.arange(len(others)), others)


class Copied(OnReplies):
    """COPY_k.

    Args:
        settings: which turns.
        num: how many replies become turns, k.
    """

    attacks = "negatives"
    keeps_labels = True

    def __init__(self, settings: ReplySettings, num: int) -> None:
        self.name = f"copy-{num}"
        self._settings, self._num = settings, num

    def edits(self, groups: Sequence[CandidateGroup], flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        """What is changed, see `OnReplies`."""
        rows = np.arange(len(flat.utterances))
        counts = np.diff(flat.shape_edges)
        group_of = np.repeat(np.arange(len(counts)), counts)
        order = np.lexsort((uniforms(seeds, f"{self.name} replies", counts), group_of))
        turns = [self._turns(group) for group in groups]
        shares = np.split(uniforms(seeds, f"{self.name} turns", list(map(len, turns))), np.cumsum(list(map(len, turns)))[:-1])
        chosen: list[int] = []
        others: list[Utterance] = []
        for start, count, of_group, share in zip(flat.shape_edges.tolist(), counts.tolist(), turns, shares, strict=False):
            wanted = of_group[::-1]
            if self._settings.copied == "random":
                wanted = [of_group[place] for place in np.argsort(share, kind="stable").tolist()]
            num = min(self._num, count, len(wanted))
            found = sorted(zip(rows[order[start : start + num]].tolist(), wanted[:num], strict=True))
            chosen += [row for row, _ in found]
            others += [turn for _, turn in found]
        return _instead(flat, np.array(chosen, dtype=np.int64), others)

    @staticmethod
    def _turns(group: CandidateGroup) -> list[Utterance]:
        """The turns of a context that are no candidates, each once, in order."""
        return [turn for turn in dict.fromkeys(group.context) if turn and turn not in group.candidates]


def _instead(flat: FlatContexts, rows: np.ndarray, others: Sequence[Utterance]) -> Edits:
    """Edits that replace whole replies; equal ones are none."""
    differs = [flat.utterances[row] != other for row, other in zip(rows.tolist(), others, strict=True)]
    rows = rows[np.array(differs, dtype=bool)]
    return Edits(flat.edges[rows], flat.edges[rows + 1], list(compress(others, differs)))


def build_ngr(resources: RuleResources) -> Generic:
    """NGR as the settings say.

    Raises:
        ConfigError: one of the replies has no word.
    """
    named = resources.settings.generic
    if not named:
        return Generic(resources.language.generic[:1])
    if named == SEVERAL:
        return Generic(resources.language.generic)
    replies = [tuple(tokenise(text)) for text in named.split("|")]
    if not all(replies):
        raise ConfigError("a generic reply has no word", where="replies.generic", got=repr(named), fix="REPLY|REPLY")
    return Generic(replies)


def build_copy_1(resources: RuleResources) -> Copied:
    """COPY_1 as the settings say."""
    return Copied(resources.settings, 1)


def build_copy_2(resources: RuleResources) -> Copied:
    """COPY_2 as the settings say."""
    return Copied(resources.settings, 2)


def build_copy_3(resources: RuleResources) -> Copied:
    """COPY_3 as the settings say."""
    return Copied(resources.settings, 3)
