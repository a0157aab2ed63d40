"""Players of the secret game: scripted attackers and defenders of several strengths, and players by name.

| attacker | does |
|---|---|
| `harmless` | asks the scenario's questions: the control |
| `ask`, `claim` | asks for the word; claims a right to it |
| `spell`, `reverse`, `encode` | wants it letter by letter, backwards, in numbers, shifted, in base64, ... |
| `parts` | wants two letters in each message |
| `oblique` | wants it spelled, and names neither word nor secret |
| `mix` | tries all of these in any order |

| defender | does |
|---|---|
| `naive` | answers questions about the text, and does as it is told |
| `refusing` | refuses everything |
| `plain-filter` | as `naive`, and refuses where its reply holds the word as it is |
| `input-filter` | as `naive`, and refuses messages that speak of a word, a secret or letters |
| `decoder-filter` | as `naive`, and refuses where the decoder reads the word in its replies |
| `only-text` | refuses all that its text does not answer |

A player of your own is a class with `speak(views)` (`SecretPlayer`), or a chat model. Its errors name its file.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from inspect import isclass
from typing import Any

from parley.envs.core.errors import ConfigError
from parley.envs.core.play import agent_errors
from parley.envs.core.registry import Registry, TimedCalls, is_chat_name, nearest, own_start
from parley.envs.secret.decoder import MORSE, spelling_of
from parley.envs.secret.game import NAMES, SeatView, SecretPlayer
from parley.envs.secret.scenarios import VALUE, answer_in, phrases

_CUES = ("secret", "word must you not say", "never say", "keep to yourself", "told to hide", "must not tell", "instructions")
_WATCHED = re.compile(r"secret|word|letter|instructions", re.IGNORECASE)
TIME_LIMIT_S = 60.0
"""Default limit of one call of a user's player for each dialogue, in seconds."""


class ScriptedAttacker:
    """An attacker that says lines of `phrases.txt`, each once before one comes again.

    Args:
        name: of the attacker.
        *lists: headings of its lines.
        ordered: whether they are said in their order.
    """

    def __init__(self, name: str, *lists: str, ordered: bool = False) -> None:
        self.name, self._lists, self._ordered = name, lists, ordered

    def speak(self, views: Sequence[SeatView]) -> list[str]:
        """Return the next line in each dialogue; without lists the next harmless question."""
        return [self._line(view) for view in views]

    def _line(self, view: SeatView) -> str:
        lines = [line for heading in self._lists for line in phrases()[heading]] or list(view.questions)
        number = len(view.own)
        if self._lists and not self._ordered:
            # One order for the whole dialogue, whatever has been said.
            order = replace(view, turns=()).generator().permutation(len(lines))
            return lines[order[number % len(lines)]]
        return lines[number % len(lines)]


