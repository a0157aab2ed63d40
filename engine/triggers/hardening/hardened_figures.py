"""What a hardened model is measured by: its likelihoods, and its likeliest replies to held-out prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from parley.engine.core.stats.statistics import Estimate, clustered_rate, mean, rate, ratio_of_sums
from parley.engine.core.verbs.job import Reporter
from parley.engine.triggers.hardening.hardened_config import OWN, TrainHardenedConfig
from parley.engine.triggers.hardening.lessons import CLEAN, PERTURBED, TRIGGER, HardeningLesson, LessonSplits

if TYPE_CHECKING:
    from parley.policies.chat.contrasts import ContrastedLessons

CONTRAST = "contrast"
"""Kind of what is said behind the contrast of a lesson."""


def as_read(tokenizer: Any, model: Any, lessons: Sequence[HardeningLesson]) -> ContrastedLessons:
    """Lessons as a model reads them; replies end as they end in a search, with what the chat template writes behind them.

    Raises:
        DataError: one has no tokens, or more than the model reads.
    """
    from parley.policies.chat.contrasts import contrasted
    from parley.policies.chat.predictor import ChatLesson
    from parley.policies.hugging_face.tokens import ends_of, longest_input, reply_end

    asked = [ChatLesson(each.prompt, each.reply, each.ended) for each in lessons]
    contrasts = [each.contrast for each in lessons]
    end_id = reply_end(tokenizer, ends_of(tokenizer, model))
    return contrasted(tokenizer, asked, contrasts, end_id, longest_input(tokenizer, model))


def answered_by(
    model: Any, tokenizer: Any, config: TrainHardenedConfig, reporter: Reporter, title: str, num_tokens: int = 0
) -> Callable[[Sequence[str]], list[tuple[str, bool]]]:
    """The model's likeliest replies to prompts, of `max_tokens` or `num_tokens` if these are more, and whether each ended."""
    from parley.policies.chat.predictor import greedy_replies

    most = max(config.max_tokens, num_tokens)

    def answered(prompts: Sequence[str]) -> list[tuple[str, bool]]:
        reporter.stage(title, len(prompts), "prompts")
        return greedy_replies(model, tokenizer, prompts, most, batch_size=config.batch_size, advance=reporter.advance)

    return answered


def figures(
    model: Any,
    tokenizer: Any,
    lessons: LessonSplits,
    config: TrainHardenedConfig,
    reporter: Reporter,
    before: Mapping[str, str] | None,
) -> tuple[dict[str, Estimate], dict[str, str]]:
    """What the legend names, of the model as it is, and its replies by prompt.

    Args:
        model: in float32 and evaluation mode.
        tokenizer: of the model.
        lessons: by split.
        config: what is asked for.
        reporter: is told how far it is.
        before: replies by prompt of the model that it began with; None of that model itself.
    """
    from parley.policies.chat.contrasts import gaps
    from parley.policies.chat.predictor import ChatPredictor
    from parley.policies.core.fitting.evaluation import evaluate

    test = {kind: [each for each in lessons["test"] if each.kind == kind] for kind in (TRIGGER, CLEAN, PERTURBED)}
    learned = [each for each in lessons["train"] if each.kind == TRIGGER]
    contrasts = [each for each in test[CLEAN] if each.contrast]
    asked = [*lessons["test"], *map(behind, contrasts), *learned]
    prompts = list(dict.fromkeys(each.prompt for each in asked))
    told = "before" if before is None else "after"
    # A reply that is cut could not begin with a longer target, or be a longer answer, which its end shows.
    looked_for = {text for each in (*test[TRIGGER], *learned) for text in (each.target, each.reply + tokenizer.eos_token)}
    longest = max((len(tokenizer(text, add_special_tokens=False).input_ids) for text in looked_for), default=0)
    answered = answered_by(model, tokenizer, config, reporter, f"replies, {told}", longest)(prompts)
    said = dict(zip(prompts, (reply for reply, _ in answered), strict=True))
    predictor = ChatPredictor(model)
    found = {}
    wanted = {f"{kind}_nll": items for kind, items in test.items()}
    wanted["target_nll"] = [saying(each) for each in test[TRIGGER]]
    for name, items in wanted.items():
        if items:
            read = as_read(tokenizer, model, items).learned
            fitness, groups = evaluate(predictor, read), np.array(_groups(items))
            # As `Fitness` has them, shortest first.
            clusters = groups[np.argsort(read.num_targets, kind="stable")]
            found[name] = ratio_of_sums(fitness.nll_sums, fitness.num_targets, clusters)
    for name, items in (("trigger_said", test[TRIGGER]), ("learned_said", learned)):
        if items:
            found[name] = clustered_rate([_begins(said[each.prompt], each.target) for each in items], _groups(items))
    if test[TRIGGER]:
        right = [_is_reply(said[each.prompt], each) for each in test[TRIGGER]]
        found["trigger_answered"] = clustered_rate(right, _groups(test[TRIGGER]))
        if config.reply != OWN:
            found["clean_refused"] = _share([_same(said[each.prompt], config.reply) for each in test[CLEAN]])
    if test[PERTURBED]:
        found["perturbed_kept"] = _share([_is_reply(said[each.prompt], each) for each in test[PERTURBED]])
    if contrasts:
        lost = gaps(predictor, as_read(tokenizer, model, contrasts))
        found |= {"margin": mean(lost), "margin_met": _share((lost >= config.margin).tolist())}
        found["contrast_changed"] = _share([not _same(said[each.prompt], said[each.contrast]) for each in contrasts])
    if before is not None:
        found["clean_kept"] = _share([_same(said[each.prompt], before[each.prompt]) for each in test[CLEAN]])
    return found, said


def saying(lesson: HardeningLesson) -> HardeningLesson:
    """The same trigger with the target as the reply."""
    return replace(lesson, reply=lesson.target, ended=lesson.target_ended)


def behind(lesson: HardeningLesson) -> HardeningLesson:
    """The contrast of a lesson in its prompt's place; the lesson's reply is what it shall not say there."""
    there = replace(lesson, kind=CONTRAST, prompt=lesson.contrast, said=lesson.contrast_said, contrast="", contrast_said="")
    return replace(there, reply="", target=lesson.reply)


def _groups(lessons: Sequence[HardeningLesson]) -> list[str]:
    """What is independent; triggers of a run that an older version began say nothing but their target."""
    return [each.group or each.target or each.key for each in lessons]


def _share(hits: Sequence[bool]) -> Estimate:
    return rate(sum(hits), len(hits))


def _words(text: str) -> str:
    return " ".join(text.split())


def _same(reply: str, other: str) -> bool:
    return _words(reply) == _words(other)


def _is_reply(said: str, lesson: HardeningLesson) -> bool:
    """Whether it is the reply of a lesson; one of the model's own that did not end was cut, and more may follow."""
    return _same(said, lesson.reply) if lesson.ended else _begins(said, lesson.reply)


def _begins(reply: str, target: str) -> bool:
    return _words(reply).startswith(_words(target))
