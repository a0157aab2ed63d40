"""Triggers of searches as messages that can be typed to any chat model: what `parley search transfer` shows to others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from parley.engine.core.runs.remote_sync import fetched_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.rows import Row, finished
from parley.engine.triggers.method_lines import read_lines
from parley.engine.triggers.metrics.hits import is_hit
from parley.engine.triggers.metrics.transfer import NO_INPUT
from parley.engine.triggers.metrics.universal import RANDOM, best_found
from parley.envs.core.errors import ConfigError, DataError
from parley.policies.chat.addresses import is_local

if TYPE_CHECKING:
    from parley.policies.chat.model import Chat

SEARCH, UNIVERSAL, TEXT = "search", "search-universal", "search-text"
"""The jobs whose rows are read."""
METHODS = "search-methods"
"""The job whose run holds searches, one for each line of its table."""
Wanted = Literal["verified", "hits", "all"]


@dataclass(frozen=True)
class TypedTrigger:
    """A prompt as it is typed.

    Args:
        key: names it among those of its source.
        source: the run that it was found in, apart for prompts that no search saw, or what it is a control of.
        prompt: the request; None without one.
        target: what a model is to say.
        slots: what stands in each slot.
        template: the messages, with slots.
        end: whether a reply ends behind its target.
        control: key of the same prompt without what was found; empty where nothing was looked for.
    """

    key: str
    source: str
    prompt: str | None
    target: str
    slots: tuple[str, ...]
    template: Chat
    end: bool
    control: str = ""

    @property
    def chat(self) -> Chat:
        """The messages."""
        from parley.policies.hugging_face.slots import filled_chat

        return filled_chat(self.template, self.prompt, self.slots)

    def emptied(self) -> TypedTrigger:
        """The same prompt without what was found."""
        return replace(self, key=f"{self.source}:{self.key}", source=NO_INPUT, slots=tuple("" for _ in self.slots))


def typed_triggers(runs: Mapping[str, str], wanted: Wanted) -> dict[str, list[TypedTrigger]]:
    """The triggers of runs, by source.

    Args:
        runs: names of runs of parley search, search universal, search text or search methods on chat models, by what each is
            called.
        wanted: those whose reply was a success, those that are hits (by replies alone: a success), or all.

    Raises:
        ConfigError: a run is one of something else, of a model that takes no messages, or of a prompt that is written out.
        RunError: one is no run, or damaged.
        DataError: nothing was found.
    """
    found: dict[str, list[TypedTrigger]] = {}
    for label, name in runs.items():
        for trigger in _triggers(label, name, wanted):
            found.setdefault(trigger.source, []).append(trigger)
    if not found:
        fix = "search longer, or take every input: --found all"
        raise DataError("there is no trigger to type", where=", ".join(runs.values()), got=f"--found {wanted}", fix=fix)
    return found


def with_controls(triggers: Mapping[str, Sequence[TypedTrigger]]) -> dict[str, list[TypedTrigger]]:
    """Triggers by source, and each of their prompts once without any."""
    without: dict[tuple[Chat, str, bool], TypedTrigger] = {}
    controlled: dict[str, list[TypedTrigger]] = {}
    for source, found in triggers.items():
        for trigger in found:
            emptied = trigger.emptied()
            control = without.setdefault((emptied.chat, emptied.target, emptied.end), emptied)
            controlled.setdefault(source, []).append(replace(trigger, control=control.key))
    return controlled | {NO_INPUT: list(without.values())}


def _triggers(label: str, name: str, wanted: Wanted) -> Iterator[TypedTrigger]:
    run = RunFolder.load(fetched_run(name))
    if run.job == METHODS:
        for line in read_lines(str(run.config["method"])):
            yield from _triggers(f"{label}, {line.label}", f"{name.rstrip('/')}/{line.folder}", wanted)
        return
    if run.job not in (SEARCH, UNIVERSAL, TEXT):
        fix = "name runs of parley search, search universal, search text or search methods"
        raise ConfigError("this run is no search for triggers", where=name, got=run.job, fix=fix)
    rows = [row for part in run.read_parts() for row in part.to_pylist()]
    settings = run.config if run.job == TEXT else run.config.get("hugging_face", {})
    has_prompts = run.job == UNIVERSAL or any(row.get("prompt") is not None for row in rows)
    template, end = _template(run, settings, name, has_prompts=has_prompts), bool(settings["end"])

    def typed(source: str, key: str, entry: Mapping[str, Any], slots: list[str]) -> TypedTrigger:
        return TypedTrigger(key, source, entry["prompt"], entry["target"], tuple(slots), template, end)

    if run.job != UNIVERSAL:
        for row in finished(rows):
            hit = bool(row["verified"]) if run.job == TEXT else is_hit(row, str(run.config["hit"]))
            if row["typed"] and _is_wanted(row, hit, wanted):
                yield typed(label, row["item_key"], row, row["typed"])
        return
    if (best := best_found(rows)) is None:
        return
    # Of several models that were searched together a prompt is typed once.
    first = best["pairs"][0].get("model")
    pairs = [each for each in best["pairs"] if each.get("model") == first and _is_wanted(each, bool(each["hit"]), wanted)]
    # The random input behind the same prompts, so that the two lines can be compared.
    random = (row for row in finished(rows) if row["kind"] == RANDOM)
    for source, kept in ((label, best), *((f"{label}, random", row) for row in islice(random, 1))):
        for pair in pairs:
            yield typed(source if pair["searched"] else f"{source}, held out", pair["key"], pair, kept["typed"])


def _is_wanted(entry: Row, hit: bool, wanted: Wanted) -> bool:
    return {"verified": bool(entry["verified"]), "hits": hit, "all": True}[wanted]


def _template(run: RunFolder, settings: Mapping[str, Any], name: str, *, has_prompts: bool) -> Chat:
    """The messages that a search stood in, by settings that name them."""
    from parley.policies.chat.model import Message
    from parley.policies.hugging_face.slots import SLOT, template_of

    if run.job != TEXT and not (settings and is_local(str(run.config["model"]))):
        fix = "name a search of --model hf:FOLDER or gguf:FILE"
        raise ConfigError("the search's model takes no messages", where=name, got=str(run.config.get("model")), fix=fix)
    template = template_of(settings["template"] or None, has_prompts=has_prompts)
    if isinstance(template, str):
        fix = "search with one of the templates suffix, prefix, system and user, or a file of messages"
        raise ConfigError(
            "a prompt that is written out cannot be typed to other models", where=name, got=template[:80], fix=fix
        )
    return template or (Message("user", SLOT),)
