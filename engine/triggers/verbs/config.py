"""Settings of `parley search`, `search table` and `search text`, the words of inputs, and the columns of all rows of searches.

A row is a target; of a universal search an input, of an enumeration a branch. The words that inputs of `parley search text`
are made of are a file's, or those of the targets; a run keeps its own copy.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from parley.engine.core.runs.documents import read_json, whole, write_document
from parley.engine.core.runs.parts import ANSWERED, NO_REPLIES, row_schema
from parley.engine.core.stats.statistics import Row
from parley.engine.core.verbs.sharded import ShardedConfig
from parley.engine.core.verbs.transcripts import ASSISTANT, USER, Transcript
from parley.engine.triggers.budget import BUDGET, UNBOUNDED, Spending, read_budget
from parley.engine.triggers.catalogue import EVOLUTION, QCG, TEXT_METHODS, searches
from parley.engine.triggers.methods.evolution import EvolutionSettings, Words
from parley.engine.triggers.methods.prs import PrsSettings
from parley.engine.triggers.methods.qcg import QcgSettings
from parley.engine.triggers.methods.settings import SearchSettings
from parley.engine.triggers.methods.writing import WritingSettings
from parley.engine.triggers.success import FitnessBy, FitnessSettings, SuccessSettings
from parley.engine.triggers.targets import TargetList, prototypes
from parley.envs.core.config import (
    Configuration,
    NonNegativeFloat,
    NonPositiveFloat,
    NumItemsOrAll,
    PositiveFloat,
    PositiveInt,
    Share,
)
from parley.envs.core.errors import ConfigError, DataError, RunError
from parley.envs.core.registry import nearest
from parley.envs.core.storage.copies import CHECKPOINT
from parley.envs.core.storage.uris import HUGGING_FACE, display_path, local_copy
from parley.envs.corpora.lines import utf8_text
from parley.policies.chat.addresses import GGUF, is_local
from parley.policies.chat.settings import ChatAsking, PrecisionSettings, WeightSettings
from parley.policies.hugging_face import ANY, alphabet_pattern

if TYPE_CHECKING:
    from parley.policies.chat.model import Chat

TEXT_JOB = "search-text"
"""The job that searches by replies alone, whose settings of messages are its own."""
WORDS = "words.json"
"""The file of a run that holds them."""
_ENTRY = "words"


def input_words(path: Path, named: str, targets: TargetList) -> tuple[str, ...]:
    """Return the words of a run; a run that has begun keeps those that it started with.

    Args:
        path: the run's folder.
        named: a file of words; empty for those of the targets, of their prompts, and of the list mal.
        targets: of the run.

    Raises:
        ConfigError: the file is empty.
        DataError: it cannot be read, or is no UTF-8.
        RunError: the words of the run cannot be read.
    """
    if (path / WORDS).is_file():
        with whole(path / WORDS):
            return tuple(map(str, read_json(path / WORDS)[_ENTRY]))
    if not named:
        texts = [text for target in targets.targets for text in (target.prompt or "", *target.words)]
        return tuple(dict.fromkeys(word for text in (*texts, *map(" ".join, prototypes())) for word in text.split()))
    words = tuple(dict.fromkeys(utf8_text(Path(named)).split()))
    if not words:
        raise ConfigError("the file of words is empty", where="--words", got=named, fix="write words there")
    return words


def save_words(words: Sequence[str], path: Path) -> None:
    """Write the words to a run's folder.

    Raises:
        RunError: the disk refuses.
    """
    try:
        write_document(path / WORDS, {_ENTRY: list(words)})
    except OSError as error:
        fix = f"make room or mend the disk, then parley resume {display_path(path)}"
        raise RunError("the words cannot be written", where=path / WORDS, got=error.strerror, fix=fix) from None


NORMAL, NORMAL_SAMPLED, MAL, RANDOM = LISTS = ("normal", "normal-sampled", "mal", "random")
"""Targets that need no file."""
_OF_LOSSES = ("tokens", "seconds")
"""Parts of the budget of a search that reads losses."""
OWN = "own"
"""The name of the searched model as the judge of its own inputs."""


def is_hugging_face(model: str) -> bool:
    """Return True if a model is named as one of Hugging Face's library."""
    return model.startswith((HUGGING_FACE, GGUF))


