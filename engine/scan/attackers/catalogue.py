"""Attackers by name, with those that are no more than a rule, and the controls that every scan under a budget asks beside them.

A policy names an attacker as it is, with settings of its own, or as a class in a file:

    pair
    tap[width=2,branching=3]
    path/file.py:Name

The scripted attacker is a chat model by rule, for tests, the demonstration, and as the plainest one to compare with. It reads
the line `Goal: ...` of the first message and answers with one of `WAYS`, a template of the scan's own, around the goal. Which
one follows from the seed and from how often it has written before, so one stream goes through them in turn. It answers yes to
every question that is no request for a message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, fields, is_dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar

from parley.engine.scan.attackers.attacker import Attacker, AttackGoal, Moves, Query, ask
from parley.engine.scan.attackers.pair import Pair
from parley.engine.scan.attacks import (
    BLIND,
    CONTROLS,
    NONE,
    RANDOM_WORDS,
    REPEAT,
    SCORES_ONLY,
    WORDS,
    filled,
    rewordings,
    templates,
)
from parley.engine.triggers.budget import UNBOUNDED
from parley.engine.triggers.methods.evolution import Evolution, EvolutionSettings, RatedReply
from parley.envs.core.errors import ConfigError
from parley.envs.core.registry import Registry
from parley.envs.core.seeds import derive_seed
from parley.policies.chat.model import Answer, Chat, ChatDecoding

if TYPE_CHECKING:
    from parley.engine.scan.policy import AttackSpec, Policy

attackers = Registry("attacker", "parley.attackers")
for _name, _summary, _class in (
    ("pair", "streams of messages, refined by replies and scores (Chao et al. 2023)", "pair:Pair"),
    ("tap", "a tree of messages, pruned by topic and score (Mehrotra et al. 2023)", "tap:Tap"),
    ("crescendo", "one conversation, step by step; refusals are withdrawn (Russinovich et al. 2024)", "crescendo:Crescendo"),
    ("goat", "one conversation, with seven ways to choose from (Pavlova et al. 2024)", "goat:Goat"),
    ("many-shot", "made-up dialogues before the prompt (Anil et al. 2024)", "many_shot:ManyShot"),
    ("best-of-n", "scrambled words, random capitals, shifted characters (Hughes et al. 2024)", "best_of_n:BestOfN"),
    ("evolution", "words behind the prompt that evolve by scores (Lapid et al. 2023)", "catalogue:EvolvedWords"),
):
    attackers.register(_name, _summary, f"parley.engine.scan.attackers.{_class}")
_NAMED = re.compile(r"([a-z-]+|.+\.py:\w+)(?:\[(.*)\])?")
_REPLAYED = ("conversations", "universal")
"""Kinds of attacks that type what scans found."""
SCRIPTED = "scripted"
"""The address of the scripted attacker in a policy."""
WAYS = ("hypothetical", "urgent", "role-play", "begin-with", "claim-staff", "ignore-rules")
_GOAL = re.compile(r"^Goal: (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class EvolvedWords(Attacker):
    """Words behind the prompt, a search by scores: the fitter of two parents, words of either, some exchanged.

    Departures: the paper evolves tokens for many prompts at once, by how near a reply's embedding is to a wanted text. Ours are
    words of a list for one prompt, by the reply's score.
    """

    num_words: int = 8
    """Words behind the prompt."""
    population: int = 8
    """Messages of a generation, and the fittest that are kept."""

    source: ClassVar[str] = "Lapid et al. 2023, arXiv 2309.01446"
    needs_model: ClassVar[bool] = False
    stopping: ClassVar[str] = "all inputs were tried"

    def attack(self, goal: AttackGoal) -> Moves:
        sizes = EvolutionSettings(num_words=self.num_words, population=self.population, max_queries=goal.queries or UNBOUNDED)
        search = Evolution(sizes, WORDS, derive_seed(goal.seed, "evolution"))
        while inputs := search.ask():
            turns = yield [Query(f"{goal.prompt} {' '.join(words)}") for words in inputs]
            search.tell([RatedReply(turn.score, turn.reply) for turn in turns], success=False)


@dataclass(frozen=True)
class FoundConversation:
    """A conversation that broke a policy in a scan.

    Args:
        prompt: text of the prompt that it was found for.
        messages: the attacker's messages, oldest first.
        goal: of that prompt; empty where it is the prompt.
    """

    prompt: str
    messages: tuple[str, ...]
    goal: str = ""

    def adapted(self, goal: AttackGoal) -> tuple[str, ...]:
        """Return the messages with another prompt in the place of this one, or with its goal; nothing if they have neither."""
        pairs = ((self.prompt, goal.prompt), (self.goal or self.prompt, goal.text))
        old, new = next((pair for pair in pairs if any(pair[0] in message for message in self.messages)), ("", ""))
        return tuple(message.replace(old, new) for message in self.messages) if old else ()


@dataclass(frozen=True)
class Replayed(Attacker):
    """Conversations that broke another model, typed again: of the same prompt, or of all others with this prompt in them."""

    conversations: tuple[FoundConversation, ...] = ()
    """Conversations of other scans."""
    universal: bool = False
    """True types those of other prompts, with this prompt where theirs stood."""

    needs_model: ClassVar[bool] = False

    def attack(self, goal: AttackGoal) -> Moves:
        others = [other for other in self.conversations if (other.prompt != goal.prompt) == self.universal]
        for messages in dict.fromkeys(other.adapted(goal) if self.universal else other.messages for other in others):
            last = None
            for message in messages:
                last = yield from ask(message, last)


@dataclass(frozen=True)
class Once(Attacker):
    """The prompt as it is, asked once: no attack."""

    needs_model: ClassVar[bool] = False

    def attack(self, goal: AttackGoal) -> Moves:
        yield from ask(goal.prompt)


@dataclass(frozen=True)
class Reworded(Attacker):
    """One wording of the prompt after another, each drawn by a seed of its own; the prompt itself repeats it."""

    reword: Callable[[str, int], str] = lambda prompt, seed: prompt

    needs_model: ClassVar[bool] = False

    def attack(self, goal: AttackGoal) -> Moves:
        for number in count():
            yield from ask(self.reword(goal.prompt, derive_seed(goal.seed, "wording", number)))


class ScriptedWriter:
    """A chat model that writes attacks by rule."""

    def answer(self, chats: Sequence[Chat], *, decoding: ChatDecoding, seeds: Sequence[int] = ()) -> list[Answer]:
        """Return one answer to each chat."""
        drawn = list(seeds) or [0] * len(chats)
        return [Answer(_scripted_message(chat, seed)) for chat, seed in zip(chats, drawn, strict=True)]


def _scripted_message(chat: Chat, seed: int) -> str:
    goal = _GOAL.search(chat[0].content)
    if chat[0].role != "system" or goal is None:
        return "yes"
    way = WAYS[(seed + sum(message.role == "assistant" for message in chat)) % len(WAYS)]
    return f"THOUGHT: {way}\nMESSAGE: {filled(templates()[way], goal[1])}"


def is_attacker(text: str) -> bool:
    """Return whether a policy's name of an attack is that of an attacker, with or without settings."""
    match = _NAMED.fullmatch(text)
    return match is not None and (match[1] in attackers or ".py:" in match[1])


