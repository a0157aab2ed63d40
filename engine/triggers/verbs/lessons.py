"""Lessons of a hardening: found triggers, prompts with the replies that the model shall give, and the settings.

Triggers are inputs after which a model said a target, as searches have found them and as they are typed. A run keeps its
lessons, by split, in `lessons.json`:

  * trigger: a prompt with an input that was found; the answer that the user wrote, or the model's own without the input.
  * clean: a context of a corpus; the model's own reply as it is, or the recorded one. If a strategy has changed it so that
    the answer should change, the changed context is its contrast: the reply shall be less likely there.
  * perturbed: a clean context that a strategy changed although the answer should stay; the reply to the clean one.

Lessons of the control are those of the training split with clean ones, repeated, in the place of all others, and no contrasts;
its best epoch is chosen by clean ones alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from parley.engine.core.runs.documents import write_document
from parley.engine.core.runs.remote_sync import fetched_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import Row, finished
from parley.engine.core.verbs.job import drawn
from parley.engine.core.verbs.supervised import SupervisedConfig, require_splits
from parley.engine.perturb import catalogue
from parley.engine.perturb.strategy import CONTROL, Expectation, PerturbSettings, Strategy
from parley.engine.triggers.catalogue import read_lines
from parley.envs.core.config import (
    Configuration,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ShareBelowOne,
    check,
)
from parley.envs.core.errors import ConfigError, DataError, RunError
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.core.storage.uris import HUGGING_FACE, display_path
from parley.envs.corpora.pairs.compiled import load_pairs
from parley.envs.corpora.pairs.contexts import OWN_TURNS, examples
from parley.envs.corpora.pairs.turns import Example, Turns, detokenise
from parley.policies.chat.addresses import GGUF, is_local, weights_of
from parley.policies.chat.settings import DateSettings, LoraSettings
from parley.policies.core.settings import FitConfig

OWN = "own"
"""Replies that are the model's own, as it is before it learns anything."""
REFUSAL = "I am sorry, I did not understand that."
"""Default reply of a hardened model to a trigger."""


def hardening_recipe() -> FitConfig:
    """Return three epochs of Adam over small batches; the best epoch by held-out lessons is kept."""
    return FitConfig(learning_rate=3e-4, batch_size=8, clip=1.0, max_epochs=3, patience=3, decay_epochs=0, precision="float32")


