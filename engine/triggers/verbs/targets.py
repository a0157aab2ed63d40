"""The targets of a trigger search, by the name of their list; a run keeps its own in `targets.json`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parley.engine.core.runs.documents import plain, write_document
from parley.engine.triggers.target_pairs import read_pairs
from parley.engine.triggers.targets import (
    FREQUENT_WORDS,
    Skipped,
    Target,
    TargetList,
    beyond,
    from_file,
    malicious,
    normal,
    outside,
    random_targets,
    random_words,
    said_by_itself,
)
from parley.engine.triggers.verbs.config import LISTS, MAL, NORMAL, NORMAL_SAMPLED, RANDOM, TriggerConfig
from parley.engine.triggers.verbs.measured import own_replies
from parley.engine.triggers.verbs.models import HuggingFaceFolder, Models
from parley.envs.core.config import difference
from parley.envs.core.errors import CheckpointError, ConfigError, DataError, RunError
from parley.envs.core.registry import nearest
from parley.envs.core.seeds import stream
from parley.envs.core.storage.uris import display_path
from parley.envs.corpora.pairs.compiled import load_pairs
from parley.envs.corpora.pairs.contexts import windows, with_eot
from parley.envs.corpora.pairs.vocabulary import PairVocabulary

if TYPE_CHECKING:
    import numpy as np

FILE = "targets.json"


def open_targets(config: TriggerConfig, models: Models, path: Path) -> TargetList:
    """The targets of a run, those that it was started with where it has begun.

    Raises:
        ConfigError: no list or file is called so.
        DataError: the list is empty, its file or corpus is missing or broken, or (strict) the model cannot say one.
        CheckpointError: normal targets are wanted of a model that does not say which corpus it was fitted to.
        RunError: the targets are others than the run was started with.
    """
    kept = kept_targets(path)
    if kept is not None and config.targets in (NORMAL, NORMAL_SAMPLED):
        # Asking the model again takes minutes.
        return kept
    chosen = choose_targets(config, models)
    if kept is not None and (changes := difference(_plain(kept), _plain(chosen))):
        raise RunError(
            "the targets are others than this run was started with",
            where=config.targets,
            got="; ".join(changes)[:300],
            fix="undo the change to go on with the run, or give this run another name",
        )
    return chosen


def choose_targets(config: TriggerConfig, models: Models) -> TargetList:
    """The targets of a search that has not begun.

    Raises:
        ConfigError: no list or file is called so.
        DataError: the list is empty, its file or corpus is missing or broken, or (strict) the model cannot say one.
        CheckpointError: normal targets are wanted of a model that does not say which corpus it was fitted to.
    """
    made = _make(config, models)
    if config.strict and made.skipped:
        first = made.skipped[0]
        raise DataError(
            f"the model cannot say {len(made.skipped):,} targets",
            where=made.name,
            got=f"{first.sentence!r}: {first.reason}",
            fix="leave out --strict to skip and count such targets",
        )
    return limited(made.require_some(), config.limit, config.seed)


def save_targets(targets: TargetList, path: Path) -> None:
    """Keeps the targets in a run's folder.

    Raises:
        RunError: the disk refuses.
    """
    try:
        write_document(path / FILE, _plain(targets))
    except OSError as error:
        fix = f"make room or mend the disk, then parley resume {display_path(path)}"
        raise RunError("the targets cannot be written", where=path / FILE, got=error.strerror, fix=fix) from None


def num_targets(path: Path) -> int:
    """How many targets a run has; -1 when it does not say yet."""
    kept = kept_targets(path)
    return -1 if kept is None else len(kept.targets)


def _make(config: TriggerConfig, models: Models) -> TargetList:
    if isinstance(models.victim, HuggingFaceFolder):
        return _of_tokens(config, models.victim, models.thresholds.t_out)
    vocabulary, max_reply = models.victim.vocabulary, models.victim.sizes.max_reply
    if config.targets == MAL:
        return malicious(outside(vocabulary), too_long=beyond(max_reply))
    if config.targets == RANDOM:
        return random_targets(vocabulary, config.seed, *_wanted(config), longest=max_reply - 1)
    if config.targets in (NORMAL, NORMAL_SAMPLED):
        t_out = models.thresholds.t_out if config.targets == NORMAL_SAMPLED else None
        network, sources = models.victim.build("cpu"), _sources(config, models.provenance, vocabulary)
        return normal(network, sources, *_wanted(config), t_out=t_out, seed=config.seed)
    return from_file(_file(config), outside(vocabulary), too_long=beyond(max_reply), strict=config.strict)


def _of_tokens(config: TriggerConfig, folder: HuggingFaceFolder, t_out: float | None) -> TargetList:
    """Targets for a model whose words are tokens; those of a file as they are written."""
    from parley.policies.hugging_face.judges import frequent_words
    from parley.policies.hugging_face.tokens import unknown_words
    from parley.policies.hugging_face.victims import HuggingFaceCausal

    victim = folder.load("cpu")

    def unknown(words: Sequence[str]) -> tuple[str, ...]:
        return unknown_words(victim.tokenizer, " ".join(words))

    def too_long(words: Sequence[str]) -> bool:
        return victim.longest_reply is not None and len(victim.target(" ".join(words))) > victim.longest_reply

    if config.targets == MAL:
        return malicious(unknown, too_long=too_long)
    if config.targets in (NORMAL, NORMAL_SAMPLED):
        drawn_above = t_out if config.targets == NORMAL_SAMPLED else None
        return said_by_itself(own_replies(victim, config, drawn_above), *_wanted(config))
    if config.targets == RANDOM:
        words = frequent_words(victim.tokenizer, len(victim.embedding_VE), FREQUENT_WORDS)
        return random_words(words, config.seed, unknown, *_wanted(config))
    if folder.has_prompts:
        assert isinstance(victim, HuggingFaceCausal), "others take no prompts"
        prompted: HuggingFaceCausal = victim

        def refused(prompt: str, target: str) -> Skipped | None:
            if lacking := unknown_words(victim.tokenizer, target):
                return Skipped(target, lacking)
            longest = prompted.behind(prompt).longest_reply
            is_long = longest is not None and len(victim.target(target)) > longest
            return Skipped(target, (), too_long=True, behind_prompt=not too_long([target])) if is_long else None

        target_file = Path(config.hugging_face.target_file) if config.hugging_face.target_file else None
        return read_pairs(_file(config), refused, target_file=target_file, strict=config.strict)
    return from_file(_file(config), unknown, too_long=too_long, words_of=as_written, strict=config.strict)


def as_written(line: str) -> list[str]:
    """The whole line as the only word; none of a blank one."""
    return [line.strip()] if line.strip() else []


def require_list(config: TriggerConfig) -> None:
    """Finds out before anything is loaded whether there are such targets.

    Raises:
        ConfigError: no list or file is called so, or no corpus is named to whose sources a model of tokens replies.
    """
    if config.targets not in LISTS:
        _file(config)
    elif config.is_hugging_face and config.targets in (NORMAL, NORMAL_SAMPLED) and not config.corpus:
        what = f"the list {config.targets} of a Hugging Face model is what it replies to a corpus"
        raise ConfigError(what, where="--corpus", got="none", fix="--corpus NAME, or --targets mal, random, or a file")


def _file(config: TriggerConfig) -> Path:
    path = Path(config.targets)
    if not path.is_file():
        what = f"no list of targets is called {config.targets!r}{nearest(config.targets, LISTS)}"
        raise ConfigError(what, fix=f"lists: {', '.join(LISTS)}, or a file with one sentence a line")
    return path


def _wanted(config: TriggerConfig) -> tuple[int, ...]:
    return (config.limit,) if config.limit else ()


def _sources(config: TriggerConfig, provenance: Mapping[str, Any], vocabulary: PairVocabulary) -> Iterator[np.ndarray]:
    """Sources of the test split that the model was measured on."""
    name = config.corpus or provenance.get("corpus")
    if not isinstance(name, str):
        raise CheckpointError(
            "the checkpoint does not say which corpus the model was fitted to, so it has no sources to answer",
            where=config.model,
            fix="name one with --corpus, or another list with --targets",
        )
    turns = provenance.get("turns", 1)
    corpus = load_pairs(name, config.data_root, vocabulary=len(vocabulary) - (turns > 1))
    words = with_eot(corpus.vocabulary) if turns > 1 else corpus.vocabulary
    if words.digest != vocabulary.digest:
        raise DataError(
            "the corpus of the model has other words than the model",
            where=name,
            got=f"{len(words)} words ({words.digest}), not {vocabulary.digest}",
            fix="name the corpus and the data root that the model was fitted with by --corpus and --data-root",
        )
    test = corpus.splits["test"]
    if turns > 1:
        test = windows(test, turns, len(corpus.vocabulary))
    return (test.utterances[int(source)] for source, _ in test.pairs)


def limited(targets: TargetList, num: int, seed: int) -> TargetList:
    """At most `num` targets of a list, drawn without replacement, in the list's order; 0 for all."""
    if not num or len(targets.targets) <= num:
        return targets
    drawn = stream(seed, "targets", targets.name).permutation(len(targets.targets))[:num]
    return replace(targets, targets=tuple(targets.targets[place] for place in sorted(drawn.tolist())))


def _plain(targets: TargetList) -> dict[str, Any]:
    found: dict[str, Any] = plain(
        {
            "name": targets.name,
            "targets": {target.key: target.words for target in targets.targets},
            "skipped": [skipped._asdict() for skipped in targets.skipped],
        }
    )
    if prompts := {target.key: target.prompt for target in targets.targets if target.prompt is not None}:
        found["prompts"] = prompts
    return found


def kept_targets(path: Path) -> TargetList | None:
    """The targets that a run was started with; None where it has not begun.

    Raises:
        RunError: they cannot be read.
    """
    path = path / FILE
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return TargetList(
            found["name"],
            tuple(Target(key, tuple(words), found.get("prompts", {}).get(key)) for key, words in found["targets"].items()),
            tuple(Skipped(**{**entry, "unknown": tuple(entry["unknown"])}) for entry in found["skipped"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(
            "the targets of the run cannot be read", where=path, got=error, fix="restore the file from a copy"
        ) from None
