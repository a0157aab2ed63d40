"""The configuration of an adversarial evaluation, its files of replies, and their scenarios."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Literal

from parley.engine.core.verbs.sharded import ShardedConfig
from parley.engine.generation.metrics.adversarial import (
    ADVERSUC,
    CUT,
    HUMAN_HUMAN,
    HUMAN_NEXT,
    HUMAN_RANDOM,
    MACHINE_MACHINE,
    MATCHED,
    NUM_FOLDS,
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
    shares_of_people,
    source_name,
)
from parley.envs.core.config import AtLeastTwo, Configuration, PositiveInt
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.core.storage.copies import fetched_file
from parley.envs.core.storage.uris import is_uri
from parley.envs.corpora.arrow import data_root
from parley.envs.corpora.own_files import KINDS, own_file, own_file_names, without_options
from parley.envs.corpora.pairs.compiled import (
    SAMPLE,
    RepliedPair,
    in_one_vocabulary,
    read_replied,
    read_sample_replies,
    unknown_share,
)
from parley.envs.corpora.pairs.tokens import UNKNOWN
from parley.policies.chat.addresses import absolute_address, is_chat_address, short_address
from parley.policies.chat.settings import ChatAsking
from parley.policies.generation.judges.judge import CONTROLS, JudgeSettings, judges

LIKELIHOODS_JUDGE = "svm-neural"
"""The judge that reads log-probabilities."""


@dataclass(frozen=True, kw_only=True)
class FittingOfJudges(Configuration):
    """The features and sizes of judges."""

    separate: bool = False
    """Unigrams of source and reply are features of their own; the paper puts them together."""
    embedding: PositiveInt = 100
    """Width of a network's word vectors."""
    hidden: PositiveInt = 128
    """Width of a network's states."""


