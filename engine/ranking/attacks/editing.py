"""Attacks by an editing policy: its words, its attack method, and the rule that an attack makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch

from parley.engine.perturb.replies.shapes import Attacked, Attacks
from parley.engine.ranking.attacks.attack import DraftBatch, RankAttack, Steps
from parley.engine.ranking.attacks.cases import Case, Draft
from parley.envs.core.errors import RankerError
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.edit_game import EditedReply, EditRules
from parley.envs.ranking.groups import CandidateGroup, Context
from parley.policies.ranking.editor import Editor, EditorSight

if TYPE_CHECKING:
    from parley.engine.perturb.replies.language import ReplyLanguage

_HELD = 1 << 15
"""Replies whose proposals are kept."""


class ContextProposer:
    """Proposes words of the context that have the tag of the word they replace, those of the newest turn first.

    Args:
        language: tags words, and knows which say something.
    """

    def __init__(self, language: ReplyLanguage) -> None:
        self._language = language
        self._proposed = lru_cache(_HELD)(self._words_by_position)

    def propose(self, group: CandidateGroup, index: int) -> list[tuple[str, ...]]:
        """See `parley.envs.ranking.edit_game.Proposer`."""
        return self._proposed(group.context, group.candidates[index])

    def _words_by_position(self, context: Context, reply: Utterance) -> list[tuple[str, ...]]:
        *turns, tags = self._language.tag_all([*context, reply])
        words_by_tag: dict[str, dict[str, None]] = {}
        for turn, its in zip(reversed(context), reversed(turns), strict=True):
            for word, tag in zip(turn, its, strict=True):
                if self._language.is_content(word):
                    words_by_tag.setdefault(tag, {})[word] = None
        return proposed(self._language, reply, tags, {tag: tuple(words) for tag, words in words_by_tag.items()})


def proposed(
    language: ReplyLanguage, reply: Utterance, tags: Sequence[str], words_by_tag: Mapping[str, Sequence[str]]
) -> list[tuple[str, ...]]:
    """Return the possible replacements of each content word of a reply, from the context.

    Args:
        language: knows which words do.
        reply: as it is.
        tags: of its words.
        words_by_tag: words of the context by their tags.
    """
    return [
        tuple(other for other in words_by_tag.get(tag, ()) if other != word) if language.is_content(word) else ()
        for word, tag in zip(reply, tags, strict=True)
    ]


@dataclass(frozen=True)
class EditorSteps:
    """The best replacements of a policy, one after the other, whatever their effect; no step is taken back.

    Args:
        editor: the policy; None takes random replacements, the baseline at as many edits.
        rules: places and proposals as in its training; as many edits as the attack allows.
    """

    editor: Editor | None
    rules: EditRules = field(default_factory=EditRules)

    def __repr__(self) -> str:
        return f"EditorSteps({'random' if self.editor is None else 'policy'}, {self.rules})"

    @cached_property
    def _sight(self) -> EditorSight:
        assert self.editor is not None, "random replacements need no features"
        return self.editor.sight()

    def steps(self, case: Case) -> Steps:
        """See `parley.engine.ranking.attacks.attack.AttackMethod`."""
        rules, draft = replace(self.rules, edits=case.edits), case.original
        proposals = rules.cut(proposed(case.language, draft.words, draft.tags, case.words_by_tag))
        distance = max(-case.margin, case.tolerance) or 1.0
        reply = EditedReply(case.group, case.index, draft.words, proposals, distance, case.margin, case.tolerance, False)
        erased = np.zeros(0)
        if self.editor is not None:
            sources = range(len(proposals))
            erased = yield DraftBatch([*map(draft.without, sources), draft], may_succeed=False)
        while reply.num_steps < rules.edits:
            drafts = self._allowed(case, reply, draft, rules)
            action = self._chosen(case, reply, erased, drafts, rules)
            if action is None:
                return
            draft = drafts[action]
            reply.replace(action, rules)
            (reply.margin,) = (yield DraftBatch([draft])).tolist()

    def _allowed(self, case: Case, reply: EditedReply, draft: Draft, rules: EditRules) -> dict[int, Draft]:
        """Return the draft that each allowed action makes."""
        drafts = {}
        for action in np.flatnonzero(reply.mask(rules)[: rules.stop]).tolist():
            position, number = divmod(action, rules.num_proposals)
            drafts[action] = draft.after(draft.replaced(position, reply.proposals[position][number], "context"))
        kept = {id(draft) for draft in case.allowed(list(drafts.values()))}
        return {action: draft for action, draft in drafts.items() if id(draft) in kept}

    def _chosen(
        self, case: Case, reply: EditedReply, erased: np.ndarray, drafts: Mapping[int, Draft], rules: EditRules
    ) -> int | None:
        """Choose an action; None to stop."""
        if not drafts:
            return None
        if self.editor is None:
            return list(drafts)[int(case.rng.integers(len(drafts)))]
        mask = torch.zeros(1, rules.stop + 1)
        mask[0, [*drafts, rules.stop]] = 1
        seen = torch.from_numpy(self._sight.seen(reply, erased, rules))[None]
        with torch.no_grad():
            action = int(self.editor(seen, mask).argmax())
        return None if action == rules.stop else action


class AttackRule:
    """A rule on replies that edits wrong ones as an attack does: the closest that it came, whether it succeeded or not.

    Args:
        name: of the rule.
        attack: that promotes wrong replies.
    """

    attacks: Attacks = "negatives"
    keeps_labels = True

    def __init__(self, name: str, attack: RankAttack) -> None:
        assert attack.goal.kind == "promote", "the attack edits wrong replies"
        self.name, self._attack = name, attack

    def apply(self, groups: Sequence[CandidateGroup], seeds: Sequence[int]) -> list[Attacked]:
        """See `parley.engine.perturb.replies.shapes.Rule`; one reply of a group is edited at most.

        Raises:
            RankerError: the ranker gave no scores.
        """
        results = []
        for group, outcome in zip(groups, self._attack.run(groups, seeds), strict=True):
            if outcome.status == "error":
                raise RankerError("the ranker gave no scores", where=group.key, got=outcome.reason)
            candidates, changed = list(group.candidates), [0] * len(group.candidates)
            if outcome.index is not None and outcome.cost:
                candidates[outcome.index], changed[outcome.index] = outcome.words, outcome.cost
            results.append(Attacked(replace(group, candidates=tuple(candidates)), tuple(changed)))
        return results