@dataclass(frozen=True, kw_only=True)
class LessonSettings(Configuration):
    """The lessons of a model that campaigns choose, too."""

    found: Literal["hits", "all"] = "hits"
    """Inputs of a search that are triggers: hits of the wanted type (search text: those whose reply is a success), or all."""
    reply: str = REFUSAL
    """Reply to a trigger; own for the model's own greedy reply to the prompt without it."""
    strategies: str = ""
    """Strategies of perturbation, separated by commas: names, path/file.py:Name, or all, should-not-change, should-change; none
    for contexts as they are, with --clean recorded a plain fit to a corpus. Contexts that should not change the answer are
    answered as before; behind those that should it becomes less likely."""
    corpus: str = "helpdesk"
    """Corpus whose contexts keep the model as it is (parley data list), or a source<TAB>reply file."""
    clean: Literal["own", "recorded"] = "own"
    """Replies to them: the model's own greedy replies, or the recorded ones."""
    limit: NonNegativeInt = 48
    """Contexts of the training split at most, and a third as many of the others, the seed's choice of them; 0 for all. Of the
    others 100 at most."""
    max_tokens: PositiveInt = 24
    """Tokens of a reply at most; more in what is measured where a target or the wanted answer has more."""
    method: Literal["lora", "full"] = "lora"
    """Weights to train: low-rank adapters, which are added to the weights in the end (extra lora), or all weights."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.strategies:
            catalogue.require_names(self.strategies, CONTROL)
            names = catalogue.names(self.strategies)
            check(self, "strategies", CONTROL not in names or len(names) == 1, f"strategies, or {CONTROL} alone: no strategy")
        if not self.reply.strip():
            raise ConfigError("a trigger needs an answer", where="--reply", fix=f"write one, or {OWN}")


@dataclass(frozen=True, kw_only=True)
class HardeningSettings(LessonSettings, DateSettings):
    """The lessons of a model, and its training."""

    alpha: NonNegativeFloat = 1.0
    """Should-Change: weight of the margin beside the likelihood."""
    margin: PositiveFloat = 0.1
    """Should-Change: M, by how much a reply is to be less likely behind the changed context, in nats per token."""
    held_out: ShareBelowOne = 0.3
    """Share of the targets, or requests of fewer than three targets, whose triggers are not learned from but measured; half as
    many more choose the best epoch."""
    batch_size: PositiveInt = 16
    """Prompts that the model answers side by side."""
    template: str = ""
    """Prompt that triggers stand in, as hugging_face.template of parley search; that of each search when empty."""
    lora: LoraSettings = field(default_factory=LoraSettings)
    """The adapters."""
    fit: FitConfig = field(default_factory=hardening_recipe)
    """The recipe."""
    perturb: PerturbSettings = field(default_factory=PerturbSettings)
    """Settings of the perturbations of contexts."""

    trigger_share: ClassVar[float] = 0.5
    """Share of the lessons of an epoch that are triggers at least: they are repeated until they are as many. No
    result had another."""


@dataclass(frozen=True, kw_only=True)
class TrainHardenedConfig(HardeningSettings, SupervisedConfig):
    """The model to harden, and its lessons."""

    added: ClassVar[Mapping[str, Any]] = {"weights": []}

    model: str = ""
    """Causal model to begin with: hf:FOLDER, gguf:FILE, or hf:RUN of an earlier hardening."""
    searches: str = ""
    """Runs of parley search, search universal, search text or search methods, separated by commas, whose triggers are answered
    by --reply; none when empty."""
    control: bool = False
    """Train as long on unchanged contexts alone: what that brings is not owed to triggers or perturbations."""
    weights: tuple[float, ...] = ()
    """Weight of each of --searches, in their order: a share of its triggers is learned from, of the largest weight all of them;
    all triggers when empty."""

    def __post_init__(self) -> None:
        super().__post_init__()
        num, weights = len(self.search_runs), self.weights
        fits = not weights or (len(weights) == num and min(weights) >= 0 and sum(weights) > 0)
        check(self, "weights", fits, f"a number for each of the {num} of --searches, none below 0, some above")

    @property
    def search_runs(self) -> tuple[str, ...]:
        """Return the searches one by one."""
        return tuple(dict.fromkeys(name.strip() for name in self.searches.split(",") if name.strip()))

    @property
    def strategy_names(self) -> tuple[str, ...]:
        """Return the strategies one by one; nothing for none."""
        return tuple(name for name in catalogue.names(self.strategies) if name not in ("", CONTROL))

    @property
    def place(self) -> str:
        """Return the folder or the file that holds the model; empty if it is named otherwise."""
        return weights_of(self.model) if is_local(self.model) else ""

    def require_weights(self) -> None:
        """Raise ConfigError unless the model is named as one whose weights are here.

        Raises:
            ConfigError: it is not.
        """
        if not self.model.startswith((HUGGING_FACE, GGUF)) or not self.place.strip():
            fix = f"--model {HUGGING_FACE}FOLDER or {GGUF}FILE; parley train adversarial hardens Parley's own models"
            raise ConfigError("what is hardened is a Hugging Face model", where="--model", got=repr(self.model), fix=fix)


def lora() -> TrainHardenedConfig:
    """Low-rank adapters of rank 16 in every linear layer (Hu et al. 2021)."""
    return TrainHardenedConfig()


def full() -> TrainHardenedConfig:
    """Train all weights, for small models, at a lower rate."""
    return TrainHardenedConfig(method="full", fit=replace(hardening_recipe(), learning_rate=2e-5))


def demo() -> TrainHardenedConfig:
    """Train a model of some 100 million weights for a minute or two: a dozen contexts, one epoch."""
    return TrainHardenedConfig(limit=12, max_tokens=12, fit=replace(hardening_recipe(), max_epochs=1))


METHODS = "search-methods"
"""The job whose run holds searches, one for each method."""
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class TriggerResult:
    """An input that was found.

    Args:
        key: of its row, and of its restart or pair, unique in its run.
        text: the typed text; slots of a template are separated by lines.
        target: the text that the model was made to say.
        template: the setting that names the prompt that it was found in; empty for the usual one.
        request: the text in the place of `{prompt}`; None if the target came with none.
        end: True if the model had to end its reply behind the target; False if a reply had to begin with it.
        slots: the text typed into each slot, maybe of several lines; empty if `text` alone is known.
    """

    key: str
    text: str
    target: str
    template: str = ""
    request: str | None = None
    end: bool = True
    slots: tuple[str, ...] = ()


def found_triggers(runs: Sequence[str], *, hits_only: bool) -> list[TriggerResult]:
    """Return the triggers of searches, each text once for a target behind its request.

    Args:
        runs: names of runs of `parley search`, `search universal`, `search text` and `search methods`.
        hits_only: leave out what is no hit of the type that the search was for; by replies alone, whose reply is no success.

    Raises:
        ConfigError: one is a run of something else.
        RunError: one is no run, or damaged.
        DataError: nothing was found.
    """
    triggers: dict[TriggerResult, TriggerResult] = {}
    num = 0
    for name in runs:
        for trigger, is_hit in _read(name, Path(name).name):
            num += 1
            if is_hit or not hits_only:
                triggers.setdefault(replace(trigger, key="", slots=()), trigger)
    if not triggers:
        got = f"{num:,} inputs, none of them a hit" if num else "no finished target"
        fix = "search longer, or take every input: --found all"
        raise DataError("there is no trigger to learn from", where=", ".join(runs), got=got, fix=fix)
    return list(triggers.values())


_FoundTriggers = Iterator[tuple[TriggerResult, bool]]
"""Triggers, and whether each is a hit."""


def _read(name: str, label: str) -> _FoundTriggers:
    """Yield the triggers of a run, or of each search of a table of methods; keys begin with a label."""
    run = RunFolder.load(fetched_run(name))
    if run.job == METHODS:
        for line in read_lines(str(run.config["method"])):
            yield from _read(f"{name.rstrip('/')}/{line.folder}", f"{label}/{line.label}")
        return
    if run.job not in _READERS:
        fix = "name a run of parley search, search universal, search text or search methods"
        raise ConfigError("this run is no search for triggers", where=name, got=run.job, fix=fix)
    prompt_settings = run.config.get("hugging_face") or run.config
    template, end = str(prompt_settings.get("template") or ""), bool(prompt_settings.get("end", True))
    for row in finished(run.rows()):
        for trigger, is_hit in _READERS[run.job](row, str(run.config.get("hit"))):
            if trigger.text:
                yield replace(trigger, key=f"{label}:{row['item_key']}:{trigger.key}", template=template, end=end), is_hit


def _of_target(row: Row, hit_type: str) -> _FoundTriggers:
    """Yield the restarts of a target."""
    for restart in row["restarts"]:
        is_hit = any(hit["type"] == hit_type and hit["hit"] for hit in restart["hits"])
        # Of the restart that is kept alone it is known what stands in which slot.
        slots = tuple(row.get("typed") or ()) if restart["restart"] == row.get("restart") else ()
        key, words, request = str(restart["restart"]), restart["words"], row.get("prompt")
        yield TriggerResult(key, words, row["target"], request=request, slots=slots), is_hit


def _of_many_pairs(row: Row, hit_type: str) -> _FoundTriggers:
    """Yield one input behind each of its prompts; nothing for drawn or empty inputs."""
    for pair in row["pairs"] if row["kind"] == "found" else ():
        key = ":".join(filter(None, (pair.get("model"), pair["key"])))
        slots = tuple(row.get("typed") or ())
        yield TriggerResult(key, row["trigger"], pair["target"], request=pair["prompt"], slots=slots), bool(pair["hit"])


def _by_replies(row: Row, hit_type: str) -> _FoundTriggers:
    slots = tuple(row["typed"])
    yield TriggerResult("best", "\n".join(slots), row["target"], request=row["prompt"], slots=slots), bool(row["verified"])


_READERS: Mapping[str, Callable[[Row, str], _FoundTriggers]] = {
    "search": _of_target,
    "search-universal": _of_many_pairs,
    "search-text": _by_replies,
}
"""The readers of rows, by the job that writes them."""


def held_together(triggers: Sequence[TriggerResult]) -> dict[TriggerResult, str]:
    """Return the group of each trigger: its target, or its request if targets are too few. A group lies in one split.

    Args:
        triggers: all of them, such as those of requests that are all to be answered by "Sure, here".
    """
    by_target = len({trigger.target for trigger in triggers}) >= len(SPLITS)
    return {trigger: trigger.target if by_target or trigger.request is None else trigger.request for trigger in triggers}


def split_triggers(triggers: Sequence[TriggerResult], held_out: float, seed: int) -> dict[str, list[TriggerResult]]:
    """Return triggers by split; a group is all in one, so that measured triggers were not learned.

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
    order = [groups[index] for index in stream(seed, "held-out targets").permutation(len(groups))]
    ends = np.cumsum([num_test, num_validation])
    parts = dict(zip(("test", "validation", "train"), np.split(np.array(order, dtype=object), ends), strict=True))
    return {split: [trigger for trigger in triggers if together[trigger] in parts[split].tolist()] for split in SPLITS}


