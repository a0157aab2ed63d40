"""Training of matching models against the attack search: wrong replies that it finds in a pool of contexts.

When an epoch begins, the search (`engine/ranking`) promotes in each context of the pool the wrong reply that the model, as it
is then, likes best. The closest that it came is added to the context as one more wrong reply for that epoch, whether it reached
the top or not; all other replies stay. Nothing is found where a wrong reply is at the top from the first.

What a search found is a file of the run. A training that goes on in the middle of an epoch reads what the epoch began with; one
that was killed in a search makes it again and finds the same, because the model, the context and the seed decide it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from parley.engine.core.runs.documents import write_whole
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import Estimate, clustered_rate
from parley.engine.core.verbs.job import Reporter
from parley.engine.ranking.attacks.catalogue import compose_attack
from parley.engine.ranking.verbs.pool import drawn_rows
from parley.envs.core.errors import RankerError, RunError
from parley.envs.core.seeds import derive_seed
from parley.envs.core.storage.uris import display_path
from parley.envs.ranking.groups import CandidateGroup, CandidateKind
from parley.envs.ranking.split import CandidateSplit

if TYPE_CHECKING:
    from parley.engine.perturb.replies.language import ReplyLanguage
    from parley.engine.ranking.attacks.attack import RankAttack
    from parley.engine.ranking.attacks.settings import AttackSettings
    from parley.policies.ranking.matching.matcher import Matcher

SEARCHED = "search"
"""Kind of the event that says what a search came to."""
START, END = "at the start", "at the end"
"""When the search attacks a split that nothing is learned from: before the training, and what has come of it."""
_AT_ONCE = 256


class FoundReply(NamedTuple):
    """What a search came to in one context.

    Args:
        key: of the context.
        words: the edited reply that came closest to the top; none where no edit came closer, or nothing was tried.
        is_tried: whether no wrong reply was at the top before any edit, and there was one to edit.
        is_promoted: whether it reached the top.
        queries: replies scored.
    """

    key: str
    words: tuple[str, ...]
    is_tried: bool
    is_promoted: bool
    queries: int


class PoolSearch:
    """Searches of a training, and where their results lie.

    Args:
        attack: on the model that is trained.
        train: its contexts.
        size: how many contexts of a split are searched at most, the seed's choice.
        seed: master seed.
        run: keeps what was found.
        reporter: who looks on.
    """

    def __init__(
        self, attack: RankAttack, train: CandidateSplit, size: int, seed: int, run: RunFolder, reporter: Reporter
    ) -> None:
        self._attack, self._size, self._seed, self._run, self._reporter = attack, size, seed, run, reporter
        self._pool = self.drawn(train)
        self._now: Mapping[str, FoundReply] = {}

    @property
    def size(self) -> int:
        """Contexts of the pool."""
        return len(self._pool)

    def drawn(self, split: CandidateSplit) -> list[CandidateGroup]:
        """The groups of a split that are searched."""
        return list(split.chosen(drawn_rows(split, self._size, self._seed)))

    def in_split(self, split: CandidateSplit, when: str) -> dict[str, FoundReply]:
        """What the search finds in a split, see `found`."""
        return self.found(f"{split.name} {when}", self.drawn(split))

    def begin(self, epoch: int, batches_done: int) -> None:
        """Finds what an epoch is trained against; of one that is gone on with, reads it.

        Raises:
            RunError: batches of the epoch are done, and what it began with is no longer there.
        """
        name = f"epoch {epoch}"
        if batches_done and not self._file(name).exists():
            what = "the replies that were found when this epoch began are gone, and the model has moved on"
            raise RunError(what, where=self._file(name), fix="begin anew, in another --run folder")
        self._now = self.found(name, self._pool)

    def __call__(self, groups: Sequence[CandidateGroup]) -> list[CandidateGroup]:
        """Groups with the wrong replies of the epoch."""
        return with_found(groups, self._now)

    def found(self, name: str, groups: Sequence[CandidateGroup]) -> dict[str, FoundReply]:
        """What the search finds in contexts at the model as it is, by their keys; read where it is known.

        Raises:
            RankerError: the model gives no scores.
            RunError: the disk refuses.
        """
        path = self._file(name)
        if path.exists():
            rows = [FoundReply(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
            return {row.key: row._replace(words=tuple(row.words)) for row in rows}
        started, found = time.monotonic(), list[FoundReply]()
        self._reporter.stage(f"search, {name}", len(groups), "contexts")
        for start in range(0, len(groups), _AT_ONCE):
            some = groups[start : start + _AT_ONCE]
            for outcome in self._attack.run(some, [derive_seed(self._seed, "search", name, group.key) for group in some]):
                if outcome.status == "error":
                    raise RankerError("the model gives no scores", where=outcome.key, got=outcome.reason)
                words = outcome.words if outcome.cost else ()
                promoted = outcome.status == "success"
                found.append(FoundReply(outcome.key, words, outcome.was_tried, promoted, outcome.queries))
            self._reporter.advance(len(found))
        self._keep(path, found)
        self._tell(name, found, time.monotonic() - started)
        return {reply.key: reply for reply in found}

    def _file(self, name: str) -> Path:
        return self._run.path / f"found-{name.replace(' ', '-')}.jsonl"

    def _keep(self, path: Path, found: Sequence[FoundReply]) -> None:
        text = "".join(json.dumps(reply._asdict(), ensure_ascii=False) + "\n" for reply in found)
        try:
            write_whole(path, text.encode())
        except OSError as error:
            fix = f"make room or mend the disk, then parley resume {display_path(self._run.path)}"
            raise RunError("the found replies cannot be written", where=path, got=error.strerror, fix=fix) from None

    def _tell(self, name: str, found: Sequence[FoundReply], seconds: float) -> None:
        told = {
            "contexts": len(found),
            "tried": sum(reply.is_tried for reply in found),
            "promoted": sum(reply.is_promoted for reply in found),
            "added": sum(bool(reply.words) for reply in found),
            "queries": sum(reply.queries for reply in found),
        }
        self._run.event(SEARCHED, name=name, **told, seconds=seconds)
        how = f"{told['queries'] / max(told['tried'], 1):.0f} queries each, {seconds:.0f} s"
        what = f"wrong replies reach the top of {told['tried']:,} contexts that had none there"
        self._reporter.say(f"search, {name}: {told['promoted']:,} {what}, {how}")


def with_found(groups: Sequence[CandidateGroup], found: Mapping[str, FoundReply]) -> list[CandidateGroup]:
    """Groups with the wrong replies that were found in their contexts, behind all others."""
    return [
        replace(
            group,
            candidates=(*group.candidates, found[group.key].words),
            labels=(*group.labels, False),
            kinds=(*group.kinds, CandidateKind.HARD),
            attackable=(*group.attackable, True),
        )
        if group.key in found and found[group.key].words
        else group
        for group in groups
    ]


def promoted(split: CandidateSplit, found: Mapping[str, FoundReply]) -> Estimate:
    """In how many contexts the search brings a wrong reply to the top, of those that had none there."""
    rows = [row for row in range(len(split)) if (reply := found.get(split.key(row))) and reply.is_tried]
    return clustered_rate([found[split.key(row)].is_promoted for row in rows], split.dialogues[rows])


def composed_search(
    model: Matcher, language: ReplyLanguage, settings: AttackSettings, train: CandidateSplit, seed: int
) -> RankAttack:
    """The search on a model, tried once; words that enter are the model's.

    Args:
        model: that is trained.
        language: of the replies.
        settings: of the search.
        train: what limits are judged by, and what it is tried on.
        seed: master seed.

    Raises:
        ConfigError: no method is called so.
        DataError: what the language leans on is not there.
    """
    from parley.engine.ranking.verbs.attack_worker import judges_of
    from parley.policies.ranking.matching.ranker import MatcherRanker

    judges = judges_of(settings, train, seed, known_words=False)
    attack = compose_attack(MatcherRanker(model), language, settings, known=model.vocabulary.index, **judges)
    attack.run([train[0]], [0])
    return attack
