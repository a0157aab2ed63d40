"""The configuration of an adversarial evaluation."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Literal

from parley.engine.core.verbs.sharded import ShardedConfig
from parley.envs.core.config import AtLeastTwo, Configuration, PositiveInt
from parley.envs.core.errors import ConfigError
from parley.envs.core.storage.uris import is_uri
from parley.envs.corpora.own_files import KINDS, own_file_names, without_options
from parley.envs.corpora.pairs.compiled import SAMPLE
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
    folds: AtLeastTwo = 5
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
