"""Scripted chats whose players guess more or less often: `--corpus examples/corpora/guessing_friends.py:OFTEN`."""

from dataclasses import replace

from parley.envs.mutual_friends.compiled import ScriptedChats, friend_corpora

_PUBLISHED = friend_corpora.get("mutualfriends_scripted")
assert isinstance(_PUBLISHED, ScriptedChats)
SOME = replace(
    _PUBLISHED, name="friends_guess_10", summary="players guess in 10 % of the acts in which they are not sure", guesses=0.1
)
OFTEN = replace(
    _PUBLISHED, name="friends_guess_60", summary="players guess in 60 % of the acts in which they are not sure", guesses=0.6
)
