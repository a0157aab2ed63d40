"""Brute force over all inputs of a character model: `parley search enumerate` (He & Glass 2018, appendix B, tables 5 and 6).

One row per branch of the tree of inputs: those that begin with the same two letters, and every single letter.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from engine.jobs.command import command_line
from engine.jobs.device import require_device
from engine.jobs.job import Job, Reporter, Result
from engine.jobs.sharded import RESUME_SAFE, ShardedConfig
from engine.jobs.triggers.rows import BRANCHES
from engine.metrics.statistics import NOTHING, Estimate, count
from engine.metrics.tables import TextTable
from engine.metrics.triggers.enumeration import LEGEND, enumeration_metrics, enumeration_table
from engine.runtime.pool import Progress
from engine.runtime.record import record_shards
from engine.runtime.session import connect
from engine.runtime.sharding import Shard, make_shards
from engine.store.layout import SUMMARY
from engine.store.run_folder import RunFolder
from engine.store.schemas import OK, SCHEMA_VERSION
from engine.store.summary import reading_summary
from envs.core.config import check, check_count
from envs.core.errors import ConfigError
from envs.core.seeds import derive_seed
from envs.data.root import root_words
from envs.pairs.characters import LETTERS
from envs.pairs.compiled import PairCorpus, load_pairs
from envs.pairs.vocabulary import PairVocabulary
from envs.storage.copies import fetched_model
from envs.storage.places import display_path

BRANCH_LENGTH = 2
"""Letters that all inputs of a branch begin with."""
LONGEST = 10
"""Letters of inputs at most; of eight there are some hundred billion already."""
ENUMERATED = "enumerated"
"""Kind of the event that says how long the work took."""


@dataclass(frozen=True, kw_only=True)
class EnumerationConfig(ShardedConfig):
    """Which model is tried on which inputs."""

    model: str = "runs/characters"
    """Run or checkpoint folder of a model of characters (parley train seq2seq characters)."""
    corpus: str = "ptb_characters"
    """Corpus whose words are looked for in the replies."""
    letters: str = LETTERS
    """Characters that inputs are made of."""
    max_length: int = 5
    """Characters of the longest inputs; each one more multiplies the work by the number of letters."""
    random_strings: int = 18_000
    """Random strings to look for."""
    shard_size: int = 8
    """Branches saved together."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "letters", 0 < len(set(self.letters)) == len(self.letters), "characters, each once")
        check(self, "max_length", 1 <= self.max_length <= LONGEST, f"1 to {LONGEST}")
        check_count(self, "random_strings")
        check(self, "shard_size", self.shard_size >= 1, "at least 1")

    @property
    def branch_length(self) -> int:
        """Letters that all inputs of a branch begin with."""
        return min(BRANCH_LENGTH, self.max_length)

    @property
    def num_branches(self) -> int:
        """Rows of the run."""
        return sum(len(self.letters) ** length for length in range(1, self.branch_length + 1))


class BranchWorker:
    """Replies to all inputs of branches and looks for strings in what it said; rows by `engine.jobs.triggers.rows.BRANCHES`.

    Args:
        config: the job's.
        lists: strings to look for by list (`engine.triggers.word_lists.WordLists`).
    """

    def __init__(self, config: EnumerationConfig, lists: dict[str, tuple[str, ...]]) -> None:
        from engine.triggers.enumeration import Space
        from engine.triggers.word_lists import WordLists
        from policies.seq2seq.checkpoints import load_seq2seq

        self.seed, self.lists = config.seed, WordLists(lists)
        self.model = load_seq2seq(fetched_model(config.model)).to("cuda" if config.gpus_per_worker > 0 else "cpu")
        words = self.model.vocabulary.encode(config.letters)
        self.space = Space(tuple(words.tolist()), config.max_length, config.branch_length)
        self.spell = Speller(self.model.vocabulary)

    def run(self, shard: Shard[str]) -> list[dict[str, Any]]:
        """One row per branch."""
        return [self._row(key, beginning) for key, beginning in zip(shard.keys, shard.items, strict=True)]

    def _row(self, key: str, beginning: str) -> dict[str, Any]:
        from engine.triggers.enumeration import branch_replies
        from engine.triggers.word_lists import tally

        inputs, replies = [], []
        for words_BL, said_BT in branch_replies(self.model, self.space, self.model.vocabulary.encode(beginning).tolist()):
            inputs.append(self.spell(words_BL.cpu().numpy()))
            replies.append(self.spell(said_BT.cpu().numpy()))
        found = tally(self.lists, np.concatenate(inputs), np.concatenate(replies))
        return {
            "item_key": key,
            "status": OK,
            "error": None,
            "seed": branch_seed(self.seed, key),
            "schema_version": SCHEMA_VERSION,
            "inputs": found.num_inputs,
            "outside": found.num_outside,
            "finds": [asdict(find) for find in found.finds],
            "strays": [{"input": source, "reply": reply} for source, reply in found.strays],
        }


