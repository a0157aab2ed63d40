"""Hardening of Hugging Face models: `parley train hardened`.

A causal model goes on from its weights: triggers that searches have found are answered by a safe reply, contexts that
perturbations changed as before, or, if the answer should change, less likely so by a margin (`policies/chat/predictor.py`),
and contexts of a corpus keep it as it is. Low-rank adapters learn, or all weights; either way a whole model is stored, as
`save_pretrained` writes it, so that `hf:RUN` is a model for every other command.

Measured before and after, on triggers of targets that nothing was learned from: how often the model says the target after the
typed trigger, and the cost of the hardening on clean contexts. Only a further `parley search --model hf:RUN` can tell whether
new attacks fail as well.

Lessons and found triggers: `lessons.py`. The metrics, `figures`, are likelihoods, and likeliest replies to held-out prompts.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parley.engine.core.runs.documents import SUMMARY, write_document
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import BEFORE, HARDENED
from parley.engine.core.stats.statistics import Estimate, clustered_rate, mean, ratio_of_sums
from parley.engine.core.verbs.checkpoints import require_device, threads
from parley.engine.core.verbs.job import Job, Reporter, Summary
from parley.engine.core.verbs.supervised import EPOCHS, RESUME_SAFE, STATE, run_fit
from parley.engine.perturb.strategy import Strategy
from parley.engine.triggers.verbs.lessons import (
    CLEAN,
    OWN,
    PERTURBED,
    TRIGGER,
    HardeningExample,
    LessonSplits,
    TrainHardenedConfig,
    TriggerResult,
    clean_examples,
    counted,
    demo,
    found_triggers,
    full,
    lora,
    make_lessons,
    prompts_of,
    read_lessons,
    require_request,
    save_lessons,
    split_triggers,
    thinned,
    training_lessons,
    validation_lessons,
)
from parley.envs.core.errors import ConfigError, DataError, RunError
from parley.envs.core.storage.copies import CHECKPOINT
from parley.envs.core.storage.uris import HUGGING_FACE, display_path
from parley.envs.corpora.arrow import data_root, root_words
from parley.envs.corpora.pairs.turns import Example

if TYPE_CHECKING:
    from parley.policies.chat.predictor import ChatPredictor, ContrastedExamples


TOLD = "clean_told"
"""Metric of what contexts tell recorded replies."""
CONTRAST = "contrast"
"""Kind of the replies to the contrasts of lessons."""


def as_read(tokenizer: Any, model: Any, lessons: Sequence[HardeningExample]) -> ContrastedExamples:
    """Return lessons as a model reads them; replies end as in a search, with the closing tokens of the chat template.

    Raises:
        DataError: one has no tokens, or more than the model reads.
    """
    from parley.policies.chat.predictor import ChatLesson, contrasted
    from parley.policies.hugging_face.tokens import ends_of, longest_input, reply_end

    chat_lessons = [ChatLesson(lesson.prompt, lesson.reply, lesson.ended) for lesson in lessons]
    contrasts = [lesson.contrast for lesson in lessons]
    end_id = reply_end(tokenizer, ends_of(tokenizer, model))
    return contrasted(tokenizer, chat_lessons, contrasts, end_id, longest_input(tokenizer, model))


def answered_by(
    model: Any, tokenizer: Any, config: TrainHardenedConfig, reporter: Reporter, title: str, num_tokens: int = 0
) -> Callable[[Sequence[str]], list[tuple[str, bool]]]:
    """Return a function that gives the model's likeliest replies to prompts, and whether each ended."""
    from parley.policies.chat.local import LocalChatModel

    chat_model = LocalChatModel(config.model, model, tokenizer, config.batch_size, parts_thinking=False)

    def answered(prompts: Sequence[str]) -> list[tuple[str, bool]]:
        reporter.stage(title, len(prompts), "prompts")
        answers: dict[int, tuple[str, bool]] = {}
        for index, answer in chat_model.continuing(prompts, max(config.max_tokens, num_tokens)):
            answers[index] = answer.text, answer.finish_reason == "stop"
            reporter.advance(len(answers))
        return [answers[index] for index in range(len(prompts))]

    return answered


