"""Transfer of triggers: `parley search transfer` (Zou et al. 2023, section 3.2).

Triggers of one chat model are typed to others, of which only text is seen: a matrix of rates, with the same prompts without
any input as a control. Models are asked one after the other, and answers are kept in the run. `typed_triggers` reads the
triggers of searches as messages that can be typed to any chat model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from parley.engine.core.ray.record import Counts, Rows
from parley.engine.core.ray.worker import Shard
from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.parts import ok_row
from parley.engine.core.runs.remote_sync import fetched_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import Row, finished
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs.exchange import EXCHANGE_ENDING, read_exchange
from parley.engine.core.verbs.job import ATTACK, TABLE_FILE, Job, Reporter, Result, Summary
from parley.engine.core.verbs.sharded import RESUME_SAFE, Sharded, ShardedConfig, Tally, rows_apart, run_items, spread
from parley.engine.core.verbs.transcripts import ASSISTANT, TranscriptRule
from parley.engine.triggers.catalogue import read_lines
from parley.engine.triggers.methods.composition import AttackComposition, settings_told, shown_access
from parley.engine.triggers.metrics.hits import VERIFIED, is_hit, successful_reply, unread_failure
from parley.engine.triggers.metrics.text import ShownInput, shown_inputs
from parley.engine.triggers.metrics.transfer import NO_INPUT, describe_transfer, transfer_metrics, transfer_table
from parley.engine.triggers.metrics.universal import RANDOM, best_found
from parley.engine.triggers.success import SuccessSettings, enough_tokens
from parley.engine.triggers.verbs.config import TRANSFERRED, run_template, trigger_transcript
from parley.engine.triggers.verbs.turns import JudgedAnswer, judged_columns, judges_of_replies
from parley.envs.core.config import NumItemsOrAll
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.core.seeds import derive_seed, stream
from parley.policies.chat.addresses import absolute_address, short_address
from parley.policies.chat.model import ANSWERS_FOLDER, MODERATED, Access
from parley.policies.chat.settings import ChatAsking

if TYPE_CHECKING:
    from parley.policies.chat.model import Chat, ChatModel


SEARCH, UNIVERSAL, TEXT = "search", "search-universal", "search-text"
"""The jobs whose rows are read."""
METHODS = "search-methods"
"""The job whose run holds searches, one for each line of its table."""
TriggerChoice = Literal["verified", "hits", "all"]


@dataclass(frozen=True)
class TypedTrigger:
    """A prompt as it is typed.

    Args:
        key: names it among those of its source.
        source: the run that it was found in, apart for prompts that no search saw, or what it is a control of.
        prompt: the request; None without one.
        target: the text that a model is to say.
        slots: the text in each slot.
        template: the messages, with slots.
        end: True if a reply ends behind its target.
        control: key of the same prompt without the input; empty for a prompt without one.
        written: whether the messages hold the input already, as in an exchange file.
    """

    key: str
    source: str
    prompt: str | None
    target: str
    slots: tuple[str, ...]
    template: Chat
    end: bool
    control: str = ""
    written: bool = False

    @property
    def chat(self) -> Chat:
        """Return the messages."""
        from parley.policies.chat.templates import filled_chat

        if self.written:
            return self.template
        return filled_chat(self.template, self.prompt, self.slots)

    def emptied(self) -> TypedTrigger:
        """Return the same prompt without the input."""
        template = self.template
        if self.written:
            # The last place where each text stands is where it was typed.
            for text in filter(None, self.slots):
                parts = [message.content.rpartition(text) for message in template]
                template = tuple(
                    replace(message, content=f"{before}{behind}".strip()) if mark else message
                    for message, (before, mark, behind) in zip(template, parts, strict=True)
                )
        slots = tuple("" for _ in self.slots)
        return replace(self, key=f"{self.source}:{self.key}", source=NO_INPUT, slots=slots, template=template)


def typed_triggers(runs: Mapping[str, str], choice: TriggerChoice) -> dict[str, list[TypedTrigger]]:
    """Return the triggers of runs, by source.

    Args:
        runs: names of runs of parley search, search universal, search text or search methods on chat models, by what each is
            called.
        choice: those whose reply was a success, those that are hits (by replies alone: a success), or all.

    Raises:
        ConfigError: a run is one of something else, of a model that takes no messages, or of a prompt that is written out.
        RunError: one is no run, or damaged.
        DataError: nothing was found.
    """
    triggers: dict[str, list[TypedTrigger]] = {}
    for label, name in runs.items():
        for trigger in _triggers(label, name, choice):
            triggers.setdefault(trigger.source, []).append(trigger)
    if not triggers:
        fix = "search longer; parley search transfer takes every input by --found all"
        raise DataError("there is no trigger to type", where=", ".join(runs.values()), got=f"--found {choice}", fix=fix)
    return triggers


def with_controls(triggers: Mapping[str, Sequence[TypedTrigger]]) -> dict[str, list[TypedTrigger]]:
    """Return triggers by source, and each of their prompts once without any."""
    without: dict[tuple[Chat, str, bool], TypedTrigger] = {}
    controlled: dict[str, list[TypedTrigger]] = {}
    for source, typed in triggers.items():
        for trigger in typed:
            emptied = trigger.emptied()
            control = without.setdefault((emptied.chat, emptied.target, emptied.end), emptied)
            controlled.setdefault(source, []).append(replace(trigger, control=control.key))
    return controlled | {NO_INPUT: list(without.values())}


def _triggers(label: str, name: str, choice: TriggerChoice) -> Iterator[TypedTrigger]:
    if name.endswith(EXCHANGE_ENDING):
        yield from _shared(label, Path(name).expanduser(), choice)
        return
    run = RunFolder.load(fetched_run(name))
    if run.job == METHODS:
        for line in read_lines(str(run.config["method"])):
            yield from _triggers(f"{label}, {line.label}", f"{name.rstrip('/')}/{line.folder}", choice)
        return
    if run.job not in (SEARCH, UNIVERSAL, TEXT):
        fix = "name runs of parley search, search universal, search text or search methods"
        raise ConfigError("this run is no search for triggers", where=name, got=run.job, fix=fix)
    rows = run.rows()
    settings = run.config if run.job == TEXT else run.config.get("hugging_face", {})
    has_prompts = run.job == UNIVERSAL or any(row.get("prompt") is not None for row in rows)
    template, end = run_template(run.job, run.config, name, has_prompts=has_prompts), bool(settings["end"])

    def typed(source: str, key: str, entry: Mapping[str, Any], slots: list[str]) -> TypedTrigger:
        return TypedTrigger(key, source, entry["prompt"], entry["target"], tuple(slots), template, end)

    if run.job != UNIVERSAL:
        for row in finished(rows):
            hit = bool(row["verified"]) if run.job == TEXT else is_hit(row, str(run.config["hit"]))
            if row["typed"] and _is_wanted(row, hit, choice):
                yield typed(label, row["item_key"], row, row["typed"])
        return
    if (best := best_found(rows)) is None:
        return
    # Of several models that were searched together a prompt is typed once.
    first = best["pairs"][0].get("model")
    pairs = [pair for pair in best["pairs"] if pair.get("model") == first and _is_wanted(pair, bool(pair["hit"]), choice)]
    # The random input behind the same prompts, so that the two lines can be compared.
    random = (row for row in finished(rows) if row["kind"] == RANDOM)
    for source, input_row in ((label, best), *((f"{label}, random", row) for row in islice(random, 1))):
        for pair in pairs:
            yield typed(source if pair["searched"] else f"{source}, held out", pair["key"], pair, input_row["typed"])


def _shared(label: str, path: Path, choice: TriggerChoice) -> Iterator[TypedTrigger]:
    """Yield the conversations of an exchange file; each stands as it was, up to the target's last reply."""
    from parley.policies.chat.model import Message

    for shared in read_exchange(path):
        messages = [Message(role, text) for role, text in shared.messages]
        while messages and messages[-1].role == ASSISTANT:
            messages.pop()
        if messages and (choice == "all" or shared.success):
            # What was typed stands in the messages already, and is given for those who type it elsewhere.
            yield TypedTrigger(shared.key, label, None, shared.target, shared.typed, tuple(messages), False, written=True)