class Speller:
    """From ids of characters to strings.

    Args:
        vocabulary: of single characters.

    Raises:
        ConfigError: a word of it is longer.
    """

    def __init__(self, vocabulary: PairVocabulary) -> None:
        characters = vocabulary.words[len(vocabulary.SPECIALS) :]
        if long := [word for word in characters if len(word) > 1]:
            raise ConfigError(
                "brute force needs a model of characters",
                where="--model",
                got=f"a vocabulary with words such as {long[0]!r}",
                fix="parley train seq2seq characters, then name its run",
            )
        # `</s>` ends a string and the other specials stand in none: both are what numpy strips from a string's end. A special
        # inside a reply shows as this mark, which no list holds.
        self._codes_V = np.array([*[ord("\N{REPLACEMENT CHARACTER}")] * len(vocabulary.SPECIALS), *map(ord, characters)])
        self._codes_V[vocabulary.index["</s>"]] = 0

    def __call__(self, words_BT: np.ndarray) -> np.ndarray:
        """The strings (B,), numpy's `U`, of rows of ids that end with `</s>` or with the row."""
        codes_BT = np.ascontiguousarray(self._codes_V[words_BT].astype(np.uint32))
        return codes_BT.view(f"U{codes_BT.shape[1]}")[:, 0]


def branch_seed(seed: int, key: str) -> int:
    """What a row's column "seed" says; nothing is drawn."""
    return derive_seed(seed, "branch", key)


def run(config: EnumerationConfig, path: Path, reporter: Reporter) -> Result:
    """Works off what is left of the branches and counts what was found."""
    if earlier := SEARCH_ENUMERATE.finished(config, path, reporter):
        return _with_table(earlier)
    lists, about = _prepare(config)
    weights = SEARCH_ENUMERATE.weights(config)
    with RunFolder.open(
        path, config, job=SEARCH_ENUMERATE.name, schema=BRANCHES, resume_safe=RESUME_SAFE, weights=weights
    ) as folder:
        _record(config, folder, lists, reporter)
        metrics = enumeration_metrics((row for row in folder.read_rows().to_pylist() if row["status"] == OK), lists)
        metrics["inputs_per_s"] = _inputs_per_second(folder)
        metrics["test_ppl"] = count(np.exp(about.pop("test_nll")), 1)
        folder.write_summary(metrics, about | {"command": command_line(SEARCH_ENUMERATE, config, path)})
    return _with_table(SEARCH_ENUMERATE.result(config, path))


def _prepare(config: EnumerationConfig) -> tuple[dict[str, tuple[str, ...]], dict[str, Any]]:
    """The lists, and what the summary says of the model.

    Raises:
        ConfigError: the model is none of characters, does not know a letter, or cuts inputs of that length.
        CheckpointError: there is no model.
        DataError: the corpus is missing or broken.
    """
    from engine.triggers.word_lists import word_lists
    from policies.seq2seq.checkpoints import SEQ2SEQ, load_seq2seq, threshold

    if config.gpus_per_worker > 0 and not config.workers:
        require_device("cuda", "--gpus-per-worker")
    model = load_seq2seq(fetched_model(config.model))
    Speller(model.vocabulary)
    if unknown := [letter for letter in config.letters if letter not in model.vocabulary.index]:
        fix = f"choose among {''.join(model.vocabulary.words[len(model.vocabulary.SPECIALS) :])}"
        raise ConfigError("the model does not know some letters", where="--letters", got="".join(unknown), fix=fix)
    if config.max_length >= model.sizes.max_source:
        raise ConfigError(
            "the model cuts inputs of that length",
            where="--max-length",
            got=config.max_length,
            fix=f"at most {model.sizes.max_source - 1}, or train it with a larger sizes.max_source",
        )
    corpus = load_pairs(config.corpus, config.data_root)
    longest = model.sizes.max_reply - 1
    found = word_lists(_words(corpus), config.letters, longest, config.random_strings, config.seed)
    total = sum(len(config.letters) ** length for length in range(1, config.max_length + 1))
    about = {
        "title": f"every input of {config.model}",
        "description": f"All {total:,} inputs of 1 to {config.max_length} of {len(config.letters)} letters, decoded greedily.",
        "attention": model.sizes.attention,
        "test_nll": -threshold(fetched_model(config.model), SEQ2SEQ),
    }
    return dict(found.lists), about


