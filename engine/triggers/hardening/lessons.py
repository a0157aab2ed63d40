"""What a model is hardened by: prompts with the replies that it shall give, by split; a run keeps them in `lessons.json`.

  * trigger: a prompt with an input that was found; the answer that the user wrote, or the model's own without the input.
  * clean: a context of a corpus; the model's own reply as it is, or the recorded one. Where a strategy has changed it so that
    the answer should change, the changed context is its contrast: the reply shall be less likely there.
  * perturbed: a clean context as a strategy changed it and the answer should stay; the reply to the clean one.

Lessons of the control are those of the training split with clean ones, repeated, in the place of all others, and no contrasts;
its best epoch is chosen by clean ones alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from parley.engine.core.runs.documents import write_document
from parley.engine.core.verbs.sample import drawn
from parley.engine.core.verbs.supervised import require_splits
from parley.engine.perturb.strategy import Expectation, Strategy
from parley.engine.triggers.hardening.found import SPLITS, FoundTrigger, held_together
from parley.engine.triggers.hardening.hardened_config import OWN, TrainHardenedConfig
from parley.envs.core.errors import ConfigError, RunError
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.core.storage.uris import display_path
from parley.envs.corpora.pairs.compiled import load_pairs
from parley.envs.corpora.pairs.contexts import examples
from parley.envs.corpora.pairs.turns import Example, Turns
from parley.envs.corpora.pairs.written import detokenise

FILE = "lessons.json"
TRIGGER, CLEAN, PERTURBED = KINDS = ("trigger", "clean", "perturbed")
PLACE = "{}"
"""Where a template has what is said."""
_NAMES = {"train": "train", "validation": "val", "test": "test"}

Answers = Callable[[Sequence[str]], Sequence[tuple[str, bool]]]
"""The model's own replies to prompts, and whether each came to its end."""


@dataclass(frozen=True)
class HardeningLesson:
    """A prompt and its reply.

    Args:
        kind: one of `KINDS`.
        key: unique among those of its kind.
        prompt: what the model reads, special tokens spelled out.
        reply: what it shall say.
        ended: whether it shall end there.
        said: the part of the prompt that somebody typed.
        target: what it shall not say; empty where there is none.
        contrast: a prompt behind which the reply shall be less likely; empty where there is none.
        contrast_said: the part of it that somebody typed.
        group: what a trigger shares with those of its split alone, its target or its request; empty in other lessons.
        target_ended: whether the model had to end its reply behind the target.
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


LessonSplits = Mapping[str, Sequence[HardeningLesson]]


def clean_examples(config: TrainHardenedConfig) -> dict[str, list[Example]]:
    """The contexts of a corpus, one turn each, by split.

    Raises:
        ConfigError: no corpus is called so.
        DataError: it is missing or broken, or a split is empty.
    """
    words = load_pairs(config.corpus, config.data_root, every_word=True)
    limits = dict.fromkeys(SPLITS, -(-config.limit // 3)) | {"train": config.limit}
    found = {
        split: drawn(examples(words, name, 1), limits[split], config.seed, config.corpus) for split, name in _NAMES.items()
    }
    require_splits(config.corpus, found)
    return found


def prompts_of(trigger: FoundTrigger, tokenizer: Any, template: str) -> tuple[str, str]:
    """The prompt with a trigger as it is typed, and the same with nothing in its place.

    Args:
        trigger: that was found.
        tokenizer: of the model.
        template: setting that names the prompt; that of the search when empty.

    Raises:
        ConfigError: there is no such template, or it does not fit the tokenizer or the trigger.
    """
    from parley.policies.hugging_face.slots import SlottedPrompt, default_template, template_of

    named = template_of(template or trigger.template or None, has_prompts=trigger.request is not None)
    prompt = SlottedPrompt(tokenizer, default_template(tokenizer) if named is None else named, trigger.request)
    texts = trigger.text.split("\n") if prompt.num_slots > 1 else [trigger.text]
    if len(trigger.slots) == prompt.num_slots > 1:
        texts = list(trigger.slots)
    if len(texts) != prompt.num_slots:
        got, fix = f"{len(texts)} texts for {prompt.num_slots} slots", "name the template of the search by --template"
        raise ConfigError("a trigger does not fill the slots of the template", where=trigger.key, got=got, fix=fix)
    return prompt.text(texts), prompt.text([""] * prompt.num_slots)


def require_request(trigger: FoundTrigger, template: str) -> None:
    """Checks that something is left of a prompt without its trigger, which a model can answer.

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
    triggers: Mapping[str, Sequence[FoundTrigger]],
    clean: Mapping[str, Sequence[Example]],
    strategies: Sequence[Strategy],
    tokenizer: Any,
    answers: Answers,
) -> LessonSplits:
    """All lessons, by split.

    Args:
        config: what is asked for.
        triggers: by split; empty where there are none.
        clean: contexts by split.
        strategies: that may meet a context, one of them each, drawn by its key.
        tokenizer: of the model, with its prompt.
        answers: the model as it is.
    """
    from parley.policies.hugging_face.slots import default_template

    found: dict[str, list[HardeningLesson]] = {}
    together = held_together([each for split in triggers.values() for each in split])
    for split in SPLITS:
        found[split] = _triggers(config, triggers.get(split, ()), tokenizer, answers, together)
        found[split] += _clean(config, clean[split], strategies, default_template(tokenizer), answers)
    return found


