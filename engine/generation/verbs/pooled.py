"""The files of an adversarial evaluation, read and pooled, and the scenarios that come of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from parley.engine.generation.metrics.scenarios import (
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
    said_elsewhere,
    source_name,
)
from parley.engine.generation.verbs.adversarial_config import AdversarialConfig, labels_of
from parley.envs.core.errors import DataError
from parley.envs.core.storage.copies import fetched_file
from parley.envs.corpora.own_files import own_file, without_options
from parley.envs.corpora.pairs.replied import (
    SAMPLE,
    RepliedPair,
    in_one_vocabulary,
    read_replied,
    read_sample_replies,
    unknown_share,
)
from parley.envs.corpora.pairs.tokens import UNKNOWN
from parley.envs.corpora.root import data_root

_HUMAN, _NEXT = "human", "next"
_OFTEN = 0.02
"""Share of the replies of a file that are as long as its longest one, from which on that is told."""
_LARGELY = 0.5
"""Share of a system's replies that people gave to other sources, from which on that is told."""
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


@dataclass(frozen=True)
class Sides:
    """Two files that are compared, as judges read them.

    Args:
        human: pairs of the human file.
        machine: of the other one.
        note: what became `<unk>`, or is on both sides, in a sentence; may be empty.
    """

    human: BySource
    machine: BySource
    note: str = ""

    @property
    def shared(self) -> set[str]:
        """Sources that both answer."""
        return self.human.keys() & self.machine.keys()


def pooled(config: AdversarialConfig) -> Pooled:
    """Reads all files and makes the scenarios.

    Raises:
        DataError: a file cannot be read, a line is broken, a file is named twice, or too few sources are shared.
    """
    files, systems = _files(config)
    human = by_source(files[_HUMAN], config.seed, config.most)
    sides = {name: _sides(config, files, name) for name in files if name != _HUMAN}
    notes = [note for name in sides if (note := sides[name].note)]
    for name, pairs in files.items():
        judged = sides[name].machine if name in sides else human
        if (num_left := len(pairs) - sum(map(len, judged.values()))) > 0:
            notes.append(f"{name}: {num_left:,} replies left out, more than {config.most} of one source.")
    notes += [note for name, pairs in files.items() if name != _NEXT and (note := _longest_note(name, pairs))]
    answered = {source for system in systems for source in sides[system].shared}
    read = [human, *(pairs for side in sides.values() for pairs in (side.human, side.machine))]
    folds = assign_folds(read, answered, config.folds, config.seed)
    for system in systems:
        _require_enough(config, system, sides[system].shared, folds)
        lone = len(sides[system].human.keys() ^ sides[system].machine.keys())
        if lone:
            notes.append(f"{system}: {lone:,} sources left out, which one side alone answers.")
        if (share := said_elsewhere(sides[system].human, sides[system].machine)) >= _LARGELY:
            what = f"{system}: {share:.0%} of its replies are those of people to other sources"
            notes.append(f"{what}; do not read its AdverSuc, {HUMAN_RANDOM} asks the same and no fit sees a judged reply.")
    made, told = _scenarios(config, human, sides, systems, folds, next_utterances(files[_HUMAN]))
    kept = {name: each for name, each in made.items() if each.least(config.folds) >= _FEWEST}
    notes += [f"{name} is left out: a fold has too few pairs of it." for name in made if name not in kept]
    return Pooled(kept, systems, [*notes, *told])


def _longest_note(name: str, pairs: Sequence[RepliedPair]) -> str:
    """The sentence about replies that are as long as the longest one of a file: a limit may have cut them."""
    lengths = [len(pair.reply) for pair in pairs]
    share = lengths.count(max(lengths)) / len(lengths)
    return f"{name}: {share:.0%} of the replies have {max(lengths):,} words, as the longest one." if share >= _OFTEN else ""