def _words(corpus: PairCorpus) -> Iterator[str]:
    """What a model of characters may learn to say: all replies."""
    for split in corpus.splits.values():
        for row in np.unique(split.pairs[:, 1]).tolist():
            yield "".join(corpus.vocabulary.decode(split.utterances[row].tolist()))


def _record(config: EnumerationConfig, folder: RunFolder, lists: dict[str, tuple[str, ...]], reporter: Reporter) -> None:
    from engine.triggers.enumeration import Space

    space = Space(tuple(range(len(config.letters))), config.max_length, config.branch_length)
    sizes = {"".join(config.letters[i] for i in branch): space.branch_size(branch) for branch in space.branches()}
    shards = make_shards({beginning: beginning for beginning in sizes}, config.shard_size)
    done_before = folder.done_keys()
    reporter.stage("branches of the tree of inputs", len(sizes), "branches")

    def on_progress(progress: Progress) -> None:
        reporter.advance(len(done_before) + progress.num_done, f"{progress.num_failed} failed" if progress.num_failed else "")

    local = None if config.address else max(config.workers, os.cpu_count() or 1)
    with connect(config.address or None, num_cpus=local) if config.workers else nullcontext():
        start = time.monotonic()
        record_shards(
            folder,
            BranchWorker,
            (config, lists),
            shards,
            seed_of=partial(branch_seed, config.seed),
            num_workers=config.workers,
            num_gpus_per_worker=config.gpus_per_worker,
            digest=lambda rows: sum(row["inputs"] for row in rows if row["status"] == OK),
            meter=lambda inputs: {"candidates": inputs},
            on_progress=on_progress,
        )
        seconds = time.monotonic() - start
    inputs = sum(sizes[key] for key in folder.done_keys() - done_before)
    folder.event(ENUMERATED, seconds=seconds, inputs=inputs, workers=max(config.workers, 1))


def _inputs_per_second(folder: RunFolder) -> Estimate:
    needs = {ENUMERATED: {"inputs": int, "seconds": float, "workers": int}}
    sessions = [event for event in folder.events(needs) if event["kind"] == ENUMERATED and event["inputs"]]
    inputs = sum(event["inputs"] for event in sessions)
    return count(inputs / sum(event["seconds"] * event["workers"] for event in sessions), inputs) if sessions else NOTHING


def _with_table(result: Result) -> Result:
    with reading_summary(result.run) as summary:
        table: TextTable = enumeration_table(result.metrics, summary["attention"])
    return replace(result, tables=(table,))


def _next_commands(config: EnumerationConfig, path: Path) -> tuple[str, ...]:
    other = "runs/characters-last-h"
    train = ("parley", "train", "seq2seq", "characters", "--set", "sizes.attention=none", "--run", other)
    again = ("parley", "search", "enumerate", "--model", other, "--run", f"{display_path(path)}-last-h")
    root = root_words(config.data_root)
    return shlex.join([*train, *root]), shlex.join([*again, *root])


def he2018() -> EnumerationConfig:
    """All 12,356,630 inputs of up to five letters; the published shares imply about 12.7 million."""
    return EnumerationConfig()


def demo() -> EnumerationConfig:
    """All 18,278 inputs of up to three letters, in seconds."""
    return EnumerationConfig(max_length=3)


SEARCH_ENUMERATE = Job(
    "search-enumerate",
    EnumerationConfig,
    {"he2018": he2018, "demo": demo},
    run,
    LEGEND,
    (SUMMARY, "rows"),
    _next_commands,
    RESUME_SAFE,
    models=lambda config: {"model": config.model},
    num_rows=lambda config: config.num_branches,
)