def training_lessons(lessons: Sequence[HardeningLesson], *, share: float, control: bool) -> list[HardeningLesson]:
    """What an epoch learns from: triggers repeated until they are their share, everything else once.

    Args:
        lessons: of the training split.
        share: of triggers among them and the clean ones, at least.
        control: take clean lessons, repeated, in the place of all others, as many, and no contrasts.
    """
    triggers, clean, perturbed = ([each for each in lessons if each.kind == kind] for kind in KINDS)
    wanted = max(len(triggers), round(len(clean) * share / (1 - share))) if triggers else 0
    others = perturbed + _cycled(triggers, wanted)
    if control:
        clean = [replace(each, contrast="", contrast_said="") for each in clean]
        others = _cycled(clean, len(others))
    return clean + others


def validation_lessons(lessons: Sequence[HardeningLesson], *, control: bool) -> list[HardeningLesson]:
    """What the best epoch is chosen by.

    Args:
        lessons: of the validation split.
        control: take clean lessons alone, and no contrasts.
    """
    if not control:
        return list(lessons)
    return [replace(each, contrast="", contrast_said="") for each in lessons if each.kind == CLEAN]


def counted(lessons: Sequence[HardeningLesson]) -> dict[str, int]:
    """How many there are of each kind, and with a contrast where any has one."""
    found = {kind: sum(each.kind == kind for each in lessons) for kind in KINDS}
    contrasts = sum(bool(each.contrast) for each in lessons)
    return found | ({"with a contrast": contrasts} if contrasts else {})


def save_lessons(lessons: LessonSplits, path: Path) -> None:
    """Keeps lessons in a run's folder.

    Raises:
        RunError: the disk refuses.
    """
    try:
        write_document(path / FILE, {split: [asdict(each) for each in found] for split, found in lessons.items()})
    except OSError as error:
        fix = f"make room or mend the disk, then parley resume {display_path(path)}"
        raise RunError("the lessons cannot be written", where=path / FILE, got=error.strerror, fix=fix) from None


def read_lessons(path: Path) -> LessonSplits | None:
    """The lessons that a run has begun with; None where it has none yet.

    Raises:
        RunError: they cannot be read.
    """
    if not (path / FILE).is_file():
        return None
    try:
        stored: dict[str, list[dict[str, Any]]] = json.loads((path / FILE).read_text(encoding="utf-8"))
        return {split: [HardeningLesson(**each) for each in stored[split]] for split in SPLITS}
    except (OSError, ValueError, KeyError, TypeError) as error:
        fix = "restore the file from a copy, or begin a run of another name"
        raise RunError("the lessons of the run cannot be read", where=path / FILE, got=error, fix=fix) from None


def _cycled(lessons: Sequence[HardeningLesson], num: int) -> list[HardeningLesson]:
    return [lessons[place % len(lessons)] for place in range(num)] if lessons else []


def _triggers(
    config: TrainHardenedConfig,
    triggers: Sequence[FoundTrigger],
    tokenizer: Any,
    answers: Answers,
    together: Mapping[FoundTrigger, str],
) -> list[HardeningLesson]:
    prompts = [prompts_of(each, tokenizer, config.template) for each in triggers]
    replies: dict[str, tuple[str, bool]] = {}
    if config.reply == OWN and triggers:
        asked = sorted({without for _, without in prompts})
        replies = dict(zip(asked, answers(asked), strict=True))
    found = []
    for each, (prompt, without) in zip(triggers, prompts, strict=True):
        reply, ended = replies.get(without, (config.reply, True))
        # A model that says nothing by itself gives nothing to learn.
        if reply.strip():
            lesson = HardeningLesson(TRIGGER, each.key, prompt, reply, ended, each.text, each.target)
            found.append(replace(lesson, group=together[each], target_ended=each.end))
    return found


def _clean(
    config: TrainHardenedConfig, found: Sequence[Example], strategies: Sequence[Strategy], template: str, answers: Answers
) -> list[HardeningLesson]:
    texts = [_text(each.context) for each in found]
    prompts = [template.replace(PLACE, text) for text in texts]
    replies = list(answers(prompts)) if config.clean == OWN else [(_text((each.reply,)), True) for each in found]
    # A model that says nothing gives nothing to learn.
    kept = [row for row, (reply, _) in enumerate(replies) if reply.strip()]
    lessons = {row: HardeningLesson(CLEAN, found[row].key, prompts[row], *replies[row], texts[row]) for row in kept}
    perturbed = []
    for number, strategy in enumerate(strategies):
        own = [row for row in kept if _strategy(config.seed, found[row].key, len(strategies)) == number]
        seeds = [derive_seed(config.seed, "perturb", strategy.name, found[row].key) for row in own]
        changed = strategy.perturb([found[row].context for row in own], seeds) if own else []
        for row, context in zip(own, changed, strict=True):
            if context == found[row].context:
                continue
            text, key = _text(context), f"{found[row].key}:{strategy.name}"
            prompt = template.replace(PLACE, text)
            if strategy.expectation is Expectation.SHOULD_CHANGE:
                lessons[row] = replace(lessons[row], contrast=prompt, contrast_said=text)
            else:
                perturbed.append(HardeningLesson(PERTURBED, key, prompt, *replies[row], text))
    return [*lessons.values(), *perturbed]


def _strategy(seed: int, key: str, num: int) -> int:
    """Which strategy a context meets."""
    return int(stream(seed, "strategy", key).integers(num))


def _text(turns: Turns) -> str:
    """What the turns say, as people write it."""
    return "\n".join(" ".join(detokenise(utterance) for utterance in turn) for turn in turns)
