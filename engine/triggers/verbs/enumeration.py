"""Brute force over all inputs of a character model: `parley search enumerate` (He & Glass 2018, appendix B, tables 5 and 6).

One row per branch of the tree of inputs: those that begin with the same two letters, and every single letter.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from parley.engine.core.ray.record import Counts, Rows
from parley.engine.core.ray.worker import Shard
from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.parts import OK, ok_row
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import NOTHING, Estimate, count
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs.job import Reporter, Result, Summary
from parley.engine.core.verbs.sharded import ItemsJob, Prepared, Sharded, ShardedConfig, ended_sessions
from parley.engine.triggers.metrics.text import INPUTS, LEGEND, enumeration_metrics, enumeration_table
from parley.engine.triggers.verbs.config import BRANCHES
from parley.engine.triggers.verbs.models import searchable
from parley.envs.core.config import NumItems, check
from parley.envs.core.errors import ConfigError
from parley.envs.core.storage.copies import fetched_model
from parley.envs.core.storage.uris import display_path
from parley.envs.corpora.arrow import root_words
from parley.envs.corpora.pairs.compiled import PairCorpus, load_pairs
from parley.envs.corpora.pairs.vocabulary import LETTERS, PairVocabulary

BRANCH_LENGTH = 2
"""Letters that all inputs of a branch begin with."""
LONGEST = 10
"""Letters of inputs at most; of eight there are some hundred billion already."""
Lists = Mapping[str, tuple[str, ...]]
"""Strings to look for, by the name of their list (`parley.engine.triggers.victims.WordLists`)."""


@dataclass(frozen=True, kw_only=True)
class EnumerationConfig(ShardedConfig):
    """The model, and the inputs that it is tried on."""

    model: str = "runs/characters"
    """Run or checkpoint folder of a model of characters (parley train seq2seq characters)."""
    corpus: str = "ptb_characters"
    """Corpus whose words are looked for in the replies."""
    letters: str = LETTERS
    """Characters that inputs are made of."""
    max_length: int = 5
    """Characters of the longest inputs (published: 6); each one more multiplies the work by the number of letters."""
    random_strings: NumItems = 18_000
    """Random strings to look for."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "letters", 0 < len(set(self.letters)) == len(self.letters), "characters, each once")
        check(self, "max_length", 1 <= self.max_length <= LONGEST, f"1 to {LONGEST}")

    @property
    def branch_length(self) -> int:
        """Return the number of letters that all inputs of a branch begin with."""
        return min(BRANCH_LENGTH, self.max_length)

    @property
    def num_branches(self) -> int:
        """Return the number of rows of the run."""
        return sum(len(self.letters) ** length for length in range(1, self.branch_length + 1))


class BranchWorker:
    """A worker that replies to all inputs of branches and looks for listed strings; rows of `config.BRANCHES`."""

    def __init__(self, task: EnumerationTask) -> None:
        from parley.engine.triggers.searches.enumeration import Space
        from parley.engine.triggers.victims import WordLists
        from parley.policies.seq2seq.scoring import load_seq2seq

        config = task.config
        self.task, self.lists = task, WordLists(task.lists)
        self.model = load_seq2seq(fetched_model(config.model)).to(config.device)
        words = self.model.vocabulary.encode(config.letters)
        self.space = Space(tuple(words.tolist()), config.max_length, config.branch_length)
        self.spell = Speller(self.model.vocabulary)

    def run(self, shard: Shard[str]) -> list[dict[str, Any]]:
        """Return one row per branch."""
        return [self._row(key, beginning) for key, beginning in zip(shard.keys, shard.items, strict=True)]

    def _row(self, key: str, beginning: str) -> dict[str, Any]:
        from parley.engine.triggers.searches.enumeration import branch_replies
        from parley.engine.triggers.victims import tally

        inputs, replies = [], []
        for words_BL, said_BT in branch_replies(self.model, self.space, self.model.vocabulary.encode(beginning).tolist()):
            inputs.append(self.spell(words_BL.cpu().numpy()))
            replies.append(self.spell(said_BT.cpu().numpy()))
        counts = tally(self.lists, np.concatenate(inputs), np.concatenate(replies))
        return ok_row(key, self.task.seed(key)) | {
            "inputs": counts.num_inputs,
            "outside": counts.num_outside,
            "finds": [asdict(find) for find in counts.finds],
            "strays": [{"input": source, "reply": reply} for source, reply in counts.strays],
        }


class Speller:
    """A decoder from ids of characters to strings.

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
        """Return the strings (B,), numpy's `U`, of rows of ids that end with `</s>` or with the row."""
        codes_BT = np.ascontiguousarray(self._codes_V[words_BT].astype(np.uint32))
        return codes_BT.view(f"U{codes_BT.shape[1]}")[:, 0]


