"""Activities and entities: what is read off a reply, quirk by quirk, and what replies score."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from parley.engine.perturb.metrics.activity import (
    CEILING,
    COMMANDS,
    CONFLICTS,
    CONSTANTS,
    ENTITIES,
    FOLDER,
    PAST,
    PRESENT,
    ActEnt,
    ActivityExtractor,
    ActivityTables,
    f1,
    read_activity_tables,
    reference_metrics,
)
from parley.envs.core.errors import DataError
from parley.envs.corpora.lines import broken_rule
from parley.envs.corpora.pairs.turns import parse_turns

DATA = os.environ.get("PARLEY_DATA")
TRUTHS = "actent_test_responses.txt"
"""What the released code read off the replies of its own test split."""
VERBS = {"install": "VB", "installed": "VBD", "try": "VB", "log": "VB", "walk": "VB", "use": "NN", "ran": "VBD", "sudo": "VB"}
FILES = {
    PRESENT: "\tinstall\tinstalls\n\tuse\tre-use\n\ttry\n\tlogin\texecute\n",
    PAST: "\tinstalled\n\n\ttried\n\tran\tran-off\n",
    COMMANDS: "sudo\nls\ncat\n",
    CONFLICTS: "cat\n",
    ENTITIES: "\n".join(
        (
            "ubuntu\tubuntu",
            "Gimp\tgimp",
            "KDE\tkde",
            "flash_player\tflash",
            "player\tvlc",
            "xp\twindows",
            "grep\tgrep",
            "1004\tlucid",
        )
    ),
}


def tag(words: Sequence[str]) -> list[str]:
    """A tagger that knows a few words."""
    return [VERBS.get(word, "NN") for word in words]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data root with small tables."""
    (tmp_path / FOLDER).mkdir()
    for name, text in FILES.items():
        (tmp_path / FOLDER / name).write_text(text)
    return tmp_path


@pytest.fixture
def tables(root: Path) -> ActivityTables:
    return read_activity_tables(root)


def read(tables: ActivityTables, text: str) -> ActEnt:
    """What is read off one turn."""
    (turn,) = parse_turns(text)
    return ActivityExtractor(tables, tag).extract(turn)


@pytest.mark.parametrize(
    ("text", "activities", "entities"),
    [
        ("i installed ubuntu", {"install"}, {"ubuntu"}),
        ("ran it , then install it", {"login", "install"}, set()),
        ("log in first", {"login"}, set()),
        ("use it", {"use"}, set()),
        ("to use it", set(), set()),
        ("use and walk", set(), set()),
        ("the gimp and kde", set(), {"gimp", "kde"}),
        ("the flash player", set(), {"flash", "vlc"}),
        ("ubuntu-desktop on xp2 and xp-kde", set(), {"ubuntu"}),
        ("my ubuntu12", set(), {"ubuntu"}),
        ("on 10.04", set(), {"lucid"}),
        ("see https://a.example/b or /etc/x", set(), {"<url>", "<path>"}),
    ],
    ids=[
        "verb and thing",
        "past forms, by the first of their line",
        "a verb and the next word",
        "a noun that begins an utterance without verbs",
        "not another noun",
        "no noun beside a verb",
        "other cases",
        "a pair, and its second word once more",
        "the part before a hyphen, where it is long enough, and so for digits",
        "digits at the end",
        "without stops",
        "addresses and paths",
    ],
)
def test_activities_and_entities_of_an_utterance(
    text: str, activities: set[str], entities: set[str], tables: ActivityTables
) -> None:
    found = read(tables, text)
    assert (set(found.activities), set(found.entities)) == (activities, entities)
    assert found.complete == bool(activities)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("try ubuntu kde now", "try something now"),
        ("sudo ls", "something"),
        ("so now sudo cat", "so now something"),
        ("so now cat it", "so now cat it"),
        ("so now sudo apt-get x", "so now something x"),
        ("so then ls foo sudo", "so then something"),
        ("so now sudo x", "so now something x"),
        ("say ' ls it too ' now", "say something now"),
        ("' ls it too ' now", "something it too ' now"),
        ("say ' ls a b c d ' now", "say ' something a b c d ' now"),
        ("a <unk> b", "a something b"),
        ("look https://a.example/b there", "something"),
    ],
    ids=[
        "entities in a row are one",
        "commands in a row are one, and the first word beside one",
        "an ordinary word that is a command, beside one",
        "an ordinary word that is a command, alone",
        "a hyphen beside a command",
        "between commands",
        "but no other word beside one",
        "a short quotation with a command",
        "but not one that opens the turn",
        "nor a long one",
        "unknown words",
        "the words beside an address",
    ],
)
def test_what_the_tagger_sees(text: str, shown: str, tables: ActivityTables) -> None:
    seen: list[str] = []

    def spy(words: Sequence[str]) -> list[str]:
        seen.append(" ".join(words))
        return tag(words)

    ActivityExtractor(tables, spy).extract(parse_turns(text)[0])
    assert seen == [shown]


def test_utterances_are_tagged_alone_and_counted_together(tables: ActivityTables) -> None:
    both = read(tables, "i installed ubuntu <eou> try ubuntu")
    assert both == ActEnt(frozenset({"install", "try"}), frozenset({"ubuntu"}), complete=True)
    assert read(tables, "i installed ubuntu <eou> thanks").complete is False
    assert read(tables, "i installed it <eou> <eou> try it").complete is False
    assert ActivityExtractor(tables, tag).extract(()) == ActEnt(frozenset(), frozenset(), complete=False)