@dataclass(frozen=True, kw_only=True)
class AdversarialConfig(ShardedConfig):
    """The judged replies, and the judges."""

    human: str = f"{SAMPLE}:human"
    """Replies of people: a file of source<TAB>reply, earlier turns before the source, ||| between several replies; CSV, TSV,
    JSON, JSON Lines or Parquet with such columns, or FILE#context=COLUMN,reply=COLUMN; or opensubtitles_sample:human."""
    machine: str = f"{SAMPLE}:machine"
    """Replies of systems to the same sources: files, separated by commas or one behind each --machine."""
    judges: str = "svm-unigram"
    """Judges separated by commas: see parley list; hf:FOLDER, gguf:FILE, openai:URL#MODEL, or path/file.py:Name."""
    next_utterances: str = ""
    """File, read as --human is, of sources and the utterance that followed the human reply (next.tsv of parley reply); when
    empty those that the next line of a dialogue shows."""
    folds: AtLeastTwo = NUM_FOLDS
    """Parts of the sources, those of one last turn in one; each pair is judged by a judge fitted on the other parts."""
    most: PositiveInt = 10
    """Replies of a source and file that are judged, the seed's choice."""
    normalise: bool = True
    """Words of all files are cut and lower-cased alike; of two files that are compared, words that do not stand in one that
    writes <unk> (more often than by chance) become <unk> in the other."""
    forward: str = ""
    """Response model whose log p(reply | source) the judge svm-neural reads."""
    backward: str = ""
    """Run of train seq2seq --backward, whose log p(source | reply) the judge svm-neural reads."""
    published: Literal["auto", "none", "li2017"] = "auto"
    """Figures to show beside the measured ones. auto: those of Li et al. 2017 beside their sample alone."""
    fitting: FittingOfJudges = field(default_factory=FittingOfJudges)
    """How judges read pairs."""
    chat: ChatAsking = field(default_factory=ChatAsking)
    """How a chat model that judges is loaded or asked."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, got, fix in (
            ("machine", self.machine_names, "such as --machine replies.tsv"),
            ("judges", self.judge_names, "such as --judges svm-unigram"),
        ):
            if not got:
                raise ConfigError(f"--{name} names nothing", got=repr(getattr(self, name)), fix=fix)
        if (self.forward or self.backward) and LIKELIHOODS_JUDGE not in self.judge_names:
            flag = "--forward" if self.forward else "--backward"
            fix = f"name it: --judges {self.judges},{LIKELIHOODS_JUDGE}"
            raise ConfigError(f"{flag} is read by the judge {LIKELIHOODS_JUDGE} alone", got=self.judges, fix=fix)
        for judge in self.judge_names:
            if judge not in judges and not is_chat_address(judge) and ".py:" not in judge:
                judges.get(judge)

    @property
    def machine_names(self) -> tuple[str, ...]:
        """Return the machine files as they were named."""
        return tuple(own_file_names(self.machine))

    @property
    def judge_names(self) -> tuple[str, ...]:
        """Return the judges, each once, without controls, which are always there."""
        names = (name for part in self.judges.split(",") if (name := part.strip()))
        return tuple(dict.fromkeys(name for name in names if name not in CONTROLS))

    @property
    def shows_published(self) -> bool:
        """Return whether to show the published figures."""
        return self.published == "li2017" or (self.published == "auto" and self.human.startswith(f"{SAMPLE}:"))

    @property
    def settings(self) -> JudgeSettings:
        """Return the settings of judges."""
        fitting = {name: getattr(self.fitting, name) for name in ("separate", "embedding", "hidden")}
        chat = self.chat.on(self.device)
        return JudgeSettings(absolute(self.forward), absolute(self.backward), device=self.device, chat=chat, **fitting)


def absolute(name: str) -> str:
    """Return the name of a judge or model for workers, which may run in other folders."""
    if is_chat_address(name):
        return absolute_address(name)
    return name if not name or name in judges or is_uri(name) else str(Path(name).expanduser().absolute())


def label_of(name: str) -> str:
    """Return the label of a file or judge: the last part of its name, without ending and full stops."""
    if ".py:" in name:
        return name.rpartition(":")[2]
    if name.startswith(f"{SAMPLE}:"):
        return name.removeprefix(f"{SAMPLE}:")
    if is_chat_address(name):
        return short_address(name)
    last = [part for part in name.split("/") if part][-1:] or ["model"]
    stem, dot, suffix = without_options(last[0]).rpartition(".")
    return (stem if f"{dot}{suffix}".lower() in (".txt", *KINDS) else f"{stem}{dot}{suffix}").replace(".", "_")


def labels_of(names: tuple[str, ...], taken: Collection[str] = ()) -> dict[str, str]:
    """Return distinct labels by name, none of them taken already."""
    label_by_name: dict[str, str] = {}
    for name in names:
        label = label_of(name)
        numbered = chain([label], (f"{label}-{number}" for number in count(2)))
        label_by_name[name] = next(free for free in numbered if free not in taken and free not in label_by_name.values())
    return label_by_name


_HUMAN, _NEXT = "human", "next"
_OFTEN = 0.02
"""Share of the replies of a file that are as long as its longest one, from which on a note reports it."""
_LARGELY = 0.5
"""Share of a system's replies that people gave to other sources, from which on a note reports it."""
_FEWEST = 2
"""Pairs of a side that each fold of a scenario needs."""


@dataclass(frozen=True)
class Pooled:
    """The pooled replies that are judged.

    Args:
        scenarios: by name.
        systems: labels of the machine files.
        notes: what was left out, in sentences.
        retrieved: systems whose replies are largely those of people to other sources, so that AdverSuc says nothing.
    """

    scenarios: Mapping[str, JudgedScenario]
    systems: Sequence[str]
    notes: Sequence[str]
    retrieved: Sequence[str]


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
        """Return the sources that both answer."""
        return self.human.keys() & self.machine.keys()


