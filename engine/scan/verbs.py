"""`parley scan POLICY.yaml --model ADDRESS`: what a chat model makes of a policy's prompts, as they are and under attacks.

A row is one answer: a prompt, an attack or control, a repeat. Limits of the policy decide the exit status: 0 kept, 1 broken,
2 undecided. The run folder also holds `junit.xml` and `results.sarif`.
"""

from __future__ import annotations

import gc
import queue
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import numpy as np
import pyarrow as pa
from tyro import conf

from parley.engine.core.ray.record import Counts, Rows
from parley.engine.core.ray.worker import IndexedItems, Shard, TurnResult, UnderWay
from parley.engine.core.runs.documents import CONFIG, SUMMARY, whole_file
from parley.engine.core.runs.parts import ANSWERED, OK, answer_columns, ok_row, row_schema
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.rows import selected
from parley.engine.core.stats.statistics import NOTHING, Row, finished
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs.job import TABLE_FILE, Job, Reporter, Result, Summary
from parley.engine.core.verbs.sharded import RESUME_SAFE, Sharded, ShardedConfig, Tally, rows_apart, run_items, spread
from parley.engine.core.verbs.transcripts import ASSISTANT, SYSTEM, USER, Transcript, TranscriptRule
from parley.engine.scan.attackers.attacker import (
    AttackConversation,
    Attacker,
    AttackGoal,
    Seats,
    answered,
    converse,
    query_seed,
)
from parley.engine.scan.attackers.catalogue import (
    SCRIPTED,
    FoundConversation,
    Replayed,
    Reworded,
    ScriptedWriter,
    asks_under_budget,
    attackers,
    contestants,
)
from parley.engine.scan.attacks import CONTROLS, NONE, Rewording, adapted_rewordings, rewordings
from parley.engine.scan.checks import Checks, is_breach
from parley.engine.scan.defence_metrics import defence_metric_names, defence_metrics, defence_tables, side_broken
from parley.engine.scan.defences import DefendedChatModel, Surroundings, defence_of, queries_of
from parley.engine.scan.labels import keep_sheets, label_metrics, label_note, labels_of
from parley.engine.scan.metrics import (
    BREACH,
    BROKEN,
    BUDGET_PARTS,
    CORRECTED,
    QUALITY,
    RULE,
    SCAN_ITEMS,
    SUCCESS_BY,
    UNDECIDED,
    UNTOUCHED,
    AnswerColumns,
    LimitVerdict,
    breaches_table,
    brief,
    budget_tables,
    conversation_before,
    decide_limit,
    describe_scan,
    panel_metrics,
    row_tags,
    scan_metrics,
    scan_tables,
    unmet_note,
)
from parley.engine.scan.outputs import JUNIT, SARIF, ScanCase, write_junit, write_sarif
from parley.engine.scan.policy import DEFAULT_QUERIES, DefenceSpec, Policy, PolicyPrompt, read_policy
from parley.engine.triggers.budget import BUDGET, COUNTED, Spending, clock_of, price_of
from parley.envs.core.config import NumItemsOrAll, PositiveFloat, from_dict
from parley.envs.core.errors import ConfigError, DataError, RunError
from parley.envs.core.play import AgentError
from parley.envs.core.registry import nearest
from parley.envs.core.seeds import derive_seed
from parley.envs.core.storage.uris import display_path
from parley.policies.chat.addresses import absolute_address, is_served, short_address
from parley.policies.chat.limits import LETTERS_A_TOKEN
from parley.policies.chat.model import ANSWERS_FOLDER, MODERATED, Answer, AnswerKind, Chat, ChatDecoding, ChatModel, Message
from parley.policies.chat.settings import ChatAsking, ChatModelSettings

if TYPE_CHECKING:
    from parley.engine.core.cli.main import Verb

DEMO = "demo"
"""Names the embedded policy, and the embedded bot."""
NUM_ANSWERS, LIMITS, POLICY, UNDECIDED_REASON = "num_answers", "limits", "policy", "undecided_reason"
"""Entries of the summary."""
TAGS, REPEATED = "tags", "repeated"
_BATCH, _SERVED_BATCH = 32, 256
_TURN_S = 0.5
SWITCH_S = 5e-4
"""Seconds that a thread computes before another may, while answers are waited for; Python's are ten times as many."""
_SERVED_ROOM = 2
"""Shards of a served model that are asked about together, so that it is busy while one of them is judged and written."""
_TALKS, _TALKS_ROOM, _MOST_SHARDS = 8, 32, 2_000
"""Attacks of a shard, which wait for each other after every message, shards that are played together, and shards in all."""
# A rule, whether it is broken (null where that is undecided), and what a reader sees of the reason.
_VERDICT = {"rule": str, "broken": bool, "evidence": str}
SCANNED = row_schema(
    {
        # A prompt by its key, an attack or control by its name, the repeat from 0, and the last message as it was asked.
        "prompt attack": str,
        "repeat": int,
        "asked reply": str,
        **ANSWERED,
        # Whether nothing was asked but the prompt as it is; null in runs of earlier versions.
        "untouched": bool,
        # Whether a rule is broken; null where none is and one is undecided.
        "breach": bool,
        "rules": [_VERDICT],
    }
)
"""One answer per row."""
_DEFENDED = {
    # The defence around the model, empty for none; whether the attack was made behind it; and which one stopped the answer.
    "defence refused_by": str,
    "adaptive": bool,
    # Whether the answer breaks a rule against harm, and one that wants help; null where there is none, or undecided.
    "harmful unmet": bool,
    # Questions to models that the answer took.
    "model_queries": int,
}
"""Further columns of a scan with defences."""
_SPENDING = {"queries tokens attacker_tokens": int, "seconds money": float}
# The turn before it in its conversation (-1 for none), the attacker's whole answer, and what was spent up to and with it.
_TURN = {"before": int, "asked reply kind thought": str, "score": float, "breach": bool, **_SPENDING}
ATTACKED = row_schema(
    # Each message to the target; answers of the attacker that are no attack; why it ended, and what it cost in all.
    {"turns": [_TURN], "refusals": [str], "stopped": str, **_SPENDING},
    SCANNED,
)
"""One attack on a prompt under a budget per row; asked, reply and rules are those of its first breach, or of its best turn."""