def most_of(limit: int) -> str:
    """Return the most targets of a list to search for; the setting 0 means all."""
    return f"at most {limit:,}" if limit else "all"


def names_of(text: str) -> list[str]:
    """Return the names of a list between commas."""
    return [name.strip() for name in text.split(",")]


def model_labels(models: str) -> dict[str, str]:
    """Return the folders of the models of a list by label: the folder's name, numbered if two are equal."""
    folders = [local_copy(model.partition(":")[2] if is_hugging_face(model) else model) for model in names_of(models)]
    names = [(folder.parent if folder.name == CHECKPOINT else folder).resolve().name for folder in folders]
    names = [re.sub(r"[^\w-]+", "-", name).strip("-_") for name in names]
    seen: Counter[str] = Counter()
    labels = {}
    for name, folder, model in zip(names, folders, names_of(models), strict=True):
        seen[name] += 1
        kind = model.partition(":")[0] + ":" if is_hugging_face(model) else ""
        labels[f"{name}-{seen[name]}" if names.count(name) > 1 else name] = kind + display_path(folder)
    return labels


def forbidden_texts(listed: str) -> tuple[str, ...]:
    """Return the texts of a list that may not stand in an input."""
    return tuple(text.strip() for text in listed.split(",") if text.strip())


def require_method(name: str) -> None:
    """Raise ConfigError if there is no method of that name; a user's own file is checked when it is loaded.

    Raises:
        ConfigError: no method is called so, with the nearest name.
    """
    if name in TEXT_METHODS:
        fix = "parley search text, or parley search methods to tell it beside others"
        raise ConfigError(f"{name} searches by replies, which has a verb of its own", where="--method", got=name, fix=fix)
    if name not in searches and ".py:" not in name:
        what = f"no method of search is called {name!r}{nearest(name, searches)}"
        raise ConfigError(what, fix=f"methods: {', '.join(searches)}, or path/file.py:Class")


@dataclass(frozen=True, kw_only=True)
class ObjectiveSettings(Configuration):
    """The objective, beside what the wanted type of hit sets."""

    topic: ClassVar[str] = "search"

    lm_weight: PositiveFloat | None = None
    """lambda_in, the weight of the input's mean nats (lm): fluency, for any hits; when not given 1 for io hits, else none."""
    satisfied_weight: Share = 0.0
    """Weight of satisfied terms of sampled objectives: 0 in the paper, 0.01 in the released code."""
    mellowmax: NonNegativeFloat = 0.0
    """Hugging Face models: alpha of a mellowmax over a target's words in the place of their mean (nanoGCG); 0 for the mean."""
    t_out: NonPositiveFloat | None = None
    """Log probability of a usual word of a reply in nats, at most 0; by default that of the model's checkpoint."""
    t_in: NonPositiveFloat | None = None
    """The same of an input's word; by default that of the language model's checkpoint."""


@dataclass(frozen=True, kw_only=True)
class TriggerEngineSettings(Configuration):
    """Settings of the workers."""

    topic: ClassVar[str] = "search"

    batch_size: PositiveInt = 16
    """Searches that a worker advances side by side, of as many targets as there are places for."""
    unknown: bool = False
    """Allow `<unk>` in an input, as in the released code."""


@dataclass(frozen=True, kw_only=True)
class PromptSettings(PrecisionSettings):
    """The prompts of a Hugging Face model, and the precision of its weights."""

    length: PositiveInt = 14
    """Tokens of an input; the slots of a template share them."""
    template: str | None = None
    """user, prefix, suffix, system, a JSON file of messages, or a prompt, with {} and {prompt}; else a user's turn."""
    end: bool = True
    """The model has to end its reply behind the target; false: its reply has to begin with the target."""