def pooled(config: AdversarialConfig) -> Pooled:
    """Read all files and make the scenarios.

    Raises:
        DataError: a file cannot be read, a line is broken, a file is named twice, or too few sources are shared.
    """
    files, systems = _files(config)
    human = by_source(files[_HUMAN], config.seed, config.most)
    sides = {name: _sides(config, files, name) for name in files if name != _HUMAN}
    notes, retrieved = [note for name in sides if (note := sides[name].note)], list[str]()
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
        same, elsewhere = shares_of_people(sides[system].human, sides[system].machine)
        if same >= _LARGELY:
            notes.append(f"{system}: {same:.0%} of its replies are those of people to the same sources: none can tell them.")
        if elsewhere >= _LARGELY:
            retrieved.append(system)
            what = f"{system}: {elsewhere:.0%} of its replies are those of people to other sources"
            notes.append(f"{what}; do not read its AdverSuc, {HUMAN_RANDOM} asks the same and no fit sees a judged reply.")
    made, scenario_notes = _scenarios(config, human, sides, systems, folds, next_utterances(files[_HUMAN]))
    kept = {name: scenario for name, scenario in made.items() if scenario.least(config.folds) >= _FEWEST}
    notes += [f"{name} is left out: a fold has too few pairs of it." for name in made if name not in kept]
    return Pooled(kept, systems, [*notes, *scenario_notes], retrieved)


def _longest_note(name: str, pairs: Sequence[RepliedPair]) -> str:
    """Return a note if many replies are as long as the longest: a limit may have cut them."""
    lengths = [len(pair.reply) for pair in pairs]
    share = lengths.count(max(lengths)) / len(lengths)
    return f"{name}: {share:.0%} of the replies have {max(lengths):,} words, as the longest one." if share >= _OFTEN else ""


def _sides(config: AdversarialConfig, files: Mapping[str, Sequence[RepliedPair]], name: str) -> Sides:
    """Return the human file and another one, in the words of the one with the closed vocabulary."""
    human, other = files[_HUMAN], files[name]
    read = in_one_vocabulary(human, other) if config.normalise else (human, other)
    names: dict[str, str] = {}
    for pair, same in zip(human, read[0], strict=True):
        # Sources that differ in unknown words alone become one, which is called as one of them is.
        own_name, shared_name = source_name(pair), source_name(same)
        names[shared_name] = min(own_name, names.get(shared_name, own_name))
    by_side = [by_source(pairs, config.seed, config.most, names) for pairs in read]
    shares = [unknown_share(pairs) for pairs in (human, other)]
    note = ""
    if read[0] is not human or read[1] is not other:
        mapped = _HUMAN if read[0] is not human else name
        beside = name if mapped == _HUMAN else _HUMAN
        share = shares[beside != _HUMAN]
        note = f"{mapped} beside {beside}: words that do not stand there became {UNKNOWN}, as {share:.2%} of its words are."
    elif config.normalise and all(shares):
        note = f"{name}: both sides write {UNKNOWN}, {shares[0]:.2%} of the words of human and {shares[1]:.2%} of {name}."
    return Sides(by_side[0], by_side[1], note)


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
    scenarios = [halves(HUMAN_HUMAN, human, folds, seed)]
    scenarios.append(against(HUMAN_RANDOM, human, random_replies(human, human, folds, seed), folds))
    after = sides.get(_NEXT) or Sides(human, by_source(followed, seed, config.most))
    following = against(HUMAN_NEXT, after.human, after.machine, folds, most=1)
    if following.pairs:
        scenarios.append(following)
    else:
        notes.append(f"{HUMAN_NEXT} is left out: no utterance is known that followed a human reply (--next-utterances).")
    for system in systems:
        human, machine = sides[system].human, sides[system].machine
        main = against(f"{ADVERSUC}.{system}", human, machine, folds)
        shortened, length = cut(f"{CUT}.{system}", main)
        notes.append(f"{CUT}.{system}: all replies cut to {length:,} words.")
        randoms = random_replies(machine, human, folds, seed)
        scenarios += [
            main,
            matched(f"{MATCHED}.{system}", main, seed),
            shortened,
            against(f"{RANDOM}.{system}", machine, randoms, folds),
            halves(f"{MACHINE_MACHINE}.{system}", {name: machine[name] for name in machine.keys() & human.keys()}, folds, seed),
        ]
    return {scenario.name: scenario for scenario in scenarios}, notes


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