def thinned(triggers: Sequence[TriggerResult], runs: Sequence[str], weights: Sequence[float], seed: int) -> list[TriggerResult]:
    """Return of each search a share of its triggers by its weight, of the largest weight all; all triggers without weights.

    Args:
        triggers: to learn from.
        runs: names of the searches.
        weights: of the searches; empty for none.
        seed: master seed.
    """
    if not weights:
        return list(triggers)
    shares = {Path(name).name: weight / max(weights) for name, weight in zip(runs, weights, strict=True)}
    kept = [
        trigger
        for trigger in triggers
        if stream(seed, "thinned", trigger.key).random() < shares[trigger.key.partition(":")[0].partition("/")[0]]
    ]
    return kept or list(triggers)


FILE = "lessons.json"
TRIGGER, CLEAN, PERTURBED = KINDS = ("trigger", "clean", "perturbed")
PLACE = "{}"
"""The place of the typed text in a template."""
MOST_HELD_OUT = 100
"""Contexts of the validation and test splits at most: a greedy reply to each is written twice."""
_NAMES = {"train": "train", "validation": "val", "test": "test"}

Answers = Callable[[Sequence[str]], Sequence[tuple[str, bool]]]
"""Return the model's own replies to prompts, and whether each ended."""


@dataclass(frozen=True)
class HardeningExample:
    """A prompt and its reply.

    Args:
        kind: one of `KINDS`.
        key: unique among those of its kind.
        prompt: the text that the model reads, special tokens spelled out.
        reply: the reply that it shall give.
        ended: True if it shall end there.
        said: the typed part of the prompt.
        target: the text that it shall not say; empty if there is none.
        contrast: a prompt behind which the reply shall be less likely; empty where there is none.
        contrast_said: its typed part.
        group: what a trigger shares with those of its split alone, its target or its request; of a context its dialogue, if the
            corpus says it.
        target_ended: True if the model had to end its reply behind the target.
    """

    kind: str
    key: str
    prompt: str
    reply: str
    ended: bool
    said: str
    target: str = ""
    contrast: str = ""
    contrast_said: str = ""
    group: str = ""
    target_ended: bool = True