def _is_wanted(entry: Row, hit: bool, choice: TriggerChoice) -> bool:
    return {"verified": bool(entry["verified"]), "hits": hit, "all": True}[choice]


_ITEMS = 16
"""Triggers of a shard at most, all of one model."""
NUM_PROMPTS = "num_prompts"
"""Entry of the summary: how many prompts are typed, those to each model."""


@dataclass(frozen=True, kw_only=True)
class TriggerTransferConfig(ShardedConfig):
    """The triggers to type, and the models."""

    searches: str = "runs/search"
    """Runs of parley search, search universal, search text or search methods on chat models, separated by commas."""
    model: str = ""
    """Chat models by their addresses, separated by commas; the one that was searched too, to have it in the matrix."""
    found: TriggerChoice = "verified"
    """Triggers that are typed: verified (the searched model's reply was a success), hits, or all."""
    limit: NumItemsOrAll = 100
    """Number of triggers of each source at most, the seed's choice; 0 for all."""
    success: SuccessSettings = field(default_factory=SuccessSettings)
    """When a reply is a success; by target: as the search has it."""
    chat: ChatAsking = field(default_factory=ChatAsking)
    """Settings of the models, and of one that judges."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for option, labels, named in (("--model", self.model_names, self.model), ("--searches", self.run_names, self.searches)):
            names = [name for name in named.split(",") if name.strip()]
            if len(labels) < len(names) or NO_INPUT in labels:
                fix = "name each once, and give folders or files names of their own"
                raise ConfigError("lines of the matrix would be called alike", where=option, got=named, fix=fix)

    @property
    def model_names(self) -> dict[str, str]:
        """Return the addresses by their labels, numbered if two are equal."""
        addresses = [name.strip() for name in self.model.split(",") if name.strip()]
        short = [name.rpartition(":")[2] if ".py:" in name else short_address(name) for name in addresses]
        seen: Counter[str] = Counter()
        labels = {}
        for name, address in zip(short, addresses, strict=True):
            seen[name] += 1
            labels[f"{name}-{seen[name]}" if short.count(name) > 1 else name] = absolute_address(address)
        return labels

    @property
    def run_names(self) -> dict[str, str]:
        """Return the runs by their labels, numbered if two are equal."""
        runs = [name.strip() for name in self.searches.split(",") if name.strip()]
        short = [Path(name).name for name in runs]
        return {
            f"{name}-{number}" if short.count(name) > 1 else name: run
            for number, (name, run) in enumerate(zip(short, runs, strict=True), start=1)
        }


@dataclass(frozen=True)
class ShownTrigger:
    """A trigger and the model that it is typed to.

    Args:
        model: its label.
        trigger: what is typed.
    """

    model: str
    trigger: TypedTrigger


@dataclass(frozen=True)
class TransferTask(Sharded[ShownTrigger]):
    """Triggers that are typed to models.

    Args:
        config: the settings.
        answers: the folder in which answers are kept.
        num_tokens: most tokens of a reply.
    """

    unit = "replies"
    event = "typed"

    config: TriggerTransferConfig
    answers: str
    num_tokens: int

    def seed(self, key: str) -> int:
        return derive_seed(self.config.seed, "transfer", key)

    def worker(self) -> TriggerTransferWorker:
        return TriggerTransferWorker(self)

    def shard_size(self, num_items: int, num_workers: int) -> int:
        return spread(num_items, num_workers, _ITEMS)

    def digest(self, rows: Rows) -> Counts:
        done = finished(rows)
        return Counter({self.unit: len(done), "successes": sum(bool(row[VERIFIED]) for row in done)})

    def describe(self, tally: Tally) -> str:
        return f"successes: {tally.total['successes']:,}"


class TriggerTransferWorker:
    """A worker that types triggers; it holds one model at a time, beside a judge.

    Args:
        transfer_task: the triggers and their models.
    """

    def __init__(self, transfer_task: TransferTask) -> None:
        self.transfer_task, self.config = transfer_task, transfer_task.config
        self._label = ""
        self._model: ChatModel | None = None
        self._success = judges_of_replies(
            self.config.success, self.config.chat.on(self.config.device), Path(transfer_task.answers)
        )

    def run(self, shard: Shard[ShownTrigger]) -> list[dict[str, Any]]:
        """Return one row per trigger and model; all questions to a model are asked at once."""
        return rows_apart(self._all_rows, shard, self.transfer_task.seed)

    def _all_rows(self, shard: Shard[ShownTrigger]) -> list[dict[str, Any]]:
        rows: dict[str, dict[str, Any]] = {}
        for label in dict.fromkeys(item.model for item in shard.items):
            items = {key: item.trigger for key, item in zip(shard.keys, shard.items, strict=True) if item.model == label}
            rows |= self._rows(label, items)
        return [rows[key] for key in shard.keys]

    def _rows(self, label: str, triggers: Mapping[str, TypedTrigger]) -> dict[str, dict[str, Any]]:
        from parley.policies.chat.model import ChatDecoding

        model, success = self._model_of(label), self.config.success
        chats, tokens = [trigger.chat for trigger in triggers.values()], self.transfer_task.num_tokens
        greedy = model.answer(chats, decoding=ChatDecoding(max_tokens=tokens))
        drawn = []
        decoding = ChatDecoding(max_tokens=tokens, temperature=success.temperature)
        for number in range(success.samples):
            seeds = [derive_seed(self.transfer_task.seed(key), "sample", number) for key in triggers]
            drawn.append(model.answer(chats, decoding=decoding, seeds=seeds))
        rows = {}
        for index, (key, trigger) in enumerate(triggers.items()):
            judge = self._success[trigger.end]
            judged = [
                JudgedAnswer(answer, judge.verdict(answer, trigger.target, trigger.prompt))
                for answer in (greedy[index], *(answers[index] for answers in drawn))
            ]
            rows[key] = ok_row(key, self.transfer_task.seed(key)) | {
                "source": trigger.source,
                "trigger": trigger.key,
                "control": trigger.control or None,
                "model": label,
                "prompt": trigger.prompt,
                "target": trigger.target,
                "typed": list(trigger.slots),
                "ended": greedy[index].ended,
                **judged_columns(judged[0], judged[1:]),
            }
        return rows

    def _model_of(self, label: str) -> ChatModel:
        """Return the model of a label."""
        from parley.policies.chat.loading import load_chat_model

        if self._model is None or self._label != label:
            # Free the memory of the previous model first.
            self._model = None
            chat, answers = self.config.chat.on(self.config.device), Path(self.transfer_task.answers)
            self._label, self._model = label, load_chat_model(self.config.model_names[label], chat, answers=answers)
        return self._model


@dataclass(frozen=True)
class TransferPlan:
    """A checked configuration with its triggers and models.

    Args:
        config: the settings.
        items: triggers and models, by key.
    """

    config: TriggerTransferConfig
    items: dict[str, ShownTrigger]


def zou2023() -> TriggerTransferConfig:
    """Type the triggers that worked on the searched model, greedy replies (Zou et al. 2023)."""
    return TriggerTransferConfig()


class SearchTransfer(Job[TriggerTransferConfig, TransferPlan, TransferPlan]):
    """`parley search transfer`."""

    words = ("search", "transfer")
    run_name = "search-transfer"
    config = TriggerTransferConfig
    presets = {"zou2023": zou2023}
    repeatable = ("model", "searches")
    schema = TRANSFERRED
    files = (TABLE_FILE, SUMMARY, "rows")
    num_rows_entry = NUM_PROMPTS
    resume_safe = RESUME_SAFE
    outcomes = MODERATED

    def transcripts(self, run: RunFolder) -> TranscriptRule:
        return trigger_transcript

    def prepare(self, config: TriggerTransferConfig, path: Path, reporter: Reporter) -> TransferPlan:
        from parley.policies.chat.loading import load_chat_model

        if not config.model_names:
            fix = "--model ADDRESS, several times or separated by commas"
            raise ConfigError("there is no model to type triggers to", where="--model", fix=fix)
        config.require_device()
        items = _items(config)
        judges_of_replies(config.success, config.chat.on("cpu"), None)
        for address in config.model_names.values():
            load_chat_model(address, config.chat.on("cpu"))
        return TransferPlan(config, items)

    def work(self, run: RunFolder, prepared: TransferPlan, reporter: Reporter) -> TransferPlan:
        reporter.say(str(_composition(prepared.config)))
        num_tokens = prepared.config.success.tokens or enough_tokens(item.trigger.target for item in prepared.items.values())
        transfer_task = TransferTask(prepared.config, str((run.path / ANSWERS_FOLDER).absolute()), num_tokens)
        run_items(run, transfer_task, prepared.items, prepared.config, reporter, "typing triggers to models")
        return prepared

    def measure(self, run: RunFolder, plan: TransferPlan) -> Summary:
        config, rows = plan.config, run.rows()
        return Summary(
            f"triggers of {', '.join(config.run_names)} on {', '.join(config.model_names)}",
            f"{len(plan.items):,} prompts, {config.found} triggers, {len(config.model_names)} models, seed {config.seed}.",
            transfer_metrics(rows),
            {NUM_PROMPTS: len(plan.items), ATTACK: _composition(config).parts},
        )

    def models(self, config: TriggerTransferConfig) -> Mapping[str, str]:
        return config.model_names

    def num_items(self, config: TriggerTransferConfig) -> int:
        return len(_items(config))

    def metrics_of(self, config: TriggerTransferConfig) -> None:
        return None

    def tables(self, run: RunFolder) -> dict[str, EstimateTable]:
        metrics = run.metrics()
        if not metrics:
            return {}
        table = transfer_table(metrics, successful_reply(run.config["success"], end=None))
        rows = (row for row in finished(run.rows()) if row["source"] != NO_INPUT)
        return {"": table, **shown_inputs(ShownInput.of(row, row["typed"], model=row["model"]) for row in rows)}

    def present(self, result: Result, run: RunFolder) -> Result:
        legend = {name: describe_transfer(name) for name in result.metrics}
        return replace(result, legend=legend, tables=self.tables(run), failure=result.failure or unread_failure(result.metrics))


def _composition(config: TriggerTransferConfig) -> AttackComposition:
    """Return the attack as a composition: nothing is searched, so that there is no objective."""
    models = config.model_names.values()
    return AttackComposition(
        victim=", ".join(models),
        shows=min(shown_access(model, by_messages=True) for model in models),
        method=f"what {', '.join(config.run_names.values())} found: {config.found}",
        reads=Access.TEXT,
        prompts="those of the searches",
        success=settings_told(config.success, "by"),
    )


def _items(config: TriggerTransferConfig) -> dict[str, ShownTrigger]:
    """Return the typed triggers with their models, by key: at most `limit` of each source, with their controls."""
    typed = typed_triggers(config.run_names, config.found)
    chosen = {source: _chosen(triggers, config) for source, triggers in typed.items()}
    shown = [(source, trigger) for source, triggers in with_controls(chosen).items() for trigger in triggers]
    return {
        f"{label}/{source}/{trigger.key}": ShownTrigger(label, trigger)
        for label in config.model_names
        for source, trigger in shown
    }


def _chosen(triggers: Sequence[TypedTrigger], config: TriggerTransferConfig) -> list[TypedTrigger]:
    """Return at most `limit` triggers; a universal input and a random one keep the same pairs."""
    if not config.limit or len(triggers) <= config.limit:
        return list(triggers)
    drawn = stream(config.seed, "transferred").permutation(len(triggers))[: config.limit]
    return [triggers[index] for index in sorted(drawn.tolist())]


SEARCH_TRANSFER = SearchTransfer()