def figures(
    model: Any,
    tokenizer: Any,
    lessons: LessonSplits,
    config: TrainHardenedConfig,
    reporter: Reporter,
    before: Mapping[str, str] | None,
) -> tuple[dict[str, Estimate], dict[str, str]]:
    """Return the figures of the legend for the current model, and its replies by prompt.

    Args:
        model: in float32 and evaluation mode.
        tokenizer: of the model.
        lessons: by split.
        config: the settings.
        reporter: shows the progress.
        before: replies by prompt of the model that it began with; None for that model itself.
    """
    from parley.policies.chat.predictor import ChatPredictor, gaps
    from parley.policies.core.fitting.batches import evaluate

    test = {kind: [lesson for lesson in lessons["test"] if lesson.kind == kind] for kind in (TRIGGER, CLEAN, PERTURBED)}
    learned = [lesson for lesson in lessons["train"] if lesson.kind == TRIGGER]
    contrasts = [lesson for lesson in test[CLEAN] if lesson.contrast]
    queried = [*lessons["test"], *map(behind, contrasts), *learned]
    prompts = list(dict.fromkeys(lesson.prompt for lesson in queried))
    phase = "before" if before is None else "after"
    # A reply that is cut could not begin with a longer target, or be a longer answer, which its end shows.
    looked_for = {text for lesson in (*test[TRIGGER], *learned) for text in (lesson.target, lesson.reply + tokenizer.eos_token)}
    longest = max((len(tokenizer(text, add_special_tokens=False).input_ids) for text in looked_for), default=0)
    answered = answered_by(model, tokenizer, config, reporter, f"replies, {phase}", longest)(prompts)
    said_to = dict(zip(prompts, (reply for reply, _ in answered), strict=True))
    predictor = ChatPredictor(model)
    estimates = {}
    sums = {}
    examples = {f"{kind}_nll": items for kind, items in test.items()}
    examples["target_nll"] = [saying(lesson) for lesson in test[TRIGGER]]
    if config.clean != OWN and len(test[CLEAN]) > 1:
        examples[TOLD] = behind_others(test[CLEAN])
    for name, items in examples.items():
        if items:
            read = as_read(tokenizer, model, items).learned
            fitness, groups = evaluate(predictor, read), np.array(_groups(items))
            # In the order of `Fitness`, shortest first.
            clusters = groups[np.argsort(read.num_targets, kind="stable")]
            sums[name] = fitness.nll_sums
            # Exchanged replies are those of the clean lessons, in their order.
            lost = sums[name] - sums[f"{CLEAN}_nll"] if name == TOLD else sums[name]
            estimates[name] = ratio_of_sums(lost, fitness.num_targets, clusters)

    shares: dict[str, tuple[Sequence[HardeningExample], Callable[[HardeningExample], bool]]] = {
        "trigger_said": (test[TRIGGER], lambda lesson: _begins(said_to[lesson.prompt], lesson.target)),
        "learned_said": (learned, lambda lesson: _begins(said_to[lesson.prompt], lesson.target)),
        "trigger_answered": (test[TRIGGER], lambda lesson: _is_reply(said_to[lesson.prompt], lesson)),
        "perturbed_kept": (test[PERTURBED], lambda lesson: _is_reply(said_to[lesson.prompt], lesson)),
        "contrast_changed": (contrasts, lambda lesson: not _same(said_to[lesson.prompt], said_to[lesson.contrast])),
    }
    if test[TRIGGER] and config.reply != OWN:
        shares["clean_refused"] = test[CLEAN], lambda lesson: _same(said_to[lesson.prompt], config.reply)
    if before is not None:
        shares["clean_kept"] = test[CLEAN], lambda lesson: _same(said_to[lesson.prompt], before[lesson.prompt])
    for name, (measured, holds) in shares.items():
        if measured:
            estimates[name] = clustered_rate([holds(lesson) for lesson in measured], _groups(measured))
    if contrasts:
        gap = gaps(predictor, as_read(tokenizer, model, contrasts))
        estimates["margin"] = mean(gap, _groups(contrasts))
        estimates["margin_met"] = clustered_rate(gap >= config.margin, _groups(contrasts))
    return estimates, said_to


def saying(lesson: HardeningExample) -> HardeningExample:
    """Return the same trigger with the target as the reply."""
    return replace(lesson, reply=lesson.target, ended=lesson.target_ended)


def behind_others(lessons: Sequence[HardeningExample]) -> list[HardeningExample]:
    """Return lessons with each reply behind the prompt half of them before: a neighbour may be of the same dialogue."""
    half = len(lessons) // 2
    return [replace(lesson, prompt=lessons[row - half].prompt) for row, lesson in enumerate(lessons)]


def behind(lesson: HardeningExample) -> HardeningExample:
    """Return a lesson with its contrast as the prompt; its reply is then the one to avoid."""
    contrast = replace(lesson, kind=CONTRAST, prompt=lesson.contrast, said=lesson.contrast_said, contrast="", contrast_said="")
    return replace(contrast, reply="", target=lesson.reply)


def _groups(lessons: Sequence[HardeningExample]) -> list[str]:
    """Return the independent groups; triggers of a run that an older version began know nothing but their target."""
    return [lesson.group or lesson.target or lesson.key for lesson in lessons]


def _words(text: str) -> str:
    return " ".join(text.split())


def _same(reply: str, other: str) -> bool:
    return _words(reply) == _words(other)


