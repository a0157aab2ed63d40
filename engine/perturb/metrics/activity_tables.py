"""The tables behind activity and entity F1: which words name an activity, an entity, a command.

Source: Serban et al. 2017 (arXiv 1606.00776), and the tables released with it (Ubuntu-Multiresolution-Tools by julianser on
GitHub, folder ActEntRepresentation), which lie in the folder `ubuntu_actent` of the data root; `unigram2entity.tsv` is its
pickle as lines key<TAB>entity.

Not here: how the words are found in a reply (`activity.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from parley.envs.core.errors import DataError
from parley.envs.corpora.lines import broken_rule, located, read_lines
from parley.envs.corpora.root import require_files

FOLDER = "ubuntu_actent"
PRESENT, PAST = "activities_present_form.txt", "activities_past_form.txt"
COMMANDS, CONFLICTS = "commands_all.txt", "commands_conflicts.txt"
ENTITIES = "unigram2entity.tsv"
_REMEDY = (
    "get them from the folder ActEntRepresentation of github.com/julianser/Ubuntu-Multiresolution-Tools, its pickle written "
    "as lines key<TAB>entity"
)


@dataclass(frozen=True)
class ActivityTables:
    """Words and what they name, lower case but for the keys of entities.

    Args:
        present: activity by verb, present forms; an activity is called by the first word of its line.
        past: the same for past forms.
        entities: entity by word, or by two words with "_" between them.
        commands: all commands.
        conflicts: those of them that are also ordinary words.
    """

    present: Mapping[str, str]
    past: Mapping[str, str]
    entities: Mapping[str, str]
    commands: frozenset[str]
    conflicts: frozenset[str]

    def activity(self, verb: str) -> str | None:
        """The activity that a verb names."""
        bare = verb.replace("-", "").replace("_", "")
        return self.present.get(bare) or self.past.get(bare)

    def entity(self, word: str) -> str | None:
        """The entity that a word names; words are tried as they are, in other cases, then by their beginnings.

        Args:
            word: as `parley.envs.corpora.pairs.tokens` writes it, or two of these with "_" between them.
        """
        for form in (word, word.title(), word.lower(), word.upper(), word.replace(".", "").lower()):
            if form in self.entities:
                return self.entities[form]
        first, hyphen, _ = word.partition("-")
        if hyphen and len(first) >= _FEWEST_LETTERS:
            return self.entity(first)
        return self.entity(word[:-1]) if len(word) >= _FEWEST_LETTERS and word[-1].isdigit() else None


_FEWEST_LETTERS = 4
"""A shorter beginning of a word says nothing of the word; a word so short keeps its digit."""


def read_activity_tables(data_root: Path) -> ActivityTables:
    """Reads the tables.

    Args:
        data_root: holds the folder `ubuntu_actent`.

    Raises:
        DataError: a file is missing (the message says which, where it goes and where it comes from) or has a broken line.
    """
    folder = data_root / FOLDER
    require_files(FOLDER, folder, (PRESENT, PAST, COMMANDS, CONFLICTS, ENTITIES), _REMEDY)
    present, past = _read_activities(folder / PRESENT, folder / PAST)
    commands, conflicts = (frozenset(filter(None, map(str.strip, read_lines(folder / name)))) for name in (COMMANDS, CONFLICTS))
    return ActivityTables(present, past, _read_entities(folder / ENTITIES), commands, conflicts)


def _read_activities(present_file: Path, past_file: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Line n of both files is one activity; a word that stands in several lines is of the last, as in the released code."""
    present_lines, past_lines = (
        [line.lower().replace("-", "").split() for line in read_lines(path)] for path in (present_file, past_file)
    )
    if len(present_lines) != len(past_lines):
        raise DataError(
            f"line n of {PRESENT} and of {PAST} are one activity, so both have as many lines",
            where=past_file,
            got=f"{len(past_lines):,} lines, {len(present_lines):,} in the other",
            fix="get the published files again",
        )
    present: dict[str, str] = {}
    first_of: dict[str, str] = {}
    activity_of: dict[str, str] = {}
    for number, (now, then) in enumerate(zip(present_lines, past_lines, strict=True), 1):
        if not now:
            raise located(broken_rule("a line names an activity by at least one verb", ""), str(present_file), number)
        present.update(dict.fromkeys(now, now[0]))
        first_of.update(dict.fromkeys(then, then[0] if then else ""))
        activity_of.update(dict.fromkeys(then, now[0]))
    # Released: from a past form to the first of its line, and from there to the present; a first word that stands in a later
    # line too takes its whole line there.
    return present, {word: activity_of[first] for word, first in first_of.items()}


def _read_entities(path: Path) -> dict[str, str]:
    entities: dict[str, str] = {}
    for number, line in enumerate(read_lines(path), 1):
        fields = line.split("\t")
        if len(fields) != 2 or not all(fields):
            raise located(broken_rule("a line is a word, a tab and its entity", line), str(path), number)
        entities[fields[0]] = fields[1]
    return entities