def make_attacker(text: str) -> Attacker:
    """Return the attacker of a name.

    Raises:
        ConfigError: it has no such setting, or the value does not fit.
    """
    match = _NAMED.fullmatch(text)
    assert match is not None, "is_attacker has seen the name"
    attacker = attackers.get(match[1])()
    if not isinstance(attacker, Attacker):
        fix = "name a class that derives from parley.engine.scan.attackers.attacker:Attacker"
        raise ConfigError("this is no attacker", where="attacks", got=text, fix=fix)
    parts: Sequence[Field[Any]] = fields(attacker) if is_dataclass(attacker) else ()
    kinds = {part.name: type(getattr(attacker, part.name)) for part in parts}
    changes = {}
    for pair in filter(None, (match[2] or "").split(",")):
        name, _, value = (part.strip() for part in pair.partition("="))
        try:
            changes[name] = kinds[name](value)
        except (KeyError, ValueError):
            known = ", ".join(f"{part}={getattr(attacker, part)}" for part in kinds)
            fix = f"one of {known}" if known else "leave out the brackets"
            raise ConfigError("an attacker has no such setting or value", where="attacks", got=text, fix=fix) from None
        if kinds[name] in (int, float) and changes[name] <= 0:
            raise ConfigError("a setting of an attacker is not above 0", where="attacks", got=text, fix=f"{name}=1")
    return replace(attacker, **changes) if changes else attacker  # type: ignore[type-var]


def asks_under_budget(policy: Policy) -> bool:
    """Return whether each attack of a policy asks until a budget ends: one is named, or an attack that needs one."""
    return bool(policy.budget) or any(
        spec.kind in _REPLAYED or (spec.kind == "named" and is_attacker(spec.value)) for spec in policy.attacks
    )


def contestants(
    specs: Sequence[AttackSpec],
    triggers: Callable[[str], Sequence[str]],
    conversations: Callable[[str], Sequence[FoundConversation]],
    *,
    draws: bool,
) -> Mapping[str, Attacker]:
    """Return all attackers of a scan under a budget by name: the controls, then those of the policy.

    Args:
        specs: attacks of the policy; one that is no attacker asks its wordings until the budget ends.
        triggers: returns what the searches of some runs found.
        conversations: returns what the scans of some runs found.
        draws: whether answers are drawn; without draws the prompt is not repeated.

    Raises:
        ConfigError: there is no attack of a name.
    """
    named: dict[str, Attacker] = {
        spec.name: make_attacker(spec.value) for spec in specs if spec.kind == "named" and is_attacker(spec.value)
    }
    for spec in specs:
        if spec.kind in _REPLAYED:
            named[spec.name] = Replayed(tuple(conversations(spec.value)), spec.kind == "universal")
    if taken := CONTROLS.keys() & named.keys():
        fix = "give it another name:"
        raise ConfigError("an attack bears the name of a control", where="attacks", got=min(taken), fix=fix)
    wordings = rewordings([spec for spec in specs if spec.name not in named], triggers, attackers)
    made = {NONE: Once(), **({REPEAT: Reworded()} if draws else {}), RANDOM_WORDS: Reworded(wordings[RANDOM_WORDS])}
    if any(attacker.needs_model for attacker in named.values()):
        made |= {BLIND: Pair(sees="nothing"), SCORES_ONLY: Pair(sees="scores")}
    return made | {spec.name: named.get(spec.name) or Reworded(wordings[spec.name]) for spec in specs}