def test_pairs_do_not_cross_utterances(tables: ActivityTables) -> None:
    assert read(tables, "flash <eou> x").entities == frozenset()
    assert read(tables, "flash player").entities == {"flash", "vlc"}
    assert read(tables, "log <eou> in").activities == frozenset()


def act_ent(activities: str = "", entities: str = "", complete: bool = True) -> ActEnt:
    return ActEnt(frozenset(activities.split()), frozenset(entities.split()), complete)


def test_f1_is_of_what_both_name() -> None:
    assert f1(act_ent("use try", "ubuntu"), act_ent("use", "ubuntu kde grub")) == (2 / 3, 1 / 2)
    assert f1(act_ent("look"), act_ent("use", "ubuntu")) == (0.0, 0.0)
    assert f1(act_ent(), act_ent("use")) == (0.0, 0.0), "no entity in the truth scores 0, as released"
    assert f1(act_ent("use", complete=False), act_ent("use", "kde")) == (1.0, 0.0)
    assert f1(act_ent("use", "kde"), act_ent("use", "kde", complete=False)) == (None, None)


def test_references_are_scored_on_the_truths_that_count() -> None:
    truths = [act_ent("use", "ubuntu"), act_ent("look"), act_ent("use", complete=False)]
    metrics = reference_metrics(truths, range(3))
    assert {name: (each.value, each.n) for name, each in metrics.items()} == {
        "activity_f1.constant-use": (0.5, 2),
        "entity_f1.constant-use": (0.5, 2),
        "activity_f1.constant-use-look-install": (0.5, 2),
        "entity_f1.constant-use-look-install": (0.5, 2),
        "activity_f1.truth": (1.0, 2),
        "entity_f1.truth": (0.5, 2),
    }
    assert reference_metrics(truths * 3, [*range(3)] * 3) == metrics, "examples of one context are one unit"
    assert reference_metrics([], [])["activity_f1.truth"].n == 0


def parse_act_ent(line: str) -> ActEnt:
    """Reads a line of the released ground truth (`TRUTHS`).

    Raises:
        DataError: a word of it is of no kind.
    """
    words = [word for word in line.split() if not word.endswith(("_tenses", "cmd")) and word != "__eou__"]
    kinds = {
        kind: frozenset(word.removesuffix(kind) for word in words if word.endswith(kind)) for kind in ("_activity", "_entity")
    }
    if any(not word.endswith(tuple(kinds)) for word in words):
        raise broken_rule("a line holds tenses, activities, entities, cmd or no_cmd, and __eou__", line)
    activities = kinds["_activity"] - {"none"}
    return ActEnt(activities, kinds["_entity"], "none_activity" not in words)


def test_lines_of_the_ground_truth_are_read() -> None:
    line = "past_tenses use_activity x_entity cmd __eou__ no_tenses none_activity <url>_entity no_cmd __eou__"
    assert parse_act_ent(line) == act_ent("use", "x <url>", complete=False)
    with pytest.raises(DataError, match="a line holds tenses"):
        parse_act_ent("past_tenses something no_cmd")


def test_a_past_form_goes_where_the_first_of_its_line_stands_last(root: Path) -> None:
    (root / FOLDER / PAST).write_text("\tput\tplaced\n\n\tput\ttried\n\n")
    assert read_activity_tables(root).past == {"put": "try", "placed": "try", "tried": "try"}


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named_with_its_place(name: str, root: Path) -> None:
    (root / FOLDER / name).unlink()
    with pytest.raises(DataError, match=name) as caught:
        read_activity_tables(root)
    assert str(root / FOLDER) in str(caught.value)
    assert "Ubuntu-Multiresolution-Tools" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (ENTITIES, "ubuntu\tubuntu\nkde\n", "unigram2entity.tsv:2"),
        (PAST, "installed\n", "1 lines, 4 in the other"),
        (PRESENT, "install\n\ntry\nlogin\n", "activities_present_form.txt:2"),
    ],
)
def test_a_broken_table_is_named_with_its_line(name: str, text: str, message: str, root: Path) -> None:
    (root / FOLDER / name).write_text(text)
    with pytest.raises(DataError, match=message):
        read_activity_tables(root)


@pytest.mark.data
@pytest.mark.skipif(not DATA, reason="PARLEY_DATA names no folder with the published tables")
def test_the_published_truths_score_as_released() -> None:
    folder = Path(str(DATA)) / FOLDER
    if not (folder / TRUTHS).is_file():
        pytest.skip(f"PARLEY_DATA lacks {FOLDER}/{TRUTHS}")
    tables = read_activity_tables(Path(str(DATA)))
    assert (len(tables.entities), len(tables.commands)) == (6022, 230)
    truths = [parse_act_ent(line) for line in (folder / TRUTHS).read_text().splitlines()]
    counted = [truth for truth in truths if truth.complete]
    assert (len(truths), len(counted), sum(bool(truth.entities) for truth in counted)) == (18_920, 9_816, 5_370)
    metrics = reference_metrics(truths, range(len(truths)))
    scores = [
        [round(100 * metrics[f"{kind}.{name}"].value, 2) for kind in ("activity_f1", "entity_f1")]
        for name in (*CONSTANTS, CEILING)
    ]
    assert scores == [[10.20, 5.36], [15.17, 5.36], [100.0, 54.71]]