def _sides(config: AdversarialConfig, files: Mapping[str, Sequence[RepliedPair]], name: str) -> Sides:
    """The human file and another one, in the words of the one whose vocabulary is closed, whatever further files are like."""
    human, other = files[_HUMAN], files[name]
    read = in_one_vocabulary(human, other) if config.normalise else (human, other)
    names: dict[str, str] = {}
    for pair, same in zip(human, read[0], strict=True):
        # Sources that differ in unknown words alone become one, which is called as one of them is.
        written, known = source_name(pair), source_name(same)
        names[known] = min(written, names.get(known, written))
    found = [by_source(pairs, config.seed, config.most, names) for pairs in read]
    shares = [unknown_share(pairs) for pairs in (human, other)]
    note = ""
    if read[0] is not human or read[1] is not other:
        mapped = _HUMAN if read[0] is not human else name
        beside = name if mapped == _HUMAN else _HUMAN
        share = shares[beside != _HUMAN]
        note = f"{mapped} beside {beside}: words that do not stand there became {UNKNOWN}, as {share:.2%} of its words are."
    elif config.normalise and all(shares):
        note = f"{name}: both sides write {UNKNOWN}, {shares[0]:.2%} of the words of human and {shares[1]:.2%} of {name}."
    return Sides(found[0], found[1], note)


def _files(config: AdversarialConfig) -> tuple[dict[str, list[RepliedPair]], list[str]]:
    labels = labels_of(config.machine_names, (_HUMAN, _NEXT))
    named = {_HUMAN: config.human} | {label: name for name, label in labels.items()}
    seen: dict[str, str] = {}
    for name in (config.human, *config.machine_names):
        spelled = name if name.startswith(f"{SAMPLE}:") else str(Path(without_options(name)).resolve())
        if spelled in seen:
            raise DataError("a file is named twice", where=name, got=f"{seen[spelled]} and {name}", fix="name each file once")
        seen[spelled] = name
    files = {label: _read(name, config) for label, name in named.items()}
    if config.next_utterances and (followed := _read(config.next_utterances, config, may_be_empty=True)):
        files[_NEXT] = followed
    return files, list(labels.values())


def _read(name: str, config: AdversarialConfig, *, may_be_empty: bool = False) -> list[RepliedPair]:
    if name.startswith(f"{SAMPLE}:"):
        return read_sample_replies(data_root(config.data_root), name.removeprefix(f"{SAMPLE}:"))
    path = fetched_file(without_options(name))
    if not path.is_file():
        fix = "name a file of lines source<TAB>reply, or a table with columns such as source and reply"
        raise DataError("there is no such file", where=path, fix=fix)
    # Where a corpus knows of no next utterance, parley reply writes a file without a line.
    return [] if may_be_empty and not path.stat().st_size else read_replied(own_file(name).of(path), normalise=config.normalise)


def _scenarios(
    config: AdversarialConfig,
    human: BySource,
    sides: Mapping[str, Sides],
    systems: Sequence[str],
    folds: Mapping[str, int],
    followed: Sequence[RepliedPair],
) -> tuple[dict[str, JudgedScenario], list[str]]:
    seed, notes = config.seed, []
    found = [halves(HUMAN_HUMAN, human, folds, seed)]
    found.append(against(HUMAN_RANDOM, human, random_replies(human, human, folds, seed), folds))
    after = sides.get(_NEXT) or Sides(human, by_source(followed, seed, config.most))
    following = against(HUMAN_NEXT, after.human, after.machine, folds, most=1)
    if following.pairs:
        found.append(following)
    else:
        notes.append(f"{HUMAN_NEXT} is left out: no utterance is known that followed a human reply (--next-utterances).")
    for system in systems:
        human, machine = sides[system].human, sides[system].machine
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


def _require_enough(config: AdversarialConfig, system: str, shared: Collection[str], folds: Mapping[str, int]) -> None:
    counts = [sum(folds[source] == fold for source in shared) for fold in range(config.folds)]
    if min(counts) >= PER_FOLD:
        return
    raise DataError(
        f"too few sources stand in the human file and in {system}",
        where=f"--folds {config.folds}",
        got=f"{len(shared):,}, {min(counts)} of them in the smallest fold",
        fix=f"every fold needs {PER_FOLD}: give {PER_FOLD * config.folds:,} shared sources at least, or fewer folds; "
        "sources are compared with all turns before them, and those of one last turn are in one fold",
    )
