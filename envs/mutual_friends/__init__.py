"""MutualFriends: two sides look for the one friend in both of their tables. Read `scenario.py` and `game.py` first."""

from parley.envs.core.errors import public

__all__, __getattr__ = public(
    __name__,
    {
        "ChatEvent": "game",
        "Entity": "scenario",
        "EntityLinker": "linker",
        "FriendsBot": "scripted.bots",
        "FriendsChat": "game",
        "FriendsGame": "game",
        "FriendsRules": "game",
        "FriendsScenario": "scenario",
        "FriendsSchema": "scenario",
        "Mention": "game",
        "MutualFriendsEnv": "env",
        "load_friends": "compiled",
        "play_friends": "game",
        "random_friends": "scenario",
    },
)
