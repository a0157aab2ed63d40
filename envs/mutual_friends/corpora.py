"""The corpora of MutualFriends that Parley knows."""

from __future__ import annotations

from parley.envs.core.registry import Registry
from parley.envs.mutual_friends.sources import LEXICON_FILE, PUBLISHED, SCHEMA_FILE, FileChats, ScriptedChats

friend_corpora = Registry("corpus of chats", "parley.friends")
EMBEDDED_FRIENDS = "friends"
"""The corpus that needs no files."""
_RELEASE = "github.com/stanfordnlp/cocoa, folder mutualfriends/data"
_SAMPLES = {split: f"human_sample_{file}" for split, file in PUBLISHED.items()}

friend_corpora.register(EMBEDDED_FRIENDS, "scripted searches for a common friend, generated")(
    ScriptedChats(
        name=EMBEDDED_FRIENDS,
        summary="chats in which two scripted players look for their common friend, generated on this machine",
        licence="Apache-2.0, as Parley itself",
        sizes=(1_000, 100, 100),
    )
)

friend_corpora.register("mutualfriends_scripted", "scripted searches with the schema and lexicon of He et al. 2017")(
    ScriptedChats(
        name="mutualfriends_scripted",
        summary="as many scripted chats as MutualFriends has, of its schema and lexicon (He et al. 2017)",
        licence="MIT (schema and lexicon)",
        sizes=(8_967, 1_083, 1_107),
        obtain=_RELEASE,
        wanted=((SCHEMA_FILE,), (LEXICON_FILE,)),
        shares="mutualfriends",
    )
)

friend_corpora.register("mutualfriends_sample", "15 human searches for a common friend, He et al. 2017")(
    FileChats(
        name="mutualfriends_sample",
        summary="15 chats of people who look for their common friend (MutualFriends, He et al. 2017)",
        licence="not stated for the chats; MIT (schema and lexicon)",
        obtain=_RELEASE,
        wanted=((SCHEMA_FILE,), (LEXICON_FILE,), *((name,) for name in _SAMPLES.values())),
        splits=_SAMPLES,
        shares="mutualfriends",
    )
)

friend_corpora.register("mutualfriends", "11,157 human searches for a common friend, He et al. 2017")(
    FileChats(
        name="mutualfriends",
        summary="11,157 chats of people who look for their common friend (MutualFriends, He et al. 2017)",
        licence="not stated for the chats; MIT (schema and lexicon)",
        obtain=f"{_RELEASE}, and the chats from whoever has the published bundle",
        wanted=((SCHEMA_FILE,), (LEXICON_FILE,), *((name,) for name in PUBLISHED.values())),
    )
)
