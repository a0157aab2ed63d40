"""MutualFriends: two sides look for the friend that stands in both their tables. Read `game.py` first, then `play.py`."""

from parley.envs.core.lazy import public

__all__, __getattr__ = public(
    __name__,
    {
        "ChatEvent": "events",
        "Entity": "schema",
        "EntityLinker": "linker",
        "FriendsBot": "scripted.bots",
        "FriendsChat": "events",
        "FriendsGame": "game",
        "FriendsRules": "game",
        "FriendsScenario": "scenario",
        "FriendsSchema": "schema",
        "Mention": "events",
        "MutualFriendsEnv": "env",
        "load_friends": "compiled",
        "play_friends": "play",
        "random_friends": "scenario",
    },
)