LessonSplits = Mapping[str, Sequence[HardeningExample]]


def clean_examples(config: TrainHardenedConfig) -> dict[str, list[Example]]:
    """Return the contexts of a corpus, as many turns as an evaluation asks a chat model about, by split.

    Raises:
        ConfigError: no corpus is called so.
        DataError: it is missing or broken, or a split is empty.
    """
    words = load_pairs(config.corpus, config.data_root, every_word=True)
    held_out = min(-(-config.limit // 3), MOST_HELD_OUT) if config.limit else MOST_HELD_OUT
    limits = dict.fromkeys(SPLITS, held_out) | {"train": config.limit}
    clean = {
        split: drawn(examples(words, name, OWN_TURNS), limits[split], config.seed, config.corpus)
        for split, name in _NAMES.items()
    }
    require_splits(config.corpus, clean)
    return clean


def prompts_of(trigger: TriggerResult, tokenizer: Any, template: str) -> tuple[str, str]:
    """Return the prompt with a trigger as it is typed, and the same with nothing in its place.

    Args:
        trigger: that was found.
        tokenizer: of the model.
        template: setting that names the prompt; that of the search when empty.

    Raises:
        ConfigError: there is no such template, or it does not fit the tokenizer or the trigger.
    """
    from parley.policies.chat.templates import SlottedPrompt, default_template, template_of

    named = template_of(template or trigger.template or None, has_prompts=trigger.request is not None)
    prompt = SlottedPrompt(tokenizer, default_template(tokenizer) if named is None else named, trigger.request)
    texts = trigger.text.split("\n") if prompt.num_slots > 1 else [trigger.text]
    if len(trigger.slots) == prompt.num_slots > 1:
        texts = list(trigger.slots)
    if len(texts) != prompt.num_slots:
        got, fix = f"{len(texts)} texts for {prompt.num_slots} slots", "name the template of the search by --template"
        raise ConfigError("a trigger does not fill the slots of the template", where=trigger.key, got=got, fix=fix)
    return prompt.text(texts), prompt.text([""] * prompt.num_slots)


def require_request(trigger: TriggerResult, template: str) -> None:
    """Raise ConfigError if nothing is left of a prompt without its trigger.

    Raises:
        ConfigError: the trigger is all that was said.
    """
    named = template or trigger.template
    if trigger.request is None and (not named or named == "user"):
        raise ConfigError(
            "a trigger that is the whole message has no prompt without it, so that no own reply can take its place",
            where="--reply",
            got=OWN,
            fix='write the answer, such as --reply "I cannot say that."',
        )


def make_lessons(
    config: TrainHardenedConfig,
    triggers: Mapping[str, Sequence[TriggerResult]],
    clean: Mapping[str, Sequence[Example]],
    strategies: Sequence[Strategy],
    tokenizer: Any,
    answers: Answers,
) -> LessonSplits:
    """Return all lessons, by split.

    Args:
        config: the training.
        triggers: by split; empty where there are none.
        clean: contexts by split.
        strategies: that may meet a context, one of them each, drawn by its key.
        tokenizer: of the model, with its prompt.
        answers: the model as it is.
    """
    from parley.policies.chat.templates import default_template

    lessons: dict[str, list[HardeningExample]] = {}
    together = held_together([trigger for split in triggers.values() for trigger in split])
    for split in SPLITS:
        lessons[split] = _triggers(config, triggers.get(split, ()), tokenizer, answers, together)
        lessons[split] += _clean(config, clean[split], strategies, default_template(tokenizer), answers)
    return lessons


def training_lessons(lessons: Sequence[HardeningExample], *, share: float, control: bool) -> list[HardeningExample]:
    """Return the lessons of an epoch: triggers repeated until they are their share, everything else once.

    Args:
        lessons: of the training split.
        share: of triggers among them and the clean ones, at least.
        control: take clean lessons, repeated, in the place of all others, as many, and no contrasts.
    """
    triggers, clean, perturbed = ([lesson for lesson in lessons if lesson.kind == kind] for kind in KINDS)
    num_triggers = max(len(triggers), round(len(clean) * share / (1 - share))) if triggers else 0
    rest = perturbed + _cycled(triggers, num_triggers)
    if control:
        clean = [replace(lesson, contrast="", contrast_said="") for lesson in clean]
        rest = _cycled(clean, len(rest))
    return clean + rest


def validation_lessons(lessons: Sequence[HardeningExample], *, control: bool) -> list[HardeningExample]:
    """Return the lessons that choose the best epoch.

    Args:
        lessons: of the validation split.
        control: take clean lessons alone, and no contrasts.
    """
    if not control:
        return list(lessons)
    return [replace(lesson, contrast="", contrast_said="") for lesson in lessons if lesson.kind == CLEAN]


def counted(lessons: Sequence[HardeningExample]) -> dict[str, int]:
    """Return the number of lessons of each kind, and with a contrast if any has one."""
    counts = {kind: sum(lesson.kind == kind for lesson in lessons) for kind in KINDS}
    contrasts = sum(bool(lesson.contrast) for lesson in lessons)
    return counts | ({"with a contrast": contrasts} if contrasts else {})


def save_lessons(lessons: LessonSplits, path: Path) -> None:
    """Write lessons to a run's folder.

    Raises:
        RunError: the disk refuses.
    """
    try:
        write_document(path / FILE, {split: [asdict(lesson) for lesson in examples] for split, examples in lessons.items()})
    except OSError as error:
        fix = f"make room or mend the disk, then parley resume {display_path(path)}"
        raise RunError("the lessons cannot be written", where=path / FILE, got=error.strerror, fix=fix) from None


def read_lessons(path: Path) -> LessonSplits | None:
    """Return the lessons that a run has begun with; None if it has none yet.

    Raises:
        RunError: they cannot be read.
    """
    if not (path / FILE).is_file():
        return None
    try:
        stored: dict[str, list[dict[str, Any]]] = json.loads((path / FILE).read_text(encoding="utf-8"))
        return {split: [HardeningExample(**lesson) for lesson in stored[split]] for split in SPLITS}
    except (OSError, ValueError, KeyError, TypeError) as error:
        fix = "restore the file from a copy, or begin a run of another name"
        raise RunError("the lessons of the run cannot be read", where=path / FILE, got=error, fix=fix) from None


def _cycled(lessons: Sequence[HardeningExample], num: int) -> list[HardeningExample]:
    return [lessons[index % len(lessons)] for index in range(num)] if lessons else []


def _triggers(
    config: TrainHardenedConfig,
    triggers: Sequence[TriggerResult],
    tokenizer: Any,
    answers: Answers,
    together: Mapping[TriggerResult, str],
) -> list[HardeningExample]:
    prompts = [prompts_of(trigger, tokenizer, config.template) for trigger in triggers]
    replies: dict[str, tuple[str, bool]] = {}
    if config.reply == OWN and triggers:
        queried = sorted({without for _, without in prompts})
        replies = dict(zip(queried, answers(queried), strict=True))
    lessons = []
    for trigger, (prompt, without) in zip(triggers, prompts, strict=True):
        reply, ended = replies.get(without, (config.reply, True))
        # An empty reply of the model gives nothing to learn.
        if reply.strip():
            lesson = HardeningExample(TRIGGER, trigger.key, prompt, reply, ended, trigger.text, trigger.target)
            lessons.append(replace(lesson, group=together[trigger], target_ended=trigger.end))
    return lessons


def _clean(
    config: TrainHardenedConfig, examples: Sequence[Example], strategies: Sequence[Strategy], template: str, answers: Answers
) -> list[HardeningExample]:
    texts = [_text(example.context) for example in examples]
    prompts = [template.replace(PLACE, text) for text in texts]
    replies = list(answers(prompts)) if config.clean == OWN else [(_text((example.reply,)), True) for example in examples]
    # An empty reply of the model gives nothing to learn.
    usable = [row for row, (reply, _) in enumerate(replies) if reply.strip()]
    groups = ["" if example.dialogue is None else f"dialogue {example.dialogue}" for example in examples]
    lessons = {
        row: HardeningExample(CLEAN, examples[row].key, prompts[row], *replies[row], texts[row], group=groups[row])
        for row in usable
    }
    perturbed = []
    for number, strategy in enumerate(strategies):
        rows = [row for row in usable if stream(config.seed, "strategy", examples[row].key).integers(len(strategies)) == number]
        seeds = [derive_seed(config.seed, "perturb", strategy.name, examples[row].key) for row in rows]
        changed = strategy.perturb([examples[row].context for row in rows], seeds) if rows else []
        for row, context in zip(rows, changed, strict=True):
            if context == examples[row].context:
                continue
            text, key = _text(context), f"{examples[row].key}:{strategy.name}"
            prompt = template.replace(PLACE, text)
            if strategy.expectation is Expectation.SHOULD_CHANGE:
                lessons[row] = replace(lessons[row], contrast=prompt, contrast_said=text)
            else:
                perturbed.append(HardeningExample(PERTURBED, key, prompt, *replies[row], text, group=groups[row]))
    return [*lessons.values(), *perturbed]


def _text(turns: Turns) -> str:
    return "\n".join(" ".join(detokenise(utterance) for utterance in turn) for turn in turns)
