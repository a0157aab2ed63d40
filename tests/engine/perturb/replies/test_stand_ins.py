"""NGR and COPY_k: what stands in the place of whole replies."""

from __future__ import annotations

from typing import Any

import pytest

from parley.engine.perturb.lexicon.built_in import BuiltInLexicon
from parley.engine.perturb.replies.language import English
from parley.engine.perturb.replies.settings import ReplySettings
from parley.envs.core.errors import ConfigError
from parley.envs.ranking.groups import CandidateGroup
from tests.engine.perturb.replies.groups import built_in, group


def replies(name: str, written: CandidateGroup, seed: int = 1, **chosen: Any) -> list[str]:
    (rule,) = built_in(name, ReplySettings(**chosen))
    return [" ".join(words) for words in rule.apply([written], [seed])[0].group.candidates]


def test_every_right_reply_becomes_the_generic_one_of_the_paper() -> None:
    written = group("a", "+you know it", "no", "+i am sorry can you repeat")
    assert replies("ngr", written) == ["i am sorry can you repeat", "no", "i am sorry can you repeat"]
    (rule,) = built_in("ngr")
    assert rule.apply([written], [1])[0].changed == (6, 0, 0)


def test_generic_replies_of_ones_own_or_several_are_drawn_from() -> None:
    written = group("a", "+you know it", "no")
    assert {replies("ngr", written, seed, generic="Me too!|ok")[0] for seed in range(20)} == {"me too !", "ok"}
    several = {replies("ngr", written, seed, generic="several")[0] for seed in range(60)}
    assert several == {" ".join(words) for words in English(BuiltInLexicon()).generic}
    with pytest.raises(ConfigError, match="no word"):
        built_in("ngr", ReplySettings(generic="ok|"))


def test_turns_of_the_context_become_wrong_replies() -> None:
    written = group("one turn|two turns|one turn|three turns", "+a", "b", "c", "d", "e", fixed=(4,))
    for seed in range(20):
        found = replies("copy-2", written, seed)
        assert found[0] == "a"
        assert found[4] == "e"
        planted = [reply for reply, before in zip(found[1:4], "bcd", strict=True) if reply != before]
        assert len(set(planted)) == len(planted) == 2
        assert set(planted) < {"one turn", "two turns", "three turns"}
    assert sorted(replies("copy-3", written)[1:4]) == ["one turn", "three turns", "two turns"]


def test_a_turn_that_is_a_candidate_or_says_nothing_is_not_planted() -> None:
    (rule,) = built_in("copy-3")
    (found,) = rule.apply([group("a b|c||b", "+a b", "b", "x")], [2])
    assert sorted(map(bool, found.changed)) == [False, False, True]
    assert ("c",) in found.group.candidates