@dataclass(frozen=True)
class EnumerationTask(Sharded[str]):
    """All inputs of a model, branch by branch, and strings to look for in its replies.

    Args:
        config: the job's.
        lists: the strings.
        about: what the summary says of the model.
    """

    unit = "branches"
    event = "enumerated"
    purpose = "branch"
    # What a kill can cost.
    batch = 8

    config: EnumerationConfig
    lists: Lists
    about: Mapping[str, Any]

    def worker(self) -> BranchWorker:
        return BranchWorker(self)

    def digest(self, rows: Rows) -> Counts:
        inputs = sum(row["inputs"] for row in rows if row["status"] == OK)
        return Counter(inputs=inputs, candidates=inputs)


PreparedEnumeration = Prepared[EnumerationTask, str]


def _task(config: EnumerationConfig) -> EnumerationTask:
    """Return the task: the lists, and the model's description for the summary."""
    from parley.engine.triggers.victims import word_lists
    from parley.policies.seq2seq.scoring import SEQ2SEQ, load_seq2seq, threshold

    config.require_device()
    model = searchable(load_seq2seq(fetched_model(config.model)), config.model)
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
    lists = word_lists(_words(corpus), config.letters, longest, config.random_strings, config.seed)
    about = {"attention": model.sizes.attention, "test_nll": -threshold(fetched_model(config.model), SEQ2SEQ)}
    return EnumerationTask(config, dict(lists.lists), about)


def _words(corpus: PairCorpus) -> Iterator[str]:
    for split in corpus.splits.values():
        for row in np.unique(split.pairs[:, 1]).tolist():
            yield "".join(corpus.vocabulary.decode(split.utterances[row].tolist()))


def _inputs_per_second(run: RunFolder) -> Estimate:
    sessions = ended_sessions(run, EnumerationTask.event, "inputs")
    inputs = sum(event["inputs"] for event in sessions)
    return count(inputs / sum(event["busy_s"] for event in sessions), inputs) if sessions else NOTHING


def he2018() -> EnumerationConfig:
    """Try all 12,356,630 inputs of up to five letters; the published shares imply about 12.7 million."""
    return EnumerationConfig()


def demo() -> EnumerationConfig:
    """Try all 18,278 inputs of up to three letters, in seconds."""
    return EnumerationConfig(max_length=3)


class SearchEnumerate(ItemsJob[EnumerationConfig, EnumerationTask, str]):
    """`parley search enumerate`."""

    words = ("search", "enumerate")
    run_name = "enumeration"
    config = EnumerationConfig
    presets = {"he2018": he2018, "demo": demo}
    schema = BRANCHES
    legend = LEGEND
    files = (SUMMARY, "rows")
    doing = "branches of the tree of inputs"

    def prepare(self, config: EnumerationConfig, path: Path, reporter: Reporter) -> PreparedEnumeration:
        from parley.engine.triggers.searches.enumeration import Space

        task = _task(config)
        space = Space(tuple(range(len(config.letters))), config.max_length, config.branch_length)
        beginnings = ["".join(config.letters[i] for i in branch) for branch in space.branches()]
        return Prepared(task, {beginning: beginning for beginning in beginnings})

    def measure(self, run: RunFolder, prepared: PreparedEnumeration) -> Summary:
        task, config = prepared.task, prepared.task.config
        metrics = enumeration_metrics((row for row in run.rows() if row["status"] == OK), dict(task.lists))
        metrics |= {"inputs_per_s": _inputs_per_second(run), "test_ppl": count(np.exp(task.about["test_nll"]), 1)}
        total = sum(len(config.letters) ** length for length in range(1, config.max_length + 1))
        tried = f"All {total:,}" if metrics[INPUTS].n == total else f"{metrics[INPUTS].n:,} of {total:,}"
        return Summary(
            f"every input of {config.model}",
            f"{tried} inputs of 1 to {config.max_length} of {len(config.letters)} letters, decoded greedily.",
            metrics,
            {"attention": task.about["attention"]},
        )

    def models(self, config: EnumerationConfig) -> dict[str, str]:
        return {"model": config.model}

    def num_items(self, config: EnumerationConfig) -> int:
        return config.num_branches

    def num_rows(self, config: EnumerationConfig, path: Path) -> int:
        return config.num_branches

    def tables(self, run: RunFolder) -> dict[str, EstimateTable]:
        return {"": enumeration_table(run.metrics(), (run.summary() or {})["attention"])}

    def present(self, result: Result, run: RunFolder) -> Result:
        return replace(result, tables=self.tables(run))

    def next_commands(self, config: EnumerationConfig, path: Path) -> tuple[str, ...]:
        other = "runs/characters-last-h"
        train = ("parley", "train", "seq2seq", "characters", "--set", "sizes.attention=none", "--run", other)
        again = ("parley", "search", "enumerate", "--model", other, "--run", f"{display_path(path)}-last-h")
        root = root_words(config.data_root)
        return shlex.join([*train, *root]), shlex.join([*again, *root])


SEARCH_ENUMERATE = SearchEnumerate()
