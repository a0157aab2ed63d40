"""Words of a line that belong to a command, a flag, a path or a smiley, and say nothing when they move or go.

The tokeniser cuts signs from words ("dpkg -l" is "dpkg - l"), so a word beside a sign is a part of something that is typed as
it stands: a flag and its command ("dpkg - l"), an assignment ("lang = c"), a channel ("# ubuntu"), a smiley (": d", "o _ o").
A known command holds the words behind it too ("sudo apt-get install vim").
"""

from __future__ import annotations

from itertools import repeat

import numpy as np

from parley.engine.perturb.lexicon.opposites import word_lists, word_set
from parley.engine.perturb.strategies.texts import FlatContexts

SIGNS = frozenset("-_/\\|=<>+*&@#~$%^`")
"""Marks that are a part of what is typed, and none of a sentence."""
_LISTS = word_lists("commands")
COMMANDS = word_set(_LISTS["commands"])
"""Programs whose names are no words of a sentence."""
NAMES = COMMANDS | word_set(_LISTS["others"])
"""Names of programs, folders and files, those that are words as well: as words they have synonyms and slips, as names none."""
EXTENSIONS = word_set(_LISTS["extensions"])
"""Ends of the names of files and hosts."""
_SIGN, _COMMAND, _COLON, _LETTER = 1, 2, 3, 4
_KINDS = {
    **dict.fromkeys("abcdefghijklmnopqrstuvwxyz0123456789", _LETTER),
    **dict.fromkeys(COMMANDS, _COMMAND),
    **dict.fromkeys(SIGNS, _SIGN),
    **dict.fromkeys((":", ";"), _COLON),
}
_NUM_BEHIND = 2
"""Words that a command holds behind it."""


def _in_file_names(flat: FlatContexts) -> np.ndarray:
    """Mark the words of a file's name, which the tokeniser cuts at its full stop (N,) bool."""
    if "." not in flat.words:
        return np.zeros(len(flat.words), dtype=bool)
    is_dot, is_end = flat.are_in({"."}), flat.are_in(EXTENSIONS)
    is_in_name = np.zeros(len(is_dot), dtype=bool)
    begins = np.zeros(len(is_dot) + 1, dtype=bool)
    begins[flat.edges] = True
    is_within = is_dot[1:-1] & is_end[2:] & ~begins[1:-2] & ~begins[2:-1] if len(is_in_name) > 2 else is_dot[:0]
    ends = np.flatnonzero(is_within)
    is_in_name[ends] = is_in_name[ends + 1] = is_in_name[ends + 2] = True
    return is_in_name


def in_commands(flat: FlatContexts) -> np.ndarray:
    """Mark the words of a command, flag, path, file name or smiley, signs included (N,) bool."""
    kinds = np.frombuffer(bytes(map(_KINDS.get, flat.words, repeat(0))), dtype=np.uint8)
    begins = np.zeros(len(kinds) + 1, dtype=bool)
    begins[flat.edges] = True
    joined = ~begins[1:-1]
    is_sign, is_command = kinds == _SIGN, kinds == _COMMAND
    held = is_sign | is_command
    held[1:] |= is_sign[:-1] & joined
    held[:-1] |= is_sign[1:] & joined
    held[1:] |= (kinds[:-1] == _COLON) & (kinds[1:] == _LETTER) & joined
    reached = is_command
    for _ in range(_NUM_BEHIND):
        reached = np.concatenate([[False], reached[:-1] & joined]) if len(kinds) else reached
        held |= reached
    return held | _in_file_names(flat)