def _is_reply(text: str, lesson: HardeningExample) -> bool:
    """Return True if a text is the reply of a lesson; an own reply that did not end was cut, and more may follow."""
    return _same(text, lesson.reply) if lesson.ended else _begins(text, lesson.reply)


def _begins(reply: str, target: str) -> bool:
    return _words(reply).startswith(_words(target))


REPLIES = "replies.json"
"""File of the replies to each held-out prompt, before and after."""
_BEFORE = "before"
"""Kind of the event with the figures of the model before it learned."""


@dataclass(frozen=True)
class HardenedBy:
    """A checked configuration with its model, triggers and contexts.

    Args:
        config: the settings.
        model: on its device, in float32 and evaluation mode.
        stored_as: precision of its weights, in which they are stored again.
        tokenizer: of the model.
        triggers: by split.
        clean: contexts by split.
        strategies: of perturbation.
        stored: the lessons of a run that has begun; None for a new run.
    """

    config: TrainHardenedConfig
    model: Any
    stored_as: Any
    tokenizer: Any
    triggers: Mapping[str, Sequence[TriggerResult]]
    clean: Mapping[str, Sequence[Example]]
    strategies: Sequence[Strategy]
    stored: LessonSplits | None


class TrainHardened(Job[TrainHardenedConfig, HardenedBy, Summary]):
    """`parley train hardened`."""

    words = ("train", "hardened")
    run_name = "hardened"
    config = TrainHardenedConfig
    presets = {"lora": lora, "full": full, "demo": demo}
    legend = HARDENED
    files = (CHECKPOINT, REPLIES, SUMMARY)
    resume_safe = RESUME_SAFE
    steps = EPOCHS

    def prepare(self, config: TrainHardenedConfig, path: Path, reporter: Reporter) -> HardenedBy:
        config.require_weights()
        require_device(config.device, "--device")
        if not config.search_runs and not config.strategies:
            fix = "--searches RUN of parley search, or --strategies random-swap (none: a fit to contexts as they are)"
            raise ConfigError("there is nothing to harden the model against", got="neither searches nor strategies", fix=fix)
        stored = read_lessons(path)
        triggers: dict[str, list[TriggerResult]] = {}
        # Before packages, corpora and models are loaded, which takes half a minute.
        if config.search_runs and stored is None:
            results = found_triggers(config.search_runs, hits_only=config.found == "hits")
            if config.reply == OWN:
                for result in results:
                    require_request(result, config.template)
            triggers = split_triggers(results, config.held_out, config.seed)
            triggers["train"] = thinned(triggers["train"], config.search_runs, config.weights, config.seed)
        if config.method == "lora":
            from parley.policies.chat.predictor import require_peft

            require_peft()
        clean = clean_examples(config)
        strategies = _strategies(config, clean["train"][0])
        tokenizer, model = _read_model(config)
        stored_as = model.dtype
        for result in (result for split in triggers.values() for result in split):
            prompts_of(result, tokenizer, config.template)
        return HardenedBy(config, model.float(), stored_as, tokenizer, triggers, clean, strategies, stored)

    def work(self, run: RunFolder, prepared: HardenedBy, reporter: Reporter) -> Summary:
        from parley.policies.chat.predictor import ContrastObjective, merged
        from parley.policies.core.fitting.loop import Fit
        from parley.policies.hugging_face.models import write_pretrained

        config, tokenizer, model = prepared.config, prepared.tokenizer, prepared.model
        with threads(config.threads):
            lessons = prepared.stored or _begin(run, prepared, reporter)
            before, said_before = _before(run, prepared, lessons, reporter)
            predictor = _predictor(prepared)
            read = {
                "train": training_lessons(lessons["train"], share=config.trigger_share, control=config.control),
                "validation": validation_lessons(lessons["validation"], control=config.control),
            }
            splits = {split: as_read(tokenizer, model, examples) for split, examples in read.items()}
            objective = ContrastObjective(predictor, splits["train"], alpha=config.alpha, margin=config.margin)
            state = run.path / STATE
            fit = Fit(
                predictor,
                splits["train"],
                splits["validation"],
                config.fit,
                config.seed,
                state,
                fresh=False,
                objective=objective,
            )
            run_fit(fit, run, reporter)
            model = merged(predictor.model, config.model) if config.method == "lora" else predictor.model
            model = model.eval().requires_grad_(False)
            # What is measured is what is stored.
            model = model.to(prepared.stored_as)
            write_pretrained(model, tokenizer, run.path / CHECKPOINT)
            after, replies = figures(model.float(), tokenizer, lessons, config, reporter, said_before)
        _write_replies(run, lessons, said_before, replies)
        metrics = after | {name + BEFORE: figure for name, figure in before.items()}
        num = len(read["train"])
        learned_from = " and ".join(filter(None, (config.searches, ",".join(config.strategy_names))))
        against = "clean contexts alone" if config.control or not learned_from else learned_from
        return Summary(
            f"{config.model}, hardened by {against}",
            f"{config.method}, {num:,} lessons an epoch, {EPOCHS.of(len(fit.history))}, seed {config.seed}.",
            {name: metrics[name] for name in HARDENED if name in metrics},
            {"lessons": counted(read["train"])},
        )

    def models(self, config: TrainHardenedConfig) -> Mapping[str, str]:
        return {"model": config.place}

    def next_commands(self, config: TrainHardenedConfig, path: Path) -> tuple[str, ...]:
        model = f"{HUGGING_FACE}{display_path(path)}"
        attack = ["parley", "search", "--model", model, "--hit", "o-greedy", *root_words(config.data_root)]
        return (*super().next_commands(config, path), shlex.join(attack))


