"""Editing policies in attacks, against a ranker whose best edit can be worked out."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from parley.engine.ranking.attacks.attack import RankAttack
from parley.engine.ranking.attacks.cases import Constraint
from parley.engine.ranking.attacks.editing import AttackRule, ContextProposer, EditorSteps
from parley.envs.core.conformance import promises
from parley.envs.core.errors import RankerError
from parley.envs.ranking.corpora import PROPOSER
from parley.envs.ranking.edit_game import EditGame, EditRules, RankGoal
from parley.envs.ranking.groups import CandidateGroup, CandidateKind
from parley.policies.core.settings import ChoiceSizes
from parley.policies.ranking.editor import FEATURES, FORMAT, Editor, new_editor
from parley.policies.ranking.ranker import scores_of
from tests.engine.ranking.fakes import Sum, Toy

RULES = EditRules(edits=2, num_places=4, num_proposals=2)
WEIGHTS = {"right": 2.0, "na": 1.0, "nb": 1.5, "nc": 0.5}
GROUP = CandidateGroup(
    "group-1",
    (("na", "va"), ("the", "nb")),
    (("right",), ("nc", "nd", "the"), ("vb",)),
    (True, False, False),
    (CandidateKind.POSITIVE, CandidateKind.RANDOM, CandidateKind.RANDOM),
    (True, True, True),
)
"""Wrong reply "nc nd the": any noun may become "nb" or "na", worth 1.5 and 1; the right one is worth 2."""


def leaning(feature: str, weight: float = 1.0) -> Editor:
    """A policy that goes by one thing that it sees, and stops by nothing else."""
    editor = new_editor([GROUP.context], ChoiceSizes(hidden=1), seed=1)
    first, last = editor.layers[0], editor.layers[2]
    with torch.no_grad():
        for parameter in editor.parameters():
            parameter.zero_()
        first.weight[0, FEATURES.index("whether it stops")] = -2.0
        first.weight[0, FEATURES.index(feature)] = weight
        last.weight[0, 0] = 1.0
    return editor


def attack(editor: Editor | None, ranker: Sum, constraints: tuple[Constraint, ...] = ()) -> RankAttack:
    return RankAttack(ranker, Toy(), method=EditorSteps(editor, RULES), constraints=constraints, edits=RULES.edits)


def test_proposals_are_words_of_the_context_with_the_tag_of_the_word() -> None:
    proposer = ContextProposer(Toy())
    assert proposer.propose(GROUP, 1) == [("nb", "na"), ("nb", "na"), ()]
    assert proposer.propose(GROUP, 2) == [("va",)]
    assert [promise.failure for promise in promises(PROPOSER, proposer)] == ["", ""]


def test_a_policy_edits_by_what_it_sees_and_counts_its_queries() -> None:
    ranker = Sum(WEIGHTS)
    (outcome,) = attack(leaning("what erasing the word takes off the margin", -1.0), ranker).run([GROUP], [1])
    # The first word is worth something, the second nothing: that one goes first, then "na" is all that is left for the other.
    assert (outcome.status, outcome.words, outcome.cost) == ("success", ("na", "nb", "the"), 2)
    # Three words are erased, of which no draft may be the result, and two edits asked about.
    assert outcome.queries == 5
    assert [point.queries for point in outcome.trace] == [4, 5]


def test_a_policy_that_stops_at_once_leaves_the_reply() -> None:
    (outcome,) = attack(leaning("whether it stops"), Sum(WEIGHTS)).run([GROUP], [1])
    assert (outcome.status, outcome.cost) == ("failure", 0)


def test_without_a_policy_any_replacement_is_taken_and_the_ranker_is_asked_about_edits_alone() -> None:
    found = {attack(None, Sum({"right": 9.0})).run([GROUP], [seed])[0].queries for seed in range(5)}
    firsts = set()
    for seed in range(20):
        ranker = Sum(WEIGHTS)
        attack(None, ranker).run([GROUP], [seed])
        firsts.add(ranker.asked[3])
    assert found == {2}
    assert len(firsts) == 4


def test_constraints_hold_for_a_policy_too() -> None:
    class NoB:
        def allows(self, case: object, drafts: list[object]) -> list[bool]:
            return ["nb" not in draft.words for draft in drafts]  # type: ignore[attr-defined]

    (outcome,) = attack(leaning("place of the word, from the first to the last"), Sum(WEIGHTS), (NoB(),)).run([GROUP], [1])
    assert outcome.words == ("nc", "na", "the")


def test_the_game_and_the_attack_see_the_same() -> None:
    editor, ranker = leaning("rarity of the new word"), Sum(WEIGHTS)
    sight = editor.sight()
    game = EditGame([GROUP], [1], partial(scores_of, ranker), ContextProposer(Toy()), RULES, RankGoal())
    seen = [sight(game, [0])[0]]
    game.act([0], [0])
    seen.append(sight(game, [0])[0])
    assert game.replies[0].num_queries == 4
    assert seen[0].shape == (9, len(FEATURES))
    by_name = dict(zip(FEATURES, seen[0][2].tolist(), strict=True))
    # "nd" becomes "nb": margin -1.5, and erasing "nd" changes nothing.
    assert by_name["place of the word, from the first to the last"] == pytest.approx(1 / 3)
    assert (by_name["margin"], by_name["what erasing the word takes off the margin"], by_name["edits left"]) == (-1, 0, 1)
    assert seen[0][0, FEATURES.index("what erasing the word takes off the margin")] == pytest.approx(0.5 / 1.5)
    assert seen[1][2, FEATURES.index("margin")] == pytest.approx(-0.5 / 1.5)
    asked: list[np.ndarray] = []

    class Noting(Editor):
        def forward(self, seen: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            asked.append(seen[0].numpy().copy())
            return torch.where(mask > 0, -torch.arange(mask.shape[1], dtype=torch.float32), -torch.inf)

    noting = Noting(editor.vocabulary, editor.sizes)
    noting.load_state_dict(editor.state_dict())
    attack(noting, ranker).run([GROUP], [1])
    assert np.array_equal(asked[0], seen[0])
    assert np.array_equal(asked[1], seen[1])


def test_a_rule_that_an_attack_makes_edits_one_wrong_reply_and_leaves_the_rest() -> None:
    rule = AttackRule("policy", attack(leaning("what erasing the word takes off the margin", -1.0), Sum(WEIGHTS)))
    reached = replace(GROUP, candidates=(("vb",), *GROUP.candidates[1:]))
    first, second = rule.apply([GROUP, reached], [1, 1])
    assert first.changed == (0, 2, 0)
    assert first.group.candidates == (("right",), ("na", "nb", "the"), ("vb",))
    assert (second.changed, second.group) == ((0, 0, 0), reached)
    with pytest.raises(RankerError, match="the ranker gave no scores") as caught:
        AttackRule("policy", attack(None, Sum({"right": np.nan}))).apply([GROUP], [1])
    assert caught.value.where == "group-1"


def test_a_policy_is_stored_with_its_words(tmp_path: Path) -> None:
    editor = new_editor([GROUP.context, (("na", "vc"),)], ChoiceSizes(), seed=3)
    FORMAT.save(editor, tmp_path / "editor", {})
    again = FORMAT.load(tmp_path / "editor")
    assert again.vocabulary.words == ("na", "nb", "the", "va", "vc")
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in editor.state_dict().items())
    assert editor.sight()._rarity["na"] < editor.sight()._rarity["nb"]
