"""What corpora of candidates promise (`sources.CandidateSource`), and who proposes words (`edit_game.Proposer`)."""

from __future__ import annotations

from typing import Any

from parley.envs.core.conformance import Kind, expect, same_alone
from parley.envs.corpora.conformance import has_its_files, keeps_its_fingerprint
from parley.envs.corpora.root import data_root
from parley.envs.ranking.groups import CandidateGroup, CandidateKind
from parley.envs.ranking.options import CandidateOptions


def _has_groups_to_rank(source: Any) -> None:
    """Reads its files without a broken line, and finds groups."""
    splits = source.read_groups(data_root(), CandidateOptions().turns).require_whole().splits
    groups = {name: len(split) for name, split in splits.items()}
    expect(any(groups.values()), "groups in train, val or test", groups)


CANDIDATE_CORPUS = Kind(
    "corpus of candidates",
    "parley.envs.ranking.sources.CandidateSource",
    ("read_groups", "fingerprint", "require_files"),
    lambda named: named,
    (has_its_files, _has_groups_to_rank, keeps_its_fingerprint),
)


_REPLIES = (("please", "try", "another", "cable", "today", "."), ("thanks",), (), ("which", "printers", "are", "broken", "?"))
_CONTEXT = (("my", "printer", "is", "broken", "."), ("does", "it", "print", "pages", "slowly", "?"), ())
_GROUP = CandidateGroup(
    "conformance", _CONTEXT, _REPLIES, (True, False, False, False), (CandidateKind.NEGATIVE,) * 4, (True,) * 4
)


def _made(named: Any) -> Any:
    return named() if callable(named) else named


def _proposes_words_for_every_place(proposer: Any) -> None:
    """Proposes a list of other words for each word of a reply, empty ones and empty replies included."""
    for place, reply in enumerate(_REPLIES):
        found = proposer.propose(_GROUP, place)
        expect(len(found) == len(reply), f"{len(reply)} lists of words", len(found))
        for word, others in zip(reply, found, strict=True):
            told = all(isinstance(other, str) and other for other in others)
            expect(told and not isinstance(others, str), "lists of words that are not empty", repr(others))
            expect(word not in others, f"other words than {word!r}", repr(others))


def _proposes_the_same_again(proposer: Any) -> None:
    """Proposes the same when it is asked again."""
    first, second = ([list(map(list, proposer.propose(_GROUP, place))) for place in range(len(_REPLIES))] for _ in range(2))
    same_alone(first, second, "what is proposed for a reply")


PROPOSER = Kind(
    "proposer of words",
    "parley.envs.ranking.edit_game.Proposer",
    ("propose",),
    _made,
    (_proposes_words_for_every_place, _proposes_the_same_again),
)