@dataclass(frozen=True, kw_only=True)
class HuggingFaceSettings(PromptSettings, WeightSettings):
    """Settings for loading and asking a Hugging Face model."""

    topic: ClassVar[str] = "hugging-face"

    target_file: str = ""
    """JSON of targets by BehaviorID, for a file of pairs without a column of targets (HarmBench)."""
    typed: bool = True
    """Refuse inputs whose text, typed into its place, gives other tokens, and count them."""
    alphabet: str = ANY
    """Tokens that stand in inputs: any, ascii, letters (A to z, blanks), lower (a to z, blanks), or a regular expression."""
    forbidden: str = ""
    """Texts that stand in no input, separated by commas."""
    start: str = ""
    """Text that every search starts from; drawn at random when empty."""

    def __post_init__(self) -> None:
        super().__post_init__()
        alphabet_pattern(self.alphabet)


@dataclass(frozen=True, kw_only=True)
class SearchingConfig(ShardedConfig):
    """Settings of a search, whatever its targets."""

    lm: str = ""
    """Judge of inputs: run of parley train lm; for a Hugging Face model hf:FOLDER, or own, the (first) searched one."""
    method: str = "gibbs-enum"
    """gibbs-enum, random, hotflip, gcg, autoprompt, arca, pez, beast, beam, relaxation, or path/file.py:Class."""
    limit: NumItemsOrAll = 500
    """Number of targets at most; 0 for all, which of normal and random lists are 500. They are drawn."""
    corpus: str = ""
    """Corpus whose test sources the normal targets answer, and whose test pairs set a Hugging Face model's thresholds."""
    search: SearchSettings = field(default_factory=SearchSettings)
    """Length and width of a search."""
    objective: ObjectiveSettings = field(default_factory=ObjectiveSettings)
    """The objective to minimise."""
    engine: TriggerEngineSettings = field(default_factory=TriggerEngineSettings)
    """Batches and memory of the search."""
    hugging_face: HuggingFaceSettings = field(default_factory=HuggingFaceSettings)
    """Loading and prompts of a Hugging Face model; another one that judges inputs (lm) is loaded alike."""
    success: SuccessSettings = field(default_factory=SuccessSettings)
    """When the reply of a Hugging Face model to what was typed is a success."""
    chat: ChatAsking = field(default_factory=ChatAsking)
    """Settings of a chat model that judges replies."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.methods:
            require_method(name)

    @property
    def methods(self) -> tuple[str, ...]:
        """Return the methods by name."""
        return (self.method,)


@dataclass(frozen=True, kw_only=True)
class TriggerConfig(SearchingConfig):
    """The model, and the sentences that it is to say."""

    model: str = "runs/seq2seq"
    """Run or checkpoint folder of the searched model (parley train seq2seq), hf:FOLDER of a Hugging Face one, or gguf:FILE."""
    targets: str = MAL
    """normal (the model's greedy replies), normal-sampled, mal, random, a file of sentences, or of pairs (CSV, JSONL)."""
    hit: str = "o-sample-min-k1"
    """Wanted hits: o-greedy, or o- or io-sample-avg or -min-kK, K = 1, 2, ...; the others are read off the same inputs."""
    strict: bool = False
    """Refuse targets that the model cannot say, for a word or their length, instead of skipping and counting them."""
    budget: str = ""
    """What a restart may cost beside search.max_candidates: tokens=N that the model reads, seconds=S, or both with a comma."""

    def __post_init__(self) -> None:
        super().__post_init__()
        read_budget(self.budget, "--budget", _OF_LOSSES)
        if self.model.strip() in (HUGGING_FACE, GGUF):
            kind = self.model.strip()
            fix = f"name a folder that save_pretrained wrote: --model {HUGGING_FACE}FOLDER, or --model {GGUF}FILE"
            raise ConfigError(f"{kind!r} names no folder", where="--model", got=self.model, fix=fix)

    @property
    def is_hugging_face(self) -> bool:
        """Return True if the model is one of Hugging Face's library."""
        return is_hugging_face(self.model)

    @property
    def limits(self) -> Spending:
        """Return what a restart may cost."""
        return replace(read_budget(self.budget, "--budget", _OF_LOSSES), queries=self.search.max_candidates)

    @property
    def judge(self) -> str:
        """Return the model that judges inputs; empty if none does."""
        return self.model if self.lm == OWN else self.lm


@dataclass(frozen=True, kw_only=True)
class TextSearchConfig(ShardedConfig):
    """The model, the sentences that it is to say, and the evolution of inputs."""

    model: str = ""
    """A chat model by its address: openai:URL#MODEL, hf:FOLDER, gguf:FILE, path/file.py:Name, or a run of a response model."""
    targets: str = MAL
    """A file of (prompt, target) pairs (CSV, JSONL), a file of sentences, or mal."""
    limit: NumItemsOrAll = 20
    """Number of targets at most, the seed's choice; 0 for all."""
    target_file: str = ""
    """JSON of targets by BehaviorID, for a file of pairs without a column of targets (HarmBench)."""
    template: str = ""
    """user, prefix, suffix, system, or a JSON file of messages, with {} and {prompt}; suffix or user when empty."""
    words: str = ""
    """A file of words that inputs are made of; those of the targets, their prompts and the list mal when empty."""
    end: bool = False
    """The model has to end its reply behind the target; false: its reply has to begin with the target."""
    forbidden: str = ""
    """Texts that stand in no input, whatever their case, separated by commas."""
    alphabet: str = ANY
    """Characters of each word of an input: any, ascii, letters (A to z), lower (a to z), or a regular expression."""
    start: str = ""
    """Words that evolution starts from, as many as search.num_words; drawn at random when empty."""
    attacker: str = ""
    """A chat model that writes the inputs and reads their replies, by its address; when empty --method proposes words."""
    method: Literal["evolution", "prs", "qcg"] = "evolution"
    """evolution (reads replies), or prs and qcg, which read the log probability of the target's first token, too."""
    proxy: str = ""
    """qcg: a chat model with scores that orders inputs before they are asked about, hf:FOLDER or gguf:FILE."""
    search: EvolutionSettings = field(default_factory=EvolutionSettings)
    """Settings of the evolution, and the number of replies of any search."""
    writing: WritingSettings = field(default_factory=WritingSettings)
    """Settings of an attacker that writes inputs."""
    prs: PrsSettings = field(default_factory=PrsSettings)
    """Settings of prs."""
    qcg: QcgSettings = field(default_factory=QcgSettings)
    """Settings of qcg."""
    fitness: FitnessSettings = field(default_factory=FitnessSettings)
    """The fitness of an input."""
    success: SuccessSettings = field(default_factory=SuccessSettings)
    """When a reply is a success, which ends the search for its target."""
    chat: ChatAsking = field(default_factory=ChatAsking)
    """Settings of the model, and of one that judges."""
    budget: str = ""
    """What the search for a target, and its random inputs, may cost beside search.max_queries: tokens=N of the model's,
    attacker_tokens=N, seconds=S, money=M (chat.prices), with commas between them; one input is asked about at a time then."""

    def __post_init__(self) -> None:
        super().__post_init__()
        alphabet_pattern(self.alphabet)
        budget = read_budget(self.budget, "--budget", BUDGET[1:])
        if budget.money and not self.chat.prices:
            raise ConfigError(
                "a budget of money needs prices", where="--budget", got=self.budget, fix="--set chat.prices=IN/OUT"
            )
        if budget.attacker_tokens and not self.attacker:
            what, fix = "no attacker reads or writes tokens", "name an --attacker, or another part of the budget"
            raise ConfigError(what, where="--budget", got=self.budget, fix=fix)
        num = len(self.start.split())
        if self.start and (self.attacker or num != self.search.num_words):
            what, got = f"evolution starts from {self.search.num_words} words", f"{num} words, --attacker {self.attacker!r}"
            fix = f"as many words as inputs have (num_words={num}), and no attacker, which writes its own first inputs"
            raise ConfigError(what, where="--start", got=got, fix=fix)
        if self.attacker and self.method != EVOLUTION:
            fix = "leave one of --attacker and --method out"
            raise ConfigError("an attacker writes all inputs", where="--method", got=self.method, fix=fix)
        if (self.method == QCG) != bool(self.proxy):
            what, fix = "a proxy orders the inputs of qcg", "give both --method qcg and --proxy hf:FOLDER, or neither"
            raise ConfigError(what, where="--proxy", got=f"--method {self.method}, --proxy {self.proxy!r}", fix=fix)
        if self.start and not self.allows(tuple(self.start.split())):
            raise ConfigError(
                "the text to start from is forbidden", where="--start", got=self.start, fix="start from other words"
            )

    @property
    def limits(self) -> Spending:
        """Return what the search for a target may cost."""
        return replace(
            read_budget(self.budget, "--budget", BUDGET[1:]),
            queries=most if (most := self.search.max_queries) < UNBOUNDED else 0,
        )

    @property
    def fitness_by(self) -> FitnessBy:
        """Return the kind of fitness; methods that read log probabilities look at those by default."""
        return "first-token" if self.method != EVOLUTION and self.fitness.by == "target" else self.fitness.by

    @property
    def reads_logprobs(self) -> bool:
        """Return True if the fitness of an input is the log probability of the target's first token."""
        return self.fitness_by == "first-token"

    @property
    def asking(self) -> ChatAsking:
        """Return the settings of asking the model; a server shows what the search reads."""
        return replace(self.chat, logprobs="first") if self.reads_logprobs and self.chat.logprobs == "no" else self.chat

    def allows(self, words: Words) -> bool:
        """Return True if an input has no forbidden text, and all its words fit the alphabet."""
        text, pattern = " ".join(words).lower(), alphabet_pattern(self.alphabet)
        is_clean = not any(forbidden.lower() in text for forbidden in forbidden_texts(self.forbidden))
        return is_clean and all(pattern.fullmatch(word) for word in words)


@dataclass(frozen=True)
class TextSearchPlan:
    """A checked configuration with its targets and words.

    Args:
        config: the settings.
        targets: the sentences that the model is to say.
        words: the words that inputs are made of.
    """

    config: TextSearchConfig
    targets: TargetList
    words: tuple[str, ...]


_DRAWN = {
    # Of how many drawn answers how many are successes, and how many are no replies.
    "samples sampled": int,
    "drawn_no_replies": NO_REPLIES,
    # Answers that a chat model which judges was asked for, verdicts of it that were neither yes nor no, and answers of it to
    # replies of which it gave no verdict, for they were no reply.
    "judge_answers judge_unparsable judge_no_reply": int,
}
_HIT = {"type": str, "hit": bool}
_RESTART = {
    # Its number, the words of the input it ended with, joined by blanks, and the objective there.
    "restart": int,
    "words": str,
    "loss": float,
    # The objective at the start, then after every sweep; the last sweep may have been cut short.
    "loss_by_sweep": [float],
    "sweeps": int,
    # Positions looked at, inputs taken over, inputs tried, and why it ended: "converged", "satisfied" or "limit".
    "visits accepted candidates": int,
    "stopped": str,
    # Candidates among those tried that the rules for inputs refused, and the ids of the words.
    "refused": int,
    "ids": [int],
    # What it cost the model: tokens, as if each input were read by itself, and seconds, null unless they are limited.
    "tokens": int,
    "seconds": float,
    "hits": [_HIT],
    # Of one-hot inputs, by position: the two largest weights; the change of embedding and encoder state as each becomes a word,
    # and the norms of these then.
    "largest second word_change word_norm state_change state_norm": [float],
}
TRIGGERS = row_schema(
    {
        # The sentence that is searched for, and the input that is kept, words joined by blanks; which restart found it.
        "target trigger": str,
        "restart": int,
        "loss": float,
        # How likely the target is after it: its words, as the model has them, and its end, nats of each, whether each is the
        # likeliest; nats per word of the input, null without a language model.
        "target_words": [str],
        "word_log_probability": [float],
        "likeliest": [bool],
        "input_log_probability": float,
        # The request that the target comes with, the ids of the input, what is typed into each slot of the prompt, and whether
        # typing it gives these ids again; null where inputs have no text or targets no request.
        "prompt": str,
        "trigger_ids": [int],
        "typed": [str],
        "retokenised": bool,
        # Of Hugging Face models: what is replied greedily to the typed input, and whether that is a success.
        "reply": str,
        **ANSWERED,
        "verified": bool,
        **_DRAWN,
        # Whether it is a hit, by type, and every restart that was needed.
        "hits": [_HIT],
        "restarts": [_RESTART],
    }
)
"""One target of a trigger search per row, with all of its restarts."""
_PAIR = {
    # The model's label; a pair's key, request and target, and whether searches saw it.
    "model key prompt target": str,
    "searched": bool,
    # Nats of a token of the target behind the input; whether it is a hit of the wanted type, null of the empty input.
    "nats": float,
    "hit": bool,
    # What is replied greedily to the typed input, whether that is a success.
    "retokenised": bool,
    "reply": str,
    **ANSWERED,
    "verified": bool,
    **_DRAWN,
}
UNIVERSAL = row_schema(
    {
        # "found", "random" or "empty"; the input, what is typed into each slot, and its ids.
        "kind trigger": str,
        "typed": [str],
        "trigger_ids": [int],
        # Of an input that was searched for, null of others: the objective, mean over the searched pairs, at the end and by
        # sweep, visits, inputs tried, how many of them were refused, and why it ended.
        "loss": float,
        "loss_by_sweep": [float],
        "visits candidates refused": int,
        "stopped": str,
        # What the model makes of it behind every prompt.
        "pairs": [_PAIR],
    }
)
"""One input of a universal search per row, behind all prompts."""
TRANSFERRED = row_schema(
    {
        # The run that an input was found in (or "no input"), its key there, and who was asked, by its label.
        "source trigger model": str,
        # Of an input the key ("trigger") of the same prompt without any; null for "no input".
        "control": str,
        # The request, the target, and what was typed into each slot.
        "prompt target": str,
        "typed": [str],
        # What was replied greedily, whether it ended, whether it is a success.
        "reply": str,
        **ANSWERED,
        "ended verified": bool,
        **_DRAWN,
    }
)
"""One trigger typed to one model per row."""
TEXT_TRIGGERS = row_schema(
    {
        # The request, the target, the input that is kept, and what is typed into each slot.
        "prompt target trigger": str,
        "typed": [str],
        # How close the reply is to the target (1 more for a success), then of the best input of each generation; null where
        # there was no reply.
        "fitness": float,
        "fitness_by_generation": [float],
        # Replies that were asked for; the one to the input, whether it ended, and whether it is a success.
        "queries": int,
        "reply": str,
        **ANSWERED,
        "ended verified": bool,
        # Whether the reply to no input is a success, and one to a random input; the best fitness and the number of these.
        "empty_verified random_verified": bool,
        "random_fitness": float,
        "random_queries": int,
        # Tokens of these replies and of those to random inputs, of the attacker; seconds and money, null unless limited.
        "tokens random_tokens attacker_tokens": int,
        "seconds random_seconds money random_money": float,
        # Answers of the model that are no replies, by what was asked: "found", "random", "empty" or "drawn".
        "no_replies": NO_REPLIES,
        # What an attacker that writes inputs was asked, 0 where words evolve; and its answers that are no replies.
        "attacker_answers": int,
        "attacker_no_replies": NO_REPLIES,
        **_DRAWN,
    }
)
"""One target of a search by replies alone per row."""
# A string of a list, the list's name, whether it is a whole reply to some input, and the first such input.
_FIND = {"list string": str, "whole": bool, "input": str}
_STRAY = {"input": str, "reply": str}
# Inputs that begin alike, replies to them that are no word of the corpus, and a few of those.
BRANCHES = row_schema({"inputs outside": int, "finds": [_FIND], "strays": [_STRAY]})
"""One branch of the tree of all inputs per row: what a model replies to every one of them."""


def run_template(job: str, config: Mapping[str, Any], name: str, *, has_prompts: bool) -> Chat:
    """Return the messages that a search stood in, by the settings that name them.

    Raises:
        ConfigError: the searched model takes no messages, or the prompt is written out.
    """
    from parley.policies.chat.model import Message
    from parley.policies.chat.templates import SLOT, template_of

    settings = config if job == TEXT_JOB else config.get("hugging_face", {})
    if job != TEXT_JOB and not (settings and is_local(str(config["model"]))):
        fix = "name a search of --model hf:FOLDER or gguf:FILE"
        raise ConfigError("the search's model takes no messages", where=name, got=str(config.get("model")), fix=fix)
    template = template_of(settings["template"] or None, has_prompts=has_prompts)
    if isinstance(template, str):
        fix = "search with one of the templates suffix, prefix, system and user, or a file of messages"
        what = "a prompt that is written out cannot be typed to other models"
        raise ConfigError(what, where=name, got=template[:80], fix=fix)
    return template or (Message("user", SLOT),)


def trigger_transcripts(job: str, config: Mapping[str, Any]) -> Callable[[Row], Transcript]:
    """Return how a row of a search reads as a conversation: the messages as they were typed, and the reply.

    Args:
        job: of the run.
        config: of the run.
    """
    from parley.policies.chat.templates import filled_chat

    def transcript(row: Row) -> Transcript:
        plain = trigger_transcript(row)
        if not row["typed"]:
            return plain
        try:
            template = run_template(job, config, "", has_prompts=row.get("prompt") is not None)
        except (ConfigError, DataError):
            return plain
        typed = [(message.role, message.content) for message in filled_chat(template, row.get("prompt"), row["typed"])]
        return replace(plain, messages=(*typed, *(message for message in plain.messages if message[0] == ASSISTANT)))

    return transcript


def trigger_transcript(row: Row) -> Transcript:
    """Return an input and the reply to it as a conversation; where nothing was typed, the user says the input itself."""
    typed = " ".join(row["typed"] or []) or row["trigger"]
    prompt, reply = row.get("prompt"), row.get("reply")
    messages = ((USER, f"{prompt} {typed}" if prompt else typed), *([(ASSISTANT, reply)] if reply else []))
    hits = {f"hit.{hit['type']}": hit["hit"] for hit in row.get("hits") or []}
    names = ("verified", "empty_verified", "random_verified", "loss", "fitness", "queries")
    scores = {**{name: row.get(name) for name in names}, **hits}
    return Transcript(messages, row["target"], scores, typed=tuple(row["typed"] or ()), success=row.get("verified"))


def universal_transcript(row: Row) -> Transcript:
    """Return an input behind all prompts as one conversation, a turn of each side for a prompt."""
    typed = " ".join(row["typed"] or []) or row["trigger"]
    messages: list[tuple[str, str]] = []
    for pair in row["pairs"]:
        messages.append((USER, f"{pair['prompt']} {typed}" if pair["prompt"] else typed))
        messages += [(ASSISTANT, pair["reply"])] if pair["reply"] else []
    successes = [pair["verified"] for pair in row["pairs"] if pair["verified"] is not None]
    share = sum(successes) / len(successes) if successes else None
    scores = {"kind": row["kind"], "verified": share, "loss": row["loss"]}
    return Transcript(tuple(messages), scores=scores, typed=tuple(row["typed"] or ()))