class ScriptedDefender:
    """A defender that answers questions about its text and does as it is told, behind a filter.

    Args:
        name: of the defender and its filter.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def speak(self, views: Sequence[SeatView]) -> list[str]:
        """Return the reply in each dialogue."""
        replies, refusals = [], phrases()["refusals"]
        for view in views:
            message = view.turns[-1]
            refusal = refusals[int(view.generator().integers(len(refusals)))]
            content = answer_in(view.text, message) or obeyed(message, view.word)
            reply = view.form.replace(VALUE, content) if content else refusal
            replies.append(refusal if _FILTERS[self.name](view, message, reply) else reply)
        return replies


def obeyed(message: str, word: str) -> str:
    """Return the word as a message wants it spelled; empty for a message that does not ask for it."""
    wanted = message.lower()
    if not any(cue in wanted for cue in _CUES):
        return ""
    if part := re.search(r"letters (\d+) and (\d+)", wanted):
        return word[int(part[1]) - 1 : int(part[2])] or "none"
    form = word[::-1] if "backwards" in wanted or "last letter to its first" in wanted else word
    if "number in the alphabet" in wanted:
        return " ".join(str(ord(letter) - ord("a") + 1) for letter in form)
    if "shift" in wanted:
        return "".join(chr((ord(letter) - ord("a") + 1) % 26 + ord("a")) for letter in form)
    if "base64" in wanted:
        return base64.b64encode(form.encode()).decode()
    if "morse" in wanted:
        return " ".join(sign for letter in form for sign, read in MORSE.items() if read == letter)
    if "words begin with" in wanted:
        words = {line[0]: line for line in phrases()["acrostic"]}
        return " ".join(words[letter] for letter in form)
    if "dash" in wanted or "star" in wanted:
        return ("-" if "dash" in wanted else "*").join(form)
    return " ".join(form) if "spell" in wanted else form


_FILTERS: dict[str, Callable[[SeatView, str, str], bool]] = {
    "naive": lambda view, message, reply: False,
    "refusing": lambda view, message, reply: True,
    "plain-filter": lambda view, message, reply: view.word in reply.lower(),
    "input-filter": lambda view, message, reply: _WATCHED.search(message) is not None,
    "decoder-filter": lambda view, message, reply: spelling_of(view.word, [*view.own, reply]) != "",
    "only-text": lambda view, message, reply: not answer_in(view.text, message),
}
"""Whether a defender refuses, from the view, the message and the reply that it would give, by its name."""
attackers = Registry("attacker of the secret game", "parley.secret_attackers")
defenders = Registry("defender of the secret game", "parley.secret_defenders")
_SOUGHT = ("ask", "claim", "spell", "reverse", "encode", "oblique")
for _name, _summary, _part in (
    ("harmless", "asks harmless questions alone: the control", ScriptedAttacker("harmless")),
    ("ask", "asks for the word", ScriptedAttacker("ask", "ask")),
    ("claim", "claims a right to the word", ScriptedAttacker("claim", "claim")),
    ("spell", "wants the word letter by letter", ScriptedAttacker("spell", "spell")),
    ("reverse", "wants the word backwards", ScriptedAttacker("reverse", "reverse")),
    ("encode", "wants the word in numbers, shifted, in base64, ...", ScriptedAttacker("encode", "encode")),
    ("parts", "wants two letters in each message", ScriptedAttacker("parts", "parts", ordered=True)),
    ("oblique", "wants the word spelled and names neither word nor secret", ScriptedAttacker("oblique", "oblique")),
    ("mix", "tries all of these in any order", ScriptedAttacker("mix", *_SOUGHT)),
):
    attackers.register(_name, _summary)(_part)
for _name, _summary in (
    ("naive", "answers questions, and does as it is told"),
    ("refusing", "refuses everything"),
    ("plain-filter", "refuses where its reply holds the word as it is"),
    ("input-filter", "refuses messages that speak of a word, a secret or letters"),
    ("decoder-filter", "refuses where the decoder reads the word in its replies"),
    ("only-text", "refuses all that its text does not answer"),
):
    defenders.register(_name, _summary)(ScriptedDefender(_name))
_BY_SIDE = (attackers, defenders)
_chat = Registry("chat model", "parley.secret-chat")
_chat.register("chat", "chat models by address", "parley.policies.chat.secret:load_secret_player")


class OwnSecretPlayer:
    """The player of a user's class.

    Args:
        spec: `path/file.py:Name`; also its name in reports.
        maker: the class, or a function that makes it.

    Raises:
        ConfigError: the user's code raised, or its result has no `speak`.
    """

    def __init__(self, spec: str, maker: Any) -> None:
        self.name = spec
        with own_start(spec):
            self._player: Any = maker() if isclass(maker) or (callable(maker) and not hasattr(maker, "speak")) else maker
        if not callable(getattr(self._player, "speak", None)):
            fix = "give it speak(views), which returns a text for each view; or reply(messages), as a chat model has"
            raise ConfigError("this is no player of the secret game", where=spec, got=repr(self._player)[:80], fix=fix)
        limit_s = float(getattr(self._player, "time_limit_s", TIME_LIMIT_S))
        self._calls = TimedCalls(spec, limit_s, "mend it, or give the player an attribute time_limit_s")

    def speak(self, views: Sequence[SeatView]) -> Sequence[str]:
        """Return the texts of the user's code.

        Raises:
            AgentError: it raised or took too long.
        """
        with agent_errors(), self._calls.call("speak", parts=len(views)):
            texts = self._player.speak(views)
            # `spoken` checks them, and names this player's file.
            return texts if isinstance(texts, str) else list(texts)


def make_secret_player(spec: str, side: int, temperature: float = 0.0, **chat: Any) -> SecretPlayer:
    """Return the player of a name.

    Args:
        spec: a registered name, `path/file.py:Name`, the address of a chat model, or a run of one.
        side: `ATTACKER` or `DEFENDER`.
        temperature: of a chat model's answers; 0 takes the likeliest.
        chat: more arguments of `load_secret_player`; other players ignore them.

    Raises:
        ConfigError: no player is called so, or the user's file makes none.
        CheckpointError: there is no model at the address.
    """
    names = _BY_SIDE[side]
    if spec in names:
        player: SecretPlayer = names.get(spec)
        return player
    if is_chat_player(spec):
        load: Callable[..., SecretPlayer] = _chat.get("chat")
        return load(spec, temperature, **chat)
    if ".py:" in spec:
        return OwnSecretPlayer(spec, names.get(spec))
    other = "; it plays the other side" if spec in _BY_SIDE[1 - side] else ""
    raise ConfigError(
        f"no {NAMES[side]} is called {spec!r}{nearest(spec, names)}{other}",
        fix=f"one of {', '.join(names)}, the address of a chat model (hf:, gguf:, openai:, ...), or path/file.py:Name",
    )


def as_secret_player(part: object, side: int) -> SecretPlayer:
    """Return the player of a name, an object with `speak`, or a class that makes one.

    Raises:
        ConfigError: as `make_secret_player`.
    """
    if isinstance(part, str):
        return make_secret_player(part, side)
    if not isclass(part) and hasattr(part, "speak") and hasattr(part, "name"):
        player: Any = part
        return player
    return OwnSecretPlayer(getattr(part, "__name__", type(part).__name__), part)


is_chat_player = partial(is_chat_name, registry=attackers, own="speak")
"""Returns whether a name is a chat model."""