def _strategies(config: TrainHardenedConfig, example: Example) -> list[Strategy]:
    """Return the strategies of perturbation, each tried on an example."""
    from parley.engine.perturb.catalogue import Resources, build

    if not config.strategy_names:
        return []
    resources = Resources(config.perturb, None, (), data_root(config.data_root), config.device, config.corpus)
    strategies = build(config.strategy_names, config.perturb, resources)
    for strategy in strategies:
        strategy.perturb([example.context], [0])
    return strategies


def _read_model(config: TrainHardenedConfig) -> tuple[Any, Any]:
    """Return the tokenizer and the causal model of a name, on its device and in the precision of its file."""
    from parley.policies.chat.local import load_local
    from parley.policies.chat.settings import ChatModelSettings

    chat_model = load_local(config.model, ChatModelSettings(dtype="auto", device=config.device, date=config.date))
    if getattr(chat_model.model, "is_quantized", False):
        raise ConfigError("quantized weights do not learn", where=config.model, fix="name the model before it was quantized")
    return chat_model.tokenizer, chat_model.model


def _predictor(prepared: HardenedBy) -> ChatPredictor:
    """Return the model with its trainable parameters."""
    from parley.policies.chat.predictor import ChatPredictor, adapted

    config, model = prepared.config, prepared.model
    if config.method == "lora":
        return ChatPredictor(adapted(model.requires_grad_(False), config.lora, config.seed).to(config.device))
    return ChatPredictor(model.requires_grad_(True))


def _begin(run: RunFolder, prepared: HardenedBy, reporter: Reporter) -> LessonSplits:
    """Make the lessons and write them to the run."""
    config = prepared.config
    answers = answered_by(prepared.model, prepared.tokenizer, config, reporter, "the model's own replies")
    lessons = make_lessons(config, prepared.triggers, prepared.clean, prepared.strategies, prepared.tokenizer, answers)
    for split, examples in lessons.items():
        if not any(lesson.kind == CLEAN for lesson in examples):
            fix = "take another corpus, or --clean recorded"
            raise DataError("the model replies to no context", where=f"{config.corpus}, {split} split", fix=fix)
        # Prompts that are too long are reported before anything is learned.
        as_read(prepared.tokenizer, prepared.model, [*examples, *(saying(lesson) for lesson in examples if lesson.target)])
    save_lessons(lessons, run.path)
    for split, examples in lessons.items():
        reporter.say(f"{split} split: {', '.join(f'{num} {kind}' for kind, num in counted(examples).items())}")
    return lessons


def _before(
    run: RunFolder, prepared: HardenedBy, lessons: LessonSplits, reporter: Reporter
) -> tuple[dict[str, Estimate], dict[str, str]]:
    """Return figures and replies of the model as it was, which a run that goes on has stored."""
    for event in run.events({_BEFORE: {"figures": dict, "replies": dict}}):
        if event["kind"] == _BEFORE:
            return {name: Estimate.from_json(parts) for name, parts in event["figures"].items()}, event["replies"]
    estimates, replies = figures(prepared.model, prepared.tokenizer, lessons, prepared.config, reporter, None)
    run.event(_BEFORE, figures={name: figure.to_json() for name, figure in estimates.items()}, replies=replies)
    return estimates, replies


def _write_replies(run: RunFolder, lessons: LessonSplits, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    rows = [
        {
            "kind": lesson.kind,
            "key": lesson.key,
            "said": lesson.said,
            "target": lesson.target,
            "wanted": lesson.reply,
            "before": before[lesson.prompt],
            "after": after[lesson.prompt],
        }
        for lesson in [*lessons["test"], *map(behind, (lesson for lesson in lessons["test"] if lesson.contrast))]
    ]
    try:
        write_document(run.path / REPLIES, {"test": rows})
    except OSError as error:
        fix = f"make room or mend the disk, then parley resume {display_path(run.path)}"
        raise RunError("the replies cannot be written", where=run.path / REPLIES, got=error.strerror, fix=fix) from None


TRAIN_HARDENED = TrainHardened()
