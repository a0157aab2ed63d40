"""What searches have found: inputs after which a model said a target, as they are typed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from parley.engine.core.runs.remote_sync import fetched_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.rows import Row, finished
from parley.engine.triggers.method_lines import read_lines
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.core.seeds import stream

METHODS = "search-methods"
"""The job whose run holds searches, one for each method."""
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class FoundTrigger:
    """An input that was found.

    Args:
        key: of its row, and of its restart or pair, unique in its run.
        text: what is typed; slots of a template are told apart by lines.
        target: what the model was made to say.
        template: the setting that names the prompt that it was found in; empty for the usual one.
        request: what stands in the place of `{prompt}`; None where the target came with none.
        end: whether the model had to end its reply behind the target; False where a reply had to begin with it.
        slots: what is typed into each slot, which may hold lines of its own; empty where `text` alone is known.
    """

    key: str
    text: str
    target: str
    template: str = ""
    request: str | None = None
    end: bool = True
    slots: tuple[str, ...] = ()


def found_triggers(runs: Sequence[str], *, hits_only: bool) -> list[FoundTrigger]:
    """What searches have found, each text once for a target behind its request.

    Args:
        runs: names of runs of `parley search`, `search universal`, `search text` and `search methods`.
        hits_only: leave out what is no hit of the type that the search was for; by replies alone, whose reply is no success.

    Raises:
        ConfigError: one is a run of something else.
        RunError: one is no run, or damaged.
        DataError: nothing was found.
    """
    found: dict[FoundTrigger, FoundTrigger] = {}
    num = 0
    for name in runs:
        for trigger, is_hit in _read(name, Path(name).name):
            num += 1
            if is_hit or not hits_only:
                found.setdefault(replace(trigger, key="", slots=()), trigger)
    if not found:
        got = f"{num:,} inputs, none of them a hit" if num else "no finished target"
        fix = "search longer, or take every input: --found all"
        raise DataError("there is no trigger to learn from", where=", ".join(runs), got=got, fix=fix)
    return list(found.values())


_Found = Iterator[tuple[FoundTrigger, bool]]
"""Triggers, and whether each is a hit."""


def _read(name: str, label: str) -> _Found:
    """What a run has found, under keys that begin with a label; of a table of methods what each of its searches has."""
    run = RunFolder.load(fetched_run(name))
    if run.job == METHODS:
        for line in read_lines(str(run.config["method"])):
            yield from _read(f"{name.rstrip('/')}/{line.folder}", f"{label}/{line.label}")
        return
    if run.job not in _READERS:
        fix = "name a run of parley search, search universal, search text or search methods"
        raise ConfigError("this run is no search for triggers", where=name, got=run.job, fix=fix)
    how = run.config.get("hugging_face") or run.config
    template, end = str(how.get("template") or ""), bool(how.get("end", True))
    for row in finished([row for part in run.read_parts() for row in part.to_pylist()]):
        for trigger, is_hit in _READERS[run.job](row, str(run.config.get("hit"))):
            if trigger.text:
                yield replace(trigger, key=f"{label}:{row['item_key']}:{trigger.key}", template=template, end=end), is_hit


def _of_target(row: Row, wanted: str) -> _Found:
    """The restarts of a target."""
    for restart in row["restarts"]:
        is_hit = any(hit["type"] == wanted and hit["hit"] for hit in restart["hits"])
        # Of the restart that is kept alone it is known what stands in which slot.
        slots = tuple(row.get("typed") or ()) if restart["restart"] == row.get("restart") else ()
        key, words, request = str(restart["restart"]), restart["words"], row.get("prompt")
        yield FoundTrigger(key, words, row["target"], request=request, slots=slots), is_hit


def _of_many_pairs(row: Row, wanted: str) -> _Found:
    """One input behind each of its prompts; nothing of those that were drawn, or are empty."""
    for pair in row["pairs"] if row["kind"] == "found" else ():
        key = ":".join(filter(None, (pair.get("model"), pair["key"])))
        slots = tuple(row.get("typed") or ())
        yield FoundTrigger(key, row["trigger"], pair["target"], request=pair["prompt"], slots=slots), bool(pair["hit"])


def _by_replies(row: Row, wanted: str) -> _Found:
    """The fittest input of a target."""
    slots = tuple(row["typed"])
    yield FoundTrigger("best", "\n".join(slots), row["target"], request=row["prompt"], slots=slots), bool(row["verified"])


_READERS: Mapping[str, Callable[[Row, str], _Found]] = {
    "search": _of_target,
    "search-universal": _of_many_pairs,
    "search-text": _by_replies,
}
"""What rows hold, by the job that writes them."""


def held_together(triggers: Sequence[FoundTrigger]) -> dict[FoundTrigger, str]:
    """What triggers have to share to be in one split: the target, or the request where targets are too few.

    Args:
        triggers: all of them, such as those of requests that are all to be answered by "Sure, here".
    """
    by_target = len({each.target for each in triggers}) >= len(SPLITS)
    return {each: each.target if by_target or each.request is None else each.request for each in triggers}


def split_triggers(triggers: Sequence[FoundTrigger], held_out: float, seed: int) -> dict[str, list[FoundTrigger]]:
    """Triggers by split; those that are held together are all in one, so that what is measured is not what was learned.

    Args:
        triggers: all of them.
        held_out: share of the targets (or requests) in the test split; the validation split has half as many.
        seed: master seed.

    Raises:
        DataError: there are fewer than three targets, and fewer than three requests.
    """
    together = held_together(triggers)
    groups = sorted(set(together.values()))
    if len(groups) < len(SPLITS):
        fix = "search for more targets, or behind more requests, in one run or several"
        got = f"{len(groups)} of them: {', '.join(groups)[:80]}"
        what = "triggers of three targets or requests are needed: to learn from, to stop by and to measure"
        raise DataError(what, got=got, fix=fix)
    num_test = min(max(1, round(held_out * len(groups))), len(groups) - 2)
    num_validation = min(max(1, round(held_out * len(groups) / 2)), len(groups) - num_test - 1)
    order = [groups[place] for place in stream(seed, "held-out targets").permutation(len(groups))]
    ends = np.cumsum([num_test, num_validation])
    parts = dict(zip(("test", "validation", "train"), np.split(np.array(order, dtype=object), ends), strict=True))
    return {split: [each for each in triggers if together[each] in parts[split].tolist()] for split in SPLITS}
