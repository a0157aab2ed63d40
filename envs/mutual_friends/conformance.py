"""Conformance tests of players of MutualFriends and corpora of chats (`game.FriendsAgent`, `compiled.ChatSource`)."""

from __future__ import annotations

from typing import Any

from parley.envs.core.conformance import Kind, expect, same_alone
from parley.envs.core.errors import ScenarioError
from parley.envs.core.registry import made_by
from parley.envs.corpora.arrow import data_root
from parley.envs.corpora.lines import keeps_its_fingerprint
from parley.envs.mutual_friends.compiled import EMBEDDED_FRIENDS, load_friends
from parley.envs.mutual_friends.game import FriendsAgent, FriendsChat, FriendsGame, FriendsRules, play_friends
from parley.envs.mutual_friends.linker import EntityLinker
from parley.envs.mutual_friends.scripted.bots import FRIENDS_SCHEMA, FriendsBot, draw_scenarios, friends_forms

_CHATS = 12
_RULES = FriendsRules(max_events=16)


def _played(agent: FriendsAgent, side: int, num_rows: int = _CHATS) -> list[FriendsChat]:
    partner = FriendsBot(EntityLinker(FRIENDS_SCHEMA, friends_forms()))
    chats = draw_scenarios(FRIENDS_SCHEMA, range(_CHATS))
    return play_friends(chats, (agent, partner) if side == 0 else (partner, agent), num_rows=num_rows, rules=_RULES)


def _has_a_name(agent: FriendsAgent) -> None:
    """Have a name."""
    name = getattr(agent, "name", None)
    expect(isinstance(name, str) and bool(name), "name is a text", repr(name))


def _plays_both_sides(agent: FriendsAgent) -> None:
    """Say words or select friends of its own table on both sides, until chats end."""
    for side in (0, 1):
        try:
            chats = _played(agent, side)
        except ScenarioError as error:
            raise AssertionError(f"side {side}: {error}") from error
        odd = [token for chat in chats for event in chat.events for token in event.words if token != token.lower()]
        expect(not odd, "words in lower case", repr(odd[:3]))


def _repeats_itself(agent: FriendsAgent) -> None:
    """Repeat a chat from the same seed (all draws come from the view)."""
    first, second = (_played(agent, 0) for _ in range(2))
    expect(first == second, "the same words and selections twice", "others the second time")


def _is_the_same_alone(agent: FriendsAgent) -> None:
    """Do the same in a chat whether others are played beside it or not."""
    together, alone = (_played(agent, 1, num_rows) for num_rows in (_CHATS, 1))
    same_alone([chat.events for chat in together], [chat.events for chat in alone], "what is done in a chat")


def _hears_silence(agent: FriendsAgent) -> None:
    """Go on when no words are heard."""
    game = FriendsGame(1, _RULES)
    ((scenario, seed),) = draw_scenarios(FRIENDS_SCHEMA, range(1))
    game.enter([0], [scenario], [seed])
    session = agent.join(game.view(0))
    session.enter([0])
    event = game.event(0, 1, ("hello",))
    game.add(0, event)
    session.hear([0], [type(event)(1)])
    expect(len(session.act([0])) == 1, "an act", "none")


def make_friend(named: Any) -> FriendsAgent:
    """Make a player from a class, a function or an object; a required argument gets the built-in corpus."""
    agent: FriendsAgent = made_by(named, load_friends(EMBEDDED_FRIENDS)) if callable(named) else named
    return agent


def _looks_for_no_friends(part: Any) -> bool:
    """Return whether its sessions lack the methods of this game; negotiators have `join` as well."""
    try:
        session = make_friend(part).join(FriendsGame(1, _RULES).view(0))
    except Exception:
        return True
    return not any(hasattr(session, method) for method in ("enter", "act"))


FRIEND = Kind(
    "player of MutualFriends",
    "parley.envs.mutual_friends.game.FriendsAgent",
    ("join",),
    make_friend,
    (_has_a_name, _plays_both_sides, _repeats_itself, _is_the_same_alone, _hears_silence),
    _looks_for_no_friends,
    ("agent",),
)


def _has_chats_to_learn_from(source: Any) -> None:
    """Read its files without a broken chat, and find chats to train on and to validate on."""
    source.require_files(data_root())
    text = source.read_text(data_root())
    expect(not text.broken, "no broken chat", text.broken[:1])
    splits = {split: len(chats) for split, chats in text.splits.items()}
    expect(bool(splits.get("train") and splits.get("val")), "chats in train and val", splits)


CHAT_CORPUS = Kind(
    "corpus of chats",
    "parley.envs.mutual_friends.compiled.ChatSource",
    ("read_text", "fingerprint", "require_files"),
    lambda named: named,
    (_has_chats_to_learn_from, keeps_its_fingerprint),
)
