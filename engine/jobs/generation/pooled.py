"""The files of an adversarial evaluation, read and pooled, and the scenarios that come of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.jobs.generation.adversarial_config import AdversarialConfig, labels_of
from engine.metrics.generation.scenarios import (
    ADVERSUC,
    CUT,
    HUMAN_HUMAN,
    HUMAN_NEXT,
    HUMAN_RANDOM,
    MACHINE_MACHINE,
    MATCHED,
    PER_FOLD,
    RANDOM,
    BySource,
    JudgedScenario,
    against,
    assign_folds,
    by_source,
    cut,
    halves,
    matched,
    next_utterances,
    random_replies,
)
from envs.core.errors import DataError
from envs.data.root import data_root
from envs.pairs.replied import SAMPLE, RepliedPair, closed_vocabularies, read_replied, read_sample_replies
from envs.pairs.tokens import UNKNOWN
from envs.storage.copies import fetched_file

_HUMAN, _NEXT = "human", "next"
_FEWEST = 2
"""Pairs of a side that each fold of a scenario needs."""


@dataclass(frozen=True)
class Pooled:
    """What is judged.

    Args:
        scenarios: by name.
        systems: labels of the machine files.
        notes: what was left out, in sentences.
    """

    scenarios: Mapping[str, JudgedScenario]
    systems: Sequence[str]
    notes: Sequence[str]


def pooled(config: AdversarialConfig) -> Pooled:
    """Reads all files and makes the scenarios.

    Raises:
        DataError: a file cannot be read, a line is broken, a file is named twice, or too few sources are shared.
    """
    files, systems = _files(config)
    notes = []
    if config.normalise:
        whole = closed_vocabularies(files)
        notes += [_unknown_note(name, len(files[name])) for name in files if whole[name] != list(files[name])]
        files = whole
    sources = {name: by_source(pairs, config.seed, config.most) for name, pairs in files.items()}
    human = sources[_HUMAN]
    for name, pairs in files.items():
        if (num_left := len(pairs) - sum(map(len, sources[name].values()))) > 0:
            notes.append(f"{name}: {num_left:,} replies left out, more than {config.most} of one source.")
    answered = human.keys() & {source for system in systems for source in sources[system]}
    folds = assign_folds(answered, config.folds, config.seed)
    for system in systems:
        _require_enough(config, system, human, sources[system], folds)
        lone = len(human.keys() ^ sources[system].keys())
        if lone:
            notes.append(f"{system}: {lone:,} sources left out, which one side alone answers.")
    made, told = _scenarios(config, sources, systems, folds, next_utterances(files[_HUMAN]))
    kept = {name: each for name, each in made.items() if each.least(config.folds) >= _FEWEST}
    notes += [f"{name} is left out: a fold has too few pairs of it." for name in made if name not in kept]
    return Pooled(kept, systems, [*notes, *told])


def _files(config: AdversarialConfig) -> tuple[dict[str, list[RepliedPair]], list[str]]:
    labels = labels_of(config.machine_names)
    named = {"human": config.human} | {label: name for name, label in labels.items()}
    seen: dict[str, str] = {}
    for name in (config.human, *config.machine_names):
        spelled = name if name.startswith(f"{SAMPLE}:") else str(Path(name).resolve())
        if spelled in seen:
            raise DataError("a file is named twice", where=name, got=f"{seen[spelled]} and {name}", fix="name each file once")
        seen[spelled] = name
    files = {label: _read(name, config) for label, name in named.items()}
    if config.next_utterances:
        files[_NEXT] = _read(config.next_utterances, config)
    return files, list(labels.values())


def _read(name: str, config: AdversarialConfig) -> list[RepliedPair]:
    if name.startswith(f"{SAMPLE}:"):
        return read_sample_replies(data_root(config.data_root), name.removeprefix(f"{SAMPLE}:"))
    path = fetched_file(name)
    if not path.is_file():
        raise DataError("there is no such file", where=path, fix="name a file of lines source<TAB>reply")
    return read_replied(path, normalise=config.normalise)


def _scenarios(
    config: AdversarialConfig,
    sources: Mapping[str, BySource],
    systems: Sequence[str],
    folds: Mapping[str, int],
    followed: Sequence[RepliedPair],
) -> tuple[dict[str, JudgedScenario], list[str]]:
    human, seed, notes = sources[_HUMAN], config.seed, []
    found = [halves(HUMAN_HUMAN, human, folds, seed)]
    found.append(against(HUMAN_RANDOM, human, random_replies(human, human, folds, seed), folds))
    after = sources.get(_NEXT) or by_source(followed, seed, config.most)
    following = against(HUMAN_NEXT, human, after, folds, most=1)
    if following.pairs:
        found.append(following)
    else:
        notes.append(f"{HUMAN_NEXT} is left out: no utterance is known that followed a human reply (--next-utterances).")
    for system in systems:
        machine = sources[system]
        main = against(f"{ADVERSUC}.{system}", human, machine, folds)
        shortened, length = cut(f"{CUT}.{system}", main)
        notes.append(f"{CUT}.{system}: all replies cut to {length:,} words.")
        others = random_replies(machine, human, folds, seed)
        found += [
            main,
            matched(f"{MATCHED}.{system}", main, seed),
            shortened,
            against(f"{RANDOM}.{system}", machine, others, folds),
            halves(f"{MACHINE_MACHINE}.{system}", {name: machine[name] for name in machine.keys() & human.keys()}, folds, seed),
        ]
    return {each.name: each for each in found}, notes


def _require_enough(
    config: AdversarialConfig, system: str, human: BySource, machine: BySource, folds: Mapping[str, int]
) -> None:
    shared = human.keys() & machine.keys()
    counts = [sum(folds[source] == fold for source in shared) for fold in range(config.folds)]
    if min(counts) >= PER_FOLD:
        return
    raise DataError(
        f"too few sources stand in the human file and in {system}",
        where=f"--folds {config.folds}",
        got=f"{len(shared):,}, {min(counts)} of them in the smallest fold",
        fix=f"every fold needs {PER_FOLD}: give {PER_FOLD * config.folds:,} shared sources at least, or fewer folds; "
        "sources are compared with all turns before them",
    )


def _unknown_note(name: str, num_pairs: int) -> str:
    return f"{name}: words unknown to a file that writes {UNKNOWN} became {UNKNOWN} ({num_pairs:,} pairs read)."