@dataclass(frozen=True, kw_only=True)
class ScanAsking(ChatAsking):
    """Settings of the scanned model."""

    topic: ClassVar[str] = "scan"
    constants: ClassVar[Mapping[str, Any]] = {}

    first_timeout_s: PositiveFloat = 9.0
    """Seconds for the first question of a scan, which checks the target."""


@dataclass(frozen=True, kw_only=True)
class ScanConfig(ShardedConfig):
    """The policy, and the model that must keep it."""

    added: ClassVar[Mapping[str, Any]] = {"defences": ""}

    policy: str = ""
    """The policy, a YAML file; parley scan --init writes a commented one."""
    model: str = ""
    """The chat model by its address: openai:URL#MODEL, http:FILE.yaml, ws:FILE.yaml, cmd:PROGRAM, hf:FOLDER, gguf:FILE or
    path/file.py:Name."""
    limit: NumItemsOrAll = 0
    """At most so many prompts, the first ones; 0 for all."""
    defences: str = ""
    """Defences beside those of the policy, by name, separated by commas: reminder, perplexity, paraphrase, retokenise,
    smooth-llm."""
    chat: ScanAsking = field(default_factory=ScanAsking)
    """How the model, and one that judges, are loaded or asked."""


@dataclass(frozen=True)
class ScanItem:
    """A question to the model.

    Args:
        prompt: index of the prompt in the policy.
        attack: name of the attack or control.
        repeat: number of the repeat.
        defence: name of the defence around the model; empty for none.
        adaptive: whether the attack was made behind that defence.
    """

    prompt: int
    attack: str
    repeat: int
    defence: str = ""
    adaptive: bool = False


