"""MutualFriends and its lies for RLlib. Read `friends_env.py` first."""
