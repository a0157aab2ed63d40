"""Ranks candidate replies by a class of one's own, and attacks it: what does it take to lift a wrong reply to the top?

The class is found by its name in commands, too: `parley evaluate ranking --model examples/rank_replies.py:LetterTriples`.
"""

from __future__ import annotations

from collections.abc import Sequence

import parley
from parley.engine.perturb.lexicon.built_in import BuiltInLexicon
from parley.engine.perturb.replies.language import English
from parley.engine.ranking.metrics.ranks import group_metrics


class LetterTriples:
    """Stands for a model of your own: the share of a reply's triples of letters that the context has ("print" in "printer").

    A ranker needs `score` alone: a context and its candidates, in words, to one number each.
    """

    def score(self, context: Sequence[Sequence[str]], candidates: Sequence[Sequence[str]]) -> list[float]:
        """Return a score of each candidate from 0 to 1, higher is better."""
        triples = {triple for turn in context for triple in self._triples(turn)}
        return [len(triples & self._triples(words)) / max(len(self._triples(words)), 1) for words in candidates]

    def _triples(self, words: Sequence[str]) -> set[str]:
        return {word[index : index + 3] for word in words for index in range(len(word) - 2)}


if __name__ == "__main__":
    ranker = LetterTriples()
    groups = parley.load_candidates("helpdesk").splits["test"][:100]
    scores = parley.scores_of(ranker, [(group.context, group.candidates) for group in groups])
    keys = [group.key for group in groups for _ in group.candidates]
    labels = [label for group in groups for label in group.labels]
    ranked = group_metrics(keys, [score for of_group in scores for score in of_group], labels)
    print(f"right reply of ten first: {ranked.values['r@1'].mean():.2f}")

    attack = parley.compose_attack(ranker, English(BuiltInLexicon()), parley.AttackSettings(edits=3, budget=50))
    outcomes = attack.run(groups, seeds=range(len(groups)))
    for queries, share in parley.success_curve(outcomes, budget=50):
        print(f"a wrong one lifted to the top within {queries} queries: {share.value:.2f} [{share.low:.2f}, {share.high:.2f}]")
    lifted = next(outcome for outcome in outcomes if outcome.status == "success")
    before = next(group for group in groups if group.key == lifted.key).candidates[lifted.index or 0]
    print(f"    {' '.join(before)}\n    {' '.join(lifted.words)}")