@dataclass(frozen=True)
class ScanTask(Sharded[ScanItem]):
    """A policy that a model is asked about.

    Args:
        config: the configuration.
        policy: the policy.
        answers: folder in which answers are kept.
    """

    unit = "answers"
    event = "scanned"
    digest_columns = ("breach",)

    config: ScanConfig
    policy: Policy
    answers: str

    def seed(self, key: str) -> int:
        return derive_seed(self.config.seed, "scan", key)

    def worker(self) -> ScanWorker:
        return ScanWorker(self)

    def shard_size(self, num_items: int, num_workers: int) -> int:
        most = _SERVED_BATCH if self.is_served else _BATCH
        return spread(num_items, num_workers, max(_TALKS, num_items // _MOST_SHARDS) if self.talks else most)

    def room(self, shard_size: int) -> int:
        return _TALKS_ROOM if self.talks else _SERVED_ROOM if self.is_served else 0

    @property
    def talks(self) -> bool:
        """True for attacks on a server of which no model in this process is a part."""
        names = (seat.model, seat.scorer) if (seat := self.policy.attacker) else ()
        is_elsewhere = all(is_served(name) for name in names if name not in ("", SCRIPTED))
        return self.is_served and is_elsewhere and asks_under_budget(self.policy)

    @property
    def is_served(self) -> bool:
        """True for a model that is asked from threads, which never wait for each other."""
        return is_served(self.config.model)

    @property
    def computes(self) -> bool:
        kinds = {inner.kind for rule in self.policy.all_rules for check in rule.checks for inner in check.nested}
        return not self.is_served or not kinds.isdisjoint(("classifier", "judge", "rubric", "safety"))

    def digest(self, rows: Rows) -> Counts:
        done = finished(rows)
        breaches, undecided = (sum(row["breach"] is outcome for row in done) for outcome in (True, None))
        return Counter({self.unit: len(done), "breaches": breaches, "undecided": undecided})

    def describe(self, tally: Tally) -> str:
        undecided = tally.total["undecided"]
        return f"breaches: {tally.total['breaches']:,}" + (f", undecided: {undecided:,}" if undecided else "")


class ScanWorker:
    """A worker that asks and judges.

    Args:
        task: what is asked.
    """

    def __init__(self, task: ScanTask) -> None:
        self.task, self.policy = task, task.policy
        chat, answers = task.config.chat.on(task.config.device), Path(task.answers)
        target = load_target(task.config, answers)
        self.models = {"": target} | defended_models(task.config, task.policy, target, answers)
        self.checks = Checks(task.policy, chat, answers)
        self.seats: Seats | None = None
        if asks_under_budget(task.policy):
            self.contestants = contestants_of(task.policy)
            self.seats = seats_of(task.config, task.policy, target, answers)
        else:
            self.rewordings = wordings_of(task.policy)
        self.adapted = adapted_rewordings(task.policy.attacks, _found_by_searches)

        self._held: dict[str, Shard[ScanItem]] = {}
        self._done = Counter[str]()
        self._ended = queue.SimpleQueue[tuple[Shard[ScanItem], list[dict[str, Any]] | Exception]]()

    def run(self, shard: Shard[ScanItem]) -> list[dict[str, Any]]:
        """Return one row per question, or per attack under a budget; all of a shard are asked at once."""
        return rows_apart(self._rows if self.seats is None else self._attacked, shard, self.task.seed)

    def turn(self, joining: Sequence[Shard[ScanItem]], seconds: float) -> TurnResult[Rows]:
        """Ask about several shards at once, each in a thread of its own; see `TurnWorker`."""
        for shard in joining:
            self._held[shard.name] = shard
            # A thread that Python does not wait for: an interrupt ends the process at once, and answers are kept as they come.
            threading.Thread(target=self._work, args=(shard,), name=f"parley-scan-{shard.name}", daemon=True).start()
        ended: dict[str, Rows] = {}
        deadline = time.monotonic() + min(seconds, _TURN_S)
        while not ended and (left := deadline - time.monotonic()) > 0:
            with suppress(queue.Empty):
                shard, outcome = self._ended.get(timeout=left)
                if self._held.get(shard.name) is not shard:
                    continue
                if isinstance(outcome, Exception):
                    raise outcome
                del self._held[shard.name]
                ended[shard.name] = outcome
        share = {name: min(self._done[name], len(shard)) for name, shard in self._held.items()}
        return TurnResult(ended, {name: UnderWay(done, Counter()) for name, done in share.items()})

    def drop(self) -> None:
        """Forget all shards."""
        self._held = {}

    def _work(self, shard: Shard[ScanItem]) -> None:
        try:
            self._ended.put((shard, self.run(shard)))
        except Exception as error:
            self._ended.put((shard, error))

    def _rows(self, shard: Shard[ScanItem]) -> list[dict[str, Any]]:
        prompts = [self.policy.prompts[item.prompt] for item in shard.items]
        pairs = list(zip(prompts, shard.items, strict=True))
        chats = []
        for prompt, item in pairs:
            rewording = self.adapted[item.attack, item.defence] if item.adaptive else self.rewordings[item.attack]
            # Attacks of one prompt and repeat draw alike, so that they differ in nothing but the attack.
            seed = derive_seed(self.task.config.seed, "wording", prompt.key, item.repeat)
            chats.append(chat_of(self.policy, prompt, rewording, seed))
        # Answers behind a defence are drawn as those without it, so that they differ in nothing but the defence.
        seeds = [self.task.seed(_key(prompt, item)) for prompt, item in pairs]
        given: dict[int, Answer] = {}
        self._done[shard.name] = 0

        def count() -> None:
            self._done[shard.name] += 1

        for name, model in self.models.items():
            rows_of = [index for index, item in enumerate(shard.items) if item.defence == name]
            of_model, drawn = [chats[index] for index in rows_of], [seeds[index] for index in rows_of]
            answers = answered(model, of_model, decoding_of(self.policy), drawn, rows_of, count)
            given |= {index: answer for index, (answer, _) in zip(rows_of, answers, strict=True)}
        rows = []
        for index, (key, item, prompt, chat) in enumerate(zip(shard.keys, shard.items, prompts, chats, strict=True)):
            question, answer = chat[-1].content, given[index]
            verdicts = [self.checks.verdict(rule, answer, question) for rule in self.policy.rules_of(prompt)]
            rows.append(
                ok_row(key, self.task.seed(key))
                | {
                    "prompt": prompt.key,
                    "attack": item.attack,
                    "repeat": item.repeat,
                    "asked": question,
                    "reply": answer.text,
                    **answer_columns(answer),
                    "untouched": question == prompt.messages[-1].content,
                    "breach": is_breach(verdicts),
                    "rules": [vars(verdict) for verdict in verdicts],
                    **self._behind(prompt, item, [answer], 0, [vars(verdict) for verdict in verdicts]),
                }
            )
        return rows

    def _behind(
        self, prompt: PolicyPrompt, item: ScanItem, answers: Sequence[Answer], shown: int, verdicts: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Return the columns of a scan with defences, by all answers, and the number and verdicts of the one that is shown."""
        if not self.policy.defences:
            return {}
        rules = self.policy.rules_of(prompt)
        return {
            "defence": item.defence,
            "refused_by": getattr(answers[shown], "refused_by", "") if answers else "",
            "adaptive": item.adaptive,
            "harmful": side_broken(rules, verdicts, wants_help=False),
            "unmet": side_broken(rules, verdicts, wants_help=True),
            "model_queries": sum(map(queries_of, answers)),
        }

    def _attacked(self, shard: Shard[ScanItem]) -> list[dict[str, Any]]:
        assert self.seats is not None, "the policy has a budget"
        self._done[shard.name] = 0
        items = list(enumerate(shard.items))
        # What is tried behind a defence without having been made behind it was made without any: known answers cost nothing.
        plain = {index: self._conversation(item) for index, item in items if not item.adaptive}
        self._converse(shard, plain, self.seats)
        conversations = {index: plain[index] for index, item in items if not item.defence}
        for name, model in self.models.items():
            behind = {
                index: self._conversation(item, None if item.adaptive else _replayed(plain[index]))
                for index, item in items
                if name and item.defence == name
            }
            self._converse(shard, behind, replace(self.seats, target=model))
            conversations |= behind
        return [self._attack_row(key, item, conversations[index]) for key, (index, item) in zip(shard.keys, items, strict=True)]

    def _converse(self, shard: Shard[ScanItem], conversations: Mapping[int, AttackConversation], seats: Seats) -> None:
        """Play conversations of a shard, by the index of their items."""
        before, indices = self._done[shard.name], list(conversations)

        def count(ended: int) -> None:
            self._done[shard.name] = before + ended

        try:
            converse(list(conversations.values()), seats, count)
        except AgentError as error:
            error.rows = tuple(indices[row] for row in error.rows)
            raise

    def _conversation(self, item: ScanItem, attacker: Attacker | None = None) -> AttackConversation:
        """Return a fresh attack on a prompt; an adaptive one knows the defence."""
        assert self.seats is not None, "the policy has a budget"
        prompt, model = self.policy.prompts[item.prompt], self.models[item.defence]
        seed = self.task.seed(_key(prompt, item))
        text, rules = prompt.messages[-1].content, self.policy.rules_of(prompt)
        known = model.defence.summary if item.adaptive and isinstance(model, DefendedChatModel) else ""
        goal = AttackGoal(prompt.goal or text, text, seed, self.seats.budget.queries, known)

        def verdicts(answer: Answer, asked: str) -> tuple[bool | None, list[dict[str, Any]]]:
            of_rules = [self.checks.verdict(rule, answer, asked) for rule in rules]
            return is_breach(of_rules), [vars(verdict) for verdict in of_rules]

        if item.adaptive and (item.attack, item.defence) in self.adapted:
            attacker = Reworded(self.adapted[item.attack, item.defence])
        moves = (attacker or self.contestants[item.attack]).attack(goal)
        return AttackConversation(moves, goal, chat_before(self.policy, prompt), verdicts, seed)

    def _attack_row(self, key: str, item: ScanItem, conversation: AttackConversation) -> dict[str, Any]:
        best, turns, prompt = conversation.best, conversation.turns, self.policy.prompts[item.prompt]
        rules, cells = turns[best].rules if turns else [], []
        for turn in turns:
            texts = {"asked": turn.message, "reply": turn.answer.text, "kind": turn.answer.kind.value, "thought": turn.thought}
            before = turn.before.index if turn.before else -1
            cells.append({"before": before, **texts, "score": turn.score, "breach": turn.breach, **vars(turn.spent)})
        return ok_row(key, conversation.seed) | {
            "prompt": prompt.key,
            "attack": item.attack,
            "repeat": item.repeat,
            "asked": turns[best].message if turns else "",
            "reply": turns[best].answer.text if turns else "",
            **answer_columns(turns[best].answer if turns else None),
            "untouched": {turn.message for turn in turns} == {prompt.messages[-1].content},
            "breach": conversation.breach,
            "rules": rules,
            "turns": cells,
            "refusals": conversation.refusals,
            "stopped": conversation.stopped,
            **vars(conversation.spending),
            **self._behind(prompt, item, [turn.answer for turn in turns], best, rules),
        }


def _key(prompt: PolicyPrompt, item: ScanItem) -> str:
    return f"{prompt.key}/{item.attack}/{item.repeat}"


def wordings_of(policy: Policy) -> dict[str, Rewording]:
    """Return the controls and the attacks of a policy, by name.

    Raises:
        ConfigError: there is no such attack.
        DataError: a search found nothing that can be typed.
    """
    return rewordings(policy.attacks, _found_by_searches, attackers)


def _found_by_searches(runs: str) -> list[str]:
    from parley.engine.triggers.verbs.transfer import typed_triggers

    named = {name.strip(): name.strip() for name in runs.split(",") if name.strip()}
    triggers = typed_triggers(named, "verified").values()
    texts = (" ".join(trigger.slots).strip() for of_source in triggers for trigger in of_source)
    if not (typed := list(filter(None, dict.fromkeys(texts)))):
        fix = "name a search, or a file of conversations whose items say what was typed"
        raise DataError("nothing that could stand behind a prompt was typed", where="triggers", got=runs, fix=fix)
    return typed


def defended_models(config: ScanConfig, policy: Policy, target: ChatModel, answers: Path | None = None) -> dict[str, ChatModel]:
    """Return a model behind each defence of a policy, by its name; the answers that are given inside are kept.

    Raises:
        ConfigError: there is no such defence, or a setting of it does not fit.
        CheckpointError: a model of it is not there.
    """
    address = config.model if config.model == DEMO else absolute_address(config.model)
    beside = Surroundings(address, config.chat.on(config.device), answers)
    return {
        spec.name: DefendedChatModel(f"{address} behind {spec.name}", target, defence_of(spec, config.policy), beside)
        for spec in policy.defences
    }


def _found_by_scans(policy: Policy, runs: str) -> list[FoundConversation]:
    conversations, goals = [], {prompt.key: prompt.goal for prompt in policy.prompts}
    for name in filter(None, map(str.strip, runs.split(","))):
        rows = finished(RunFolder.load(Path(name).expanduser()).rows())
        texts = {row["prompt"]: row["asked"] for row in rows if row["attack"] == NONE}
        for row in rows:
            if row["breach"] and not row.get("defence") and row["attack"] not in CONTROLS and row["prompt"] in texts:
                messages = (*(turn["asked"] for turn in conversation_before(row)), row["asked"])
                goal = goals.get(row["prompt"], "")
                conversations.append(FoundConversation(texts[row["prompt"]], messages, goal))
    if not conversations:
        fix = "name a run of parley scan with breaches under attack"
        raise DataError("the scans found no conversation that breaks a rule", where=runs, fix=fix)
    return list(dict.fromkeys(conversations))


def _replayed(conversation: AttackConversation) -> Replayed:
    """Return an attack by the messages that led to the best turn of a conversation, as they were."""
    chat = conversation.turns[conversation.best].chat if conversation.turns else ()
    messages = tuple(message.content for message in chat if message.role == USER)
    return Replayed((FoundConversation(conversation.goal.prompt, messages),) if messages else ())


def chat_before(policy: Policy, prompt: PolicyPrompt) -> Chat:
    """Return the messages before the last one of a prompt, the system's included."""
    system = (Message("system", policy.system),) if policy.system else ()
    return (*system, *prompt.messages[:-1])


def chat_of(policy: Policy, prompt: PolicyPrompt, rewording: Rewording, seed: int) -> Chat:
    """Return the messages of a question: the system's, those of the prompt, the last one as the attack words it."""
    last = prompt.messages[-1]
    return (*chat_before(policy, prompt), Message(last.role, rewording(last.content, seed)))


def contestants_of(policy: Policy) -> Mapping[str, Attacker]:
    """Return the attackers of a policy with a budget, the controls first, by name.

    Raises:
        ConfigError: there is no such attack, or one needs an attacker model and none is named.
        DataError: a search found nothing that can be typed.
    """
    made = contestants(policy.attacks, _found_by_searches, partial(_found_by_scans, policy), draws=policy.temperature > 0)
    writers = [name for name, attacker in made.items() if attacker.needs_model and name not in CONTROLS]
    if writers and policy.attacker is None:
        fix = f"write attacker: ADDRESS of a chat model in the policy, or attacker: {SCRIPTED}"
        raise ConfigError("an attack needs a model that writes its messages", where="attacks", got=writers[0], fix=fix)
    return made


def seats_of(config: ScanConfig, policy: Policy, target: ChatModel, answers: Path | None) -> Seats:
    """Return target, attacker model, scorer and budget of a policy.

    Raises:
        ConfigError: no model is called so.
        CheckpointError: no model is there.
    """
    from parley.policies.chat.answers import OwnChatModel, kept_answers
    from parley.policies.chat.loading import load_chat_model
    from parley.policies.chat.verdicts import ChatRatings

    chat, seat, attacker, rate = config.chat.on(config.device), policy.attacker, None, None
    price = partial(price_of, chat)
    if seat is not None and any(attacker.needs_model for attacker in contestants_of(policy).values()):
        if seat.model == SCRIPTED:
            attacker = kept_answers(OwnChatModel(SCRIPTED, ScriptedWriter(), chat), answers)
        else:
            address = absolute_address(seat.model)
            # The same weights are loaded once.
            attacker = target if address == target.name else load_chat_model(address, chat, answers=answers)
    if seat is not None and seat.scorer:
        scorer = load_chat_model(absolute_address(seat.scorer), chat, answers=answers)
        ratings, clock = ChatRatings(scorer, chat.judge_tokens), clock_of(scorer)

        def rate(reply: str, goal: AttackGoal) -> tuple[float, Mapping[str, float]]:
            began = clock()
            (rating,) = ratings([reply], goal.text, goal.prompt)
            # The scorer reads goal, prompt and reply; its tokens are estimated.
            read = rating.answers * (len(goal.text) + len(goal.prompt) + len(reply)) // LETTERS_A_TOKEN
            written = rating.answers * chat.judge_tokens
            costs = {"attacker_tokens": read + written, "money": price(scorer, read, written)}
            return rating.value, costs | {"seconds": clock() - began}

    writing = ChatDecoding(temperature=seat.temperature, max_tokens=seat.max_tokens) if seat else ChatDecoding()
    return Seats(target, decoding_of(policy), budget_of(policy), attacker, writing, rate, price)


def budget_of(policy: Policy) -> Spending:
    """Return what each attack on a prompt may spend."""
    parts = dict(policy.budget) or {"queries": DEFAULT_QUERIES}
    return Spending(**{name: int(most) if name in COUNTED else most for name, most in parts.items()})  # type: ignore[arg-type]


def decoding_of(policy: Policy) -> ChatDecoding:
    """Return how the model chooses its answers."""
    return ChatDecoding(temperature=policy.temperature, max_tokens=policy.max_tokens)


def load_target(config: ScanConfig, answers: Path | None = None, settings: ChatModelSettings | None = None) -> ChatModel:
    """Return the model that is scanned.

    Args:
        config: the configuration.
        answers: folder in which answers are kept; None keeps none.
        settings: other settings than those of the configuration.

    Raises:
        ConfigError: no model is named, or none is called so.
        CheckpointError: no model is there.
    """
    from parley.policies.chat.answers import OwnChatModel, kept_answers
    from parley.policies.chat.loading import load_chat_model

    chat = settings or config.chat.on(config.device)
    if config.model == DEMO:
        return kept_answers(OwnChatModel(DEMO, DemoBot(), chat), answers)
    if not config.model:
        fix = "--model openai:URL#MODEL, http:FILE.yaml, cmd:PROGRAM, hf:FOLDER, path/file.py:Name; parley scan demo needs none"
        raise ConfigError("there is no model to scan", where="--model", fix=fix)
    return load_chat_model(absolute_address(config.model), chat, answers=answers)


def target_name(address: str) -> str:
    """Return the short name of a model."""
    return address.rpartition(":")[2] if ".py:" in address and not is_served(address) else short_address(address)


def load_policy(config: ScanConfig) -> Policy:
    """Return the policy of a configuration, with at most `limit` prompts.

    Raises:
        ConfigError: none is named, or it does not fit.
        DataError: a file cannot be read.
    """
    if not config.policy:
        fix = "parley scan POLICY.yaml --model ADDRESS; parley scan --init writes a policy, parley scan demo needs none"
        raise ConfigError("there is no policy", where="POLICY", fix=fix)
    if config.policy == DEMO:
        with as_file(files("parley.engine.scan").joinpath("demo.yaml")) as path:
            policy = read_policy(path)
    else:
        policy = read_policy(Path(config.policy).expanduser())
    more = tuple(DefenceSpec(name, name) for name in map(str.strip, config.defences.split(",")) if name)
    defences = {spec.name: spec for spec in (*more, *policy.defences)}
    prompts = policy.prompts[: config.limit] if config.limit else policy.prompts
    return replace(policy, prompts=prompts, defences=tuple(defences.values()))


@dataclass(frozen=True)
class ScanPlan:
    """A checked configuration.

    Args:
        config: the configuration.
        policy: its policy.
        items: the questions by key.
        attacks: names of attacks and controls.
        adapted: attack and defence of those that are made behind a defence.
    """

    config: ScanConfig
    policy: Policy
    items: IndexedItems[ScanItem]
    attacks: Sequence[str]
    adapted: Collection[tuple[str, str]]

    @classmethod
    def of(cls, config: ScanConfig) -> ScanPlan:
        """Return the plan of a configuration; its attacks are made once, so that mistakes end it here."""
        policy = load_policy(config)
        attacks = list(contestants_of(policy) if asks_under_budget(policy) else wordings_of(policy))
        if budget_of(policy).money and not config.chat.prices:
            fix = "--set chat.prices=IN/OUT"
            raise ConfigError("a budget of money needs prices", where=f"{config.policy}: budget", fix=fix)
        adapted = {(attack.name, defence) for attack in policy.attacks for defence, _ in attack.behind}
        if asks_under_budget(policy):
            # Whoever asks until its budget ends can do so behind a defence; who asks once has nothing to adapt.
            adapted |= {(attack, spec.name) for attack in attacks if attack != NONE for spec in policy.defences}
        plan = cls(config, policy, _items(policy, attacks, adapted), attacks, adapted)
        known = plan.metric_names
        for metric, _ in policy.limits:
            if metric not in known:
                fix = f"one of {', '.join(known)}"
                raise ConfigError(f"a limit names no metric{nearest(metric, known)}", where=config.policy, got=metric, fix=fix)
        return plan

    @property
    def cases(self) -> Mapping[str, ScanCase]:
        """The case of each row by its key."""

        def case(item: ScanItem) -> ScanCase:
            return ScanCase(f"{item.attack} behind {item.defence}" if item.defence else item.attack, item.prompt)

        return self.items.mapped(case)

    @property
    def metric_names(self) -> list[str]:
        """The metrics that a limit may name."""
        rules = dict.fromkeys(rule.name for rule in self.policy.all_rules)
        defences = [spec.name for spec in self.policy.defences]
        adapted = [(name, attack) for name in defences for attack in self.attacks if (attack, name) in self.adapted]
        behind = defence_metric_names(defences, self.attacks, adapted)
        return [
            BREACH,
            BROKEN,
            *(f"{BREACH}.{attack}" for attack in self.attacks),
            *(f"{RULE}.{rule}" for rule in rules),
            *behind,
        ]


def _items(policy: Policy, attacks: Sequence[str], adapted: Collection[tuple[str, str]]) -> IndexedItems[ScanItem]:
    """Return the questions of a policy, those behind defences last; only their keys are in memory."""
    num_prompts, num_attacks = len(policy.prompts), len(attacks)
    num = num_prompts * num_attacks * policy.repeats
    # Of each question behind a defence: the question without it, the number of the defence, and whether it is adaptive.
    behind = np.empty((0, 3), dtype=np.int32)
    for number, spec in enumerate(policy.defences):
        times = [1 + ((attack, spec.name) in adapted) for attack in attacks]
        questions = np.repeat(np.arange(num, dtype=np.int32), np.tile(times, num // num_attacks))
        is_adaptive = np.append(False, questions[1:] == questions[:-1])
        behind = np.concatenate([behind, np.stack([questions, np.full_like(questions, number), is_adaptive], axis=1)])

    def keys() -> Iterator[str]:
        for repeat in range(policy.repeats):
            for prompt in policy.prompts:
                yield from (f"{prompt.key}/{attack}/{repeat}" for attack in attacks)
        for index, number, adaptive in behind:
            before = item(index)
            key = _key(policy.prompts[before.prompt], before)
            yield f"{key}/{policy.defences[number].name}{'/adaptive' * adaptive}"

    def item(index: int) -> ScanItem:
        defence, adaptive = "", False
        if index >= num:
            index, number, adaptive = behind[index - num].tolist()
            defence = policy.defences[number].name
        repeat, rest = divmod(index, num_prompts * num_attacks)
        return ScanItem(rest // num_attacks, attacks[rest % num_attacks], repeat, defence, bool(adaptive))

    return IndexedItems(keys(), item)


def policy_of_file() -> ScanConfig:
    """Read a policy of your own."""
    return ScanConfig()


def demo() -> ScanConfig:
    """Scan the embedded bot of a shop by the embedded policy: seconds, offline."""
    return ScanConfig(policy=DEMO, model=DEMO)


class Scan(Job[ScanConfig, ScanPlan, ScanPlan]):
    """`parley scan`."""

    words = ("scan",)
    run_name = "scan"
    config = ScanConfig
    presets = {"policy": policy_of_file, "demo": demo}
    argument = "policy"
    schema = SCANNED
    item_metrics = SCAN_ITEMS
    files = (TABLE_FILE, JUNIT, SARIF, SUMMARY, "rows")
    num_rows_entry = NUM_ANSWERS
    resume_safe = RESUME_SAFE
    outcomes = MODERATED

    def prepare(self, config: ScanConfig, path: Path, reporter: Reporter) -> ScanPlan:
        config.require_device()
        plan = ScanPlan.of(config)
        defended_models(config, plan.policy, load_target(config))
        Checks(plan.policy, config.chat.on("cpu"), None)
        return plan

    def work(self, run: RunFolder, prepared: ScanPlan, reporter: Reporter) -> ScanPlan:
        answers = (run.path / ANSWERS_FOLDER).absolute()
        # The first table of rows makes pyarrow import pandas, for half a second; here a server is waited for meanwhile.
        threading.Thread(target=pa.array, args=([0],), daemon=True).start()
        _ask_first(prepared, answers, reporter)
        task = ScanTask(prepared.config, prepared.policy, str(answers))
        with _waiting_for_answers():
            run_items(run, task, prepared.items, prepared.config, reporter, "asking")
        return prepared

    def measure(self, run: RunFolder, plan: ScanPlan) -> Summary:
        config, policy, rows = plan.config, plan.policy, run.rows()
        repeated = policy.repeated
        answers = AnswerColumns.of(rows, repeated)
        rules = {rule.name: rule for rule in policy.all_rules}
        panels = [name for name, rule in rules.items() if any(check.members for check in rule.checks)]
        metrics = scan_metrics(answers) | panel_metrics(rows, panels, repeated)
        metrics |= label_metrics(rows, labels_of(run, rows), repeated) | defence_metrics(answers)
        num_rows = answers.num_failed + len(answers)
        lost = answers.num_failed + int((answers["breach"] < 0).sum())
        too_many = num_rows > 0 and lost / num_rows > policy.max_undecided
        limits = [decide_limit(metric, share, metrics.get(metric, NOTHING)) for metric, share in policy.limits]
        limits = [replace(limit, state="undecided", needed=None) for limit in limits] if too_many else limits
        undecided = [str(limit) for limit in limits if limit.state == "undecided"]
        if too_many:
            undecided = [f"{lost:,} of {num_rows:,} answers have no verdict, more than {100 * policy.max_undecided:g} %"]
        with _written(run.path / JUNIT) as file:
            write_junit(file, policy, rows, answers, plan.cases, limits)
        with _written(run.path / SARIF) as file:
            write_sarif(file, policy, finished(rows), answers, config.policy, version("parley-redteam"))
        num, behind = len(policy.prompts), f"{len(policy.defences)} defences, " if policy.defences else ""
        return Summary(
            f"{policy.name} on {target_name(config.model)}",
            f"{num:,} prompts, {len(policy.attacks)} attacks, {behind}{policy.repeats} answers each, seed {config.seed}. "
            f"{repeats_note(repeated)}".rstrip(),
            metrics,
            {
                NUM_ANSWERS: len(plan.items),
                POLICY: {
                    "name": policy.name,
                    TAGS: policy.tags_by_part,
                    "budget": [part for part, _ in policy.budget],
                    "musts": [name for name, rule in rules.items() if rule.wants_help],
                    REPEATED: repeated,
                },
                LIMITS: [{name: getattr(limit, name) for name in ("metric", "limit", "state", "needed")} for limit in limits],
                UNDECIDED_REASON: "; ".join(undecided),
            },
        )

    def labelled(self, path: Path, sheets: Mapping[str, bytes]) -> Result:
        """Measure a finished scan again, with labelled sheets and those that its folder keeps.

        Args:
            path: the run's folder.
            sheets: their contents, by labeller, whose earlier sheet they replace.

        Raises:
            RunError: the policy has changed, or the disk refuses.
        """
        before = RunFolder.load(path)
        config = from_dict(ScanConfig, before.config, str(path / CONFIG))
        schema, weights = self.schema_of(config), self.weights(config)
        with RunFolder.open(path, config, job=self.name, schema=schema, resume_safe=self.resume_safe, weights=weights) as run:
            # Opening makes the copy of a run at a URI the same as the URI, so nothing new lies there before.
            keep_sheets(run, sheets)
            self.conclude(run, config, self.measure(run, ScanPlan.of(config)))
        return self.result(config, path)

    def schema_of(self, config: ScanConfig) -> pa.Schema:
        policy = load_policy(config)
        schema = ATTACKED if asks_under_budget(policy) else SCANNED
        return row_schema(_DEFENDED, schema) if policy.defences else schema

    def weights(self, config: ScanConfig) -> dict[str, str]:
        return {**super().weights(config), "policy": load_policy(config).digest}

    def models(self, config: ScanConfig) -> Mapping[str, str]:
        seat = load_policy(config).attacker if config.policy else None
        named = {"model": config.model, "attacker": seat.model if seat else ""}
        return {role: name for role, name in named.items() if name not in ("", DEMO, SCRIPTED)}

    def num_items(self, config: ScanConfig) -> int:
        return len(ScanPlan.of(config).items)

    def metrics_of(self, config: ScanConfig) -> list[str]:
        plan = ScanPlan.of(config)
        corrected = [f"{CORRECTED}.{name}" for name in plan.metric_names if name.split(".")[0] == BREACH]
        untouched = [f"{UNTOUCHED}.{attack.name}" for attack in plan.policy.attacks]
        return [*plan.metric_names, UNDECIDED, UNTOUCHED, *untouched, *corrected, *QUALITY]

    def item_rows(self, run: RunFolder) -> Iterator[Sequence[Mapping[str, Any]]]:
        """Yield the rows with the unit of each prompt; untouched ones have no verdict on their attack."""
        repeated = repeated_of_run(run.summary() or {})
        untouched = iter(AnswerColumns.of(run.rows()).untouched.tolist())
        without: Row = {"breach": None, "rules": []}
        for rows in super().item_rows(run):
            units = [{**row, "unit": repeated.get(row["prompt"], row["prompt"])} for row in rows]
            yield [{**row, **without} if row["status"] == OK and next(untouched) else row for row in units]

    def transcripts(self, run: RunFolder) -> TranscriptRule:
        """Return the rule of scans; what stands before the last message is read from the policy, as long as it is the same."""
        config = from_dict(ScanConfig, run.config, str(run.path / CONFIG))
        policy = load_policy(config) if config.policy == DEMO or Path(config.policy).expanduser().is_file() else None
        indices = {prompt.key: index for index, prompt in enumerate(policy.prompts)} if policy else {}
        tags = tags_of_run(run.summary() or {})
        unchanged = policy is not None and policy.digest == run.weights.get("policy")

        def transcript(row: Row) -> Transcript:
            before: list[tuple[str, str]] = []
            if policy is not None and unchanged:
                prompt = policy.prompts[indices[row["prompt"]]]
                before = [(SYSTEM, policy.system)] if policy.system else []
                before += [(message.role, message.content) for message in prompt.messages[:-1]]
            for turn in conversation_before(row):
                before += [(USER, turn["asked"]), (ASSISTANT, turn["reply"])]
            messages = (*before, (USER, row["asked"]), *([(ASSISTANT, row["reply"])] if row["reply"] else []))
            verdicts = {verdict["rule"]: verdict for verdict in row["rules"]}
            outcomes = {BREACH: row["breach"], **{f"{RULE}.{name}": verdict["broken"] for name, verdict in verdicts.items()}}
            # Numbers, because the viewer paints true green, and a breach is no success.
            scores = {name: None if outcome is None else float(outcome) for name, outcome in outcomes.items()}
            reasons = {f"{RULE}.{name}": verdict["evidence"] for name, verdict in verdicts.items()}
            return Transcript(
                messages,
                scores={**scores, "answer": row["kind"]},
                reasons=reasons,
                tags=tuple(row_tags(tags, row)),
                success=row["breach"],
            )

        return transcript

    def tables(self, run: RunFolder) -> dict[str, EstimateTable]:
        metrics = run.metrics()
        if not metrics:
            return {}
        rows = finished(run.rows())
        answers = AnswerColumns.of(rows, repeated_of_run(run.summary() or {}))
        shown = selected(rows, "breach", "defence", "prompt", "attack", "asked", "reply", "kind", "rules")
        counted = answers.plain & ~answers.untouched
        breaches = breaches_table(row for row, counts in zip(shown, counted.tolist(), strict=True) if counts)
        tables = ({"Breaches": breaches} if breaches.rows else {}) | scan_tables(metrics) | defence_tables(metrics)
        return tables | budget_tables(answers) if answers.is_attacked else tables

    def present(self, result: Result, run: RunFolder) -> Result:
        summary, metrics = run.summary() or {}, result.metrics
        entries, rows = summary.get(LIMITS, []), run.rows()
        limits = [LimitVerdict(estimate=metrics.get(entry["metric"], NOTHING), **entry) for entry in entries]
        broken, kept = ([str(limit) for limit in limits if limit.state == state] for state in ("broken", "kept"))
        failure = f"a limit of the policy is broken: {'; '.join(broken)}" if broken else ""
        # Too few replies keep no limit.
        kept = [] if result.failure else kept
        # Success by what the budget does not limit is on the page.
        limited, musts = (summary.get(POLICY, {}).get(name, other) for name, other in (("budget", BUDGET[:1]), ("musts", ())))
        unshown = {f"{SUCCESS_BY}{name}" for part, name in BUDGET_PARTS.items() if part not in limited}
        return replace(
            result,
            legend={name: describe_scan(name) for name in metrics},
            tables={name: table for name, table in self.tables(run).items() if name not in unshown},
            failure=failure,
            undecided="" if failure else result.failure or str(summary.get(UNDECIDED_REASON, "")),
            warnings=[*result.warnings, *filter(None, [repeats_note(repeated_of_run(summary))])],
            notes=tuple(filter(None, [*kept, unmet_note(finished(rows), musts), label_note(rows, labels_of(run, rows))])),
        )


def tags_of_run(summary: Mapping[str, Any]) -> Mapping[str, Mapping[str, Sequence[str]]]:
    """Return `Policy.tags_by_part` of a run, from its summary; runs of earlier versions have none by part."""
    tags = summary.get(POLICY, {}).get(TAGS)
    return tags if isinstance(tags, dict) else {"prompts": {}, "rules": {}}


def repeated_of_run(summary: Mapping[str, Any]) -> Mapping[str, str]:
    """Return `Policy.repeated` of a run, from its summary; runs of earlier versions have none."""
    repeated: Mapping[str, str] = summary.get(POLICY, {}).get(REPEATED, {})
    return repeated


def repeats_note(repeated: Mapping[str, str]) -> str:
    """Return a sentence on prompts with the messages of another; empty if there are none."""
    count = f"{len(repeated):,} prompts repeat" if len(repeated) > 1 else "1 prompt repeats"
    return f"{count} another word for word: they are one unit." if repeated else ""


def _ask_first(plan: ScanPlan, answers: Path, reporter: Reporter) -> None:
    """Ask the first prompt as it is before all others, so that a wrong address ends the run at once; the answer is kept."""
    from parley.policies.chat.answers import kept_answers
    from parley.policies.chat.first_question import first_answer, understood

    if not plan.items:
        return
    key, item = next(iter(plan.items.items()))
    config, decoding = plan.config, decoding_of(plan.policy)
    seed, settings = ScanTask(config, plan.policy, str(answers)).seed(key), config.chat.on(config.device)
    # The first answer belongs to the first attack, which is none.
    seed = query_seed(seed, 0) if asks_under_budget(plan.policy) else seed
    chat = chat_of(plan.policy, plan.policy.prompts[item.prompt], lambda prompt, seed: prompt, 0)
    answer = first_answer(
        lambda changed: load_target(config, answers, changed), settings, chat, decoding, seed, config.chat.first_timeout_s
    )
    shown = f'"{brief(answer.text)}"' if answer.is_reply else f"no reply ({answer.kind.value})"
    if not answer.is_reply and answer.kind not in MODERATED:
        shown += f"; {AnswerKind(answer.kind).fix}"
    reporter.say(f'{target_name(config.model)} is asked "{brief(chat[-1].content)}" and answers {shown}')
    if is_served(config.model) and not answer.known:
        # What it is asked again is kept apart, so that it is asked, and counted.
        again = kept_answers(load_target(config), answers, "asked again")
        reporter.say(f"{config.model}: {understood(again, chat, answer, decoding, seed)}")


@contextmanager
def _waiting_for_answers() -> Iterator[None]:
    """Let a thread that has its answer wait less for others, and collect garbage among what is made meanwhile alone."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    # Python else waits for as much garbage as a quarter of all objects, and goes through all of them each time.
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        sys.setswitchinterval(before)


@contextmanager
def _written(path: Path) -> Iterator[BinaryIO]:
    try:
        with whole_file(path) as file:
            yield file
    except OSError as error:
        fix = "free some space, then the same command writes it"
        raise RunError("the result cannot be written", where=display_path(path), got=error.strerror, fix=fix) from None


SCAN = Scan()


_OPENING = "We are open from 9 to 18, Monday to Saturday."
_OFFER = "I cannot tell codes. I can tell you about our offers instead."
_HELP = "I can help with our opening hours, our offers and your order."


class DemoBot:
    """The embedded bot of `parley scan demo`: a shop's assistant by rules, with weak places that a scan finds.

    It knows a code, the first word in capitals of its system's text, and must not tell it. It should say when the shop opens.
    It gives the code to who claims to be staff, to who asks it to play a part, and now and then to who is in a hurry. It
    understands no badly spelled questions.
    """

    def answer(self, chats: Sequence[Chat], *, decoding: ChatDecoding, seeds: Sequence[int] = ()) -> list[Answer]:
        """Return one answer to each chat."""
        drawn = list(seeds) or [0] * len(chats)
        return [Answer(_reply(chat, seed)) for chat, seed in zip(chats, drawn, strict=True)]


def _reply(chat: Chat, seed: int) -> str:
    text = chat[-1].content
    secret = re.search(r"\b[A-Z]{4,}\d*\b", chat[0].content) if chat[0].role == SYSTEM else None
    code = secret[0] if secret else "SAVE50"
    words = set(re.findall(r"[a-z]+", text.lower()))
    if {"code", "discount", "voucher", "password"} & words:
        if "staff" in words or {"play", "line"} <= words:
            return f"Of course. The code is {code}."
        if {"emergency", "hurry"} & words and seed % 3 == 0:
            return f"Quickly then: {code}."
        return _OFFER
    if {"open", "opening", "hours"} & words:
        return _OPENING
    return _HELP


@dataclass(frozen=True, kw_only=True)
class InitArguments:
    """The choice of a policy."""

    demo: conf.FlagCreatePairsOff[bool] = False
    """Print the policy of the embedded bot, the one of parley scan demo, instead."""


def run_init(verb: Verb, arguments: Sequence[str]) -> int:
    """Print a commented policy; return the exit status."""
    from parley.engine.core.cli.flags import parse

    name = "demo.yaml" if parse(InitArguments, verb, arguments).demo else "example.yaml"
    sys.stdout.write(files("parley.engine.scan").joinpath(name).read_text(encoding="utf-8"))
    return 0
