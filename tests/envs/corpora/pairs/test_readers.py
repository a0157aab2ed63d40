"""Every format on a tiny file of its own: what is read, and which lines are broken."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from parley.envs.core.errors import ConfigError, DataError
from parley.envs.corpora.pairs.compiled import open_pairs
from parley.envs.corpora.pairs.contexts import examples
from parley.envs.corpora.pairs.corpora import find_pairs, pair_corpora
from parley.envs.corpora.pairs.recorded import read_opus, read_sample, read_switchboard, read_ubuntu
from parley.envs.corpora.pairs.tokens import PairText
from parley.envs.corpora.pairs.turns import format_turns, tabbed_pairs
from tests.envs.corpora.pairs.made_up import pairs_of, write_lines, write_ubuntu


def places(text: PairText) -> list[str]:
    return [f"{Path(str(error.where)).parent.name}/{Path(str(error.where)).name}" for error in text.broken]


def test_ubuntu_pairs_are_links_then_nick_addressed_messages(tmp_path: Path) -> None:
    write_ubuntu(tmp_path)
    text = read_ubuntu(tmp_path)
    assert text.broken == []
    for split in text.splits.values():
        assert pairs_of(split) == [
            ("ok", "you 're welcome"),
            ("my disk is full", "which disk ?"),
            ("sighs", "delete something"),
        ]
        assert [" ".join(words) for words in split.utterances()] == [
            "my disk is full",
            "which disk ?",
            "sighs",
            "delete something",
            "talking to myself",
            "ok",
            "you 're welcome",
        ]


def test_ubuntu_names_broken_lines_and_missing_annotations(tmp_path: Path) -> None:
    write_ubuntu(tmp_path)
    write_lines(tmp_path / "dev" / "2004-12-25.ascii.txt", "[03:14] <ann> hi", "Ann: hi", "[03:15] <bob> hi ?")
    write_lines(tmp_path / "dev" / "2004-12-25.annotation.txt", "0 2 -", "0 2", "0 3 -", "x 1 -")
    (tmp_path / "test" / "2004-12-25.annotation.txt").unlink()
    text = read_ubuntu(tmp_path)
    assert places(text) == [
        "dev/2004-12-25.ascii.txt:2",
        "dev/2004-12-25.annotation.txt:2",
        "dev/2004-12-25.annotation.txt:3",
        "dev/2004-12-25.annotation.txt:4",
        "test/2004-12-25.annotation.txt",
    ]
    assert pairs_of(text.splits["val"]) == [("hi", "hi ?")]
    with pytest.raises(DataError, match="5 broken in all"):
        text.require_whole()


def test_switchboard_turns_are_merged_lines_of_one_speaker(tmp_path: Path) -> None:
    write_lines(
        tmp_path / "train" / "1.txt",
        "A|Okay.|fo",
        "A|Uh, how are you?|qo",
        "B|Fine.|sv",
        "A||x",
        "B|And you?|qy",
        "A|Me too.|aa",
    )
    write_lines(tmp_path / "train" / "2.txt", "A|Bye.|fc", "B|Bye.|fc")
    text = read_switchboard(tmp_path)
    assert text.broken == []
    assert pairs_of(text.splits["train"]) == [
        ("okay . uh , how are you ?", "fine ."),
        ("fine .", "and you ?"),
        ("and you ?", "me too ."),
        ("bye .", "bye ."),
    ]
    assert text.splits["train"].num_utterances == 6


def test_switchboard_names_broken_lines(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "val" / "1.txt", "A|Hi.|fp", "C|Hi.|fp", "A|Hi", "B|Hi.|fp")
    path.write_bytes(path.read_bytes() + b"A|caf\xe9|sd\n")
    text = read_switchboard(tmp_path)
    assert places(text) == ["val/1.txt:2", "val/1.txt:3", "val/1.txt:5"]
    assert pairs_of(text.splits["val"]) == [("hi .", "hi .")]


@pytest.mark.parametrize("suffix", [".txt", ".txt.gz", ".en", ".en.gz", ".xml", ".xml.gz"])
def test_films_are_read_in_every_opus_format(tmp_path: Path, suffix: str) -> None:
    if not suffix.startswith(".xml"):
        content = "- Hello.\n\nWho's there?\n...\n"
    else:
        plain, words = "<s><time id='T1'/>- Hello.</s>", "<s><w>Who</w><w>'s</w> <w>there</w><w>?</w></s>"
        content = f"<document>{plain}{words}<s>...</s></document>"
    path = tmp_path / "2001" / f"film{suffix}"
    path.parent.mkdir()
    path.write_bytes(gzip.compress(content.encode()) if suffix.endswith(".gz") else content.encode())
    text = read_opus(tmp_path)
    assert text.broken == []
    pairs = [pair for split in text.splits.values() for pair in pairs_of(split)]
    assert pairs == [("hello .", "who 's there ?"), ("who 's there ?", "...")]


def test_a_film_lies_in_one_split_as_a_whole(tmp_path: Path) -> None:
    for film in range(60):
        write_lines(tmp_path / f"{film}.txt", *(f"word{film} line{line}" for line in range(3)))
    write_lines(tmp_path / "README.txt", "where it", "comes from")
    text = read_opus(tmp_path)
    films = {name: {pair[0].split()[0] for pair in pairs_of(split)} for name, split in text.splits.items()}
    assert all(films.values())
    assert sum(map(len, films.values())) == len(set.union(*films.values())) == 60
    assert len(films["train"]) > 45
    assert all(source.split()[0] == reply.split()[0] for split in text.splits.values() for source, reply in pairs_of(split))


@pytest.mark.parametrize(("num_lines", "block"), [(1000, 50), (1001, 51), (12_345, 618), (45_000, 1000)])
def test_a_file_of_many_films_is_cut_into_blocks_whose_neighbours_no_pair_joins(
    tmp_path: Path, num_lines: int, block: int
) -> None:
    path = write_lines(tmp_path / "en.txt", *(f"line{number}" for number in range(num_lines)))
    text = read_opus(tmp_path)
    for name, split in text.splits.items():
        pairs = [tuple(int(word.removeprefix("line")) for word in pair) for pair in pairs_of(split)]
        assert pairs
        assert all(reply == source + 1 and source // block == reply // block for source, reply in pairs)
        assert all(("val", "test").index(name) + 18 == source // block % 20 for source, _ in pairs if name != "train")
        assert all(source // block % 20 < 18 for source, _ in pairs if name == "train")
    said = [words[0] for split in text.splits.values() for words in split.utterances()]
    assert len(said) == len(set(said)) == num_lines, "every line is in one split"
    # What is added at the end leaves the blocks before it where they were, once blocks are of full size.
    if block == 1000:
        with path.open("a") as file:
            file.write("".join(f"line{number}\n" for number in range(num_lines, num_lines + 3000)))
        longer = read_opus(tmp_path)
        for name, split in text.splits.items():
            assert set(pairs_of(split)) <= set(pairs_of(longer.splits[name]))


def test_a_few_files_are_many_films_each_and_twenty_are_one_each(tmp_path: Path) -> None:
    for number in range(19):
        write_lines(tmp_path / f"{number}.txt", *(f"file{number} line{line}" for line in range(1000)))
    few = read_opus(tmp_path)
    assert [split.num_utterances for split in few.splits.values()] == [19 * 900, 19 * 50, 19 * 50]
    write_lines(tmp_path / "19.txt", "one more")
    found = {name: {words[0] for words in split.utterances()} for name, split in read_opus(tmp_path).splits.items()}
    assert sum(map(len, found.values())) == len(set.union(*found.values())), "no file is in two splits"


def test_broken_films_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(b"not packed")
    (tmp_path / "b.xml").write_text("<document>\n<s>open\n</document>")
    (tmp_path / "c.txt").write_bytes(b"fine\ncaf\xe9\n")
    text = read_opus(tmp_path)
    assert [place.partition("/")[2] for place in places(text)] == ["a.txt.gz", "b.xml:3", "c.txt:2"]


def write_sample(folder: Path) -> None:
    write_lines(folder / "movie_25000", "UNknown", "yes", "no", ".")
    for split in ("train", "dev", "test"):
        write_lines(folder / f"t_given_s_{split}.txt", "2 4|3 1 4", "3|2")


def test_the_sample_is_decoded_with_its_dictionary(tmp_path: Path) -> None:
    write_sample(tmp_path)
    text = read_sample(tmp_path)
    assert text.broken == []
    for split in text.splits.values():
        assert pairs_of(split) == [("yes .", "no <unk> ."), ("no", "yes")]


def test_the_sample_names_broken_lines(tmp_path: Path) -> None:
    write_sample(tmp_path)
    write_lines(tmp_path / "t_given_s_dev.txt", "2|5", "0|2", "2 4", "2||3", "2|", "2|x", "2|3")
    text = read_sample(tmp_path)
    assert [str(error.where).rpartition(":")[2] for error in text.broken] == ["1", "2", "3", "4", "5", "6"]
    assert pairs_of(text.splits["val"]) == [("yes", "no")]


def test_one_file_is_split_by_its_sources_so_that_none_is_on_two_sides(tmp_path: Path) -> None:
    lines = [f"before {i}\tquestion{' ' * (i % 2)} {i % 150}\tanswer {i % 150}" for i in range(300)]
    text = tabbed_pairs(write_lines(tmp_path / "own[1].tsv", *lines)).read(tmp_path)
    found = {name: pairs_of(split) for name, split in text.splits.items()}
    assert sum(map(len, found.values())) == 300
    assert all(found.values())
    assert len(found["train"]) > 230
    seen = [set(pairs) for pairs in found.values()]
    assert sum(map(len, seen)) == len(set.union(*seen)) == 150


def test_a_folder_of_three_files_keeps_its_splits_and_chains_share_utterances(tmp_path: Path) -> None:
    for split in ("train", "val", "test"):
        write_lines(tmp_path / "own" / f"{split}.tsv", f"hi {split}\thello", "Hello\tbye", "hi\tbye")
    text = tabbed_pairs(tmp_path / "own").read(tmp_path)
    for name, split in text.splits.items():
        assert pairs_of(split) == [(f"hi {name}", "hello"), ("hello", "bye"), ("hi", "bye")]
        assert split.num_utterances == 5


def test_lines_of_ones_own_that_are_no_pair_are_named(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "own.tsv", "a\tb", "a", "a\t\tc", "\tb", "a\t ", "a\tb ||| ||| c")
    text = tabbed_pairs(path).read(tmp_path)
    assert places(text) == [f"{tmp_path.name}/own.tsv:{line}" for line in (2, 3, 4, 5, 6)]
    told = [error.what.partition(": ")[2] for error in text.broken]
    sides = [f"the {side} has no word" for side in ("source", "source", "reply", "reply")]
    assert told == ["a tab belongs between source and reply, and there is none", *sides]


def test_turns_before_the_source_are_context_and_several_replies_share_it(tmp_path: Path) -> None:
    told = ("a\tb\tc ||| d <eou> e", "f <eot> g\th", "f\tg\th\ti <unk>", "g\th\tj", "k\tl")
    for split in ("train", "val", "test"):
        write_lines(tmp_path / "own" / f"{split}.tsv", *told)
    source = tabbed_pairs(tmp_path / "own")
    text = source.read(tmp_path)
    assert text.broken == []
    pairs = [("b", "c"), ("b", "d <eou> e"), ("g", "h"), ("h", "i <unk>"), ("h", "j"), ("k", "l")]
    assert pairs_of(text.splits["train"]) == pairs
    corpus = open_pairs(source, every_word=True, cache=tmp_path / "cache")
    recorded = [format_turns(each.context) for each in examples(corpus, "test", 3)]
    assert recorded == ["a <eot> b", "a <eot> b", "f <eot> g", "f <eot> g <eot> h", "g <eot> h", "k"]
    # Damage of the links is noticed as that of any other file.
    (corpus.folder / "test-links.arrow").unlink()
    again = open_pairs(source, every_word=True, cache=tmp_path / "cache")
    assert [format_turns(each.context) for each in examples(again, "test", 3)] == recorded
    assert [format_turns(each.context) for each in examples(again.first(3), "test", 3)] == recorded[:3]


def test_cornell_lines_of_two_files_are_pairs_and_no_source_is_on_two_sides(tmp_path: Path) -> None:
    folder = tmp_path / "cornell_test"
    asked = [f"What  is {i % 40}?" for i in range(80)]
    write_lines(folder / "test.enc", *asked, "", "Who?")
    write_lines(folder / "test.dec", *(f"It is {i}." for i in range(80)), "You.", " ")
    text = find_pairs("cornell").read(tmp_path)
    found = {name: pairs_of(split) for name, split in text.splits.items()}
    assert text.broken == []
    assert ("what is 7 ?", "it is 47 .") in found["train"] + found["val"] + found["test"]
    assert sum(map(len, found.values())) == 80
    sources = [{source for source, _ in pairs} for pairs in found.values()]
    assert sum(map(len, sources)) == len(set.union(*sources))


def test_cornell_files_that_are_not_parallel_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "cornell_test"
    write_lines(folder / "test.enc", "a", "b")
    write_lines(folder / "test.dec", "c")
    (error,) = find_pairs("cornell").read(tmp_path).broken
    assert (error.what, error.got) == ("the files are not parallel", "2 and 1 lines")
    (folder / "test.dec").write_bytes(b"c\nI\x92m\n")
    text = find_pairs("cornell").read(tmp_path)
    assert text.broken == []
    assert ("b", "i 'm") in [pair for split in text.splits.values() for pair in pairs_of(split)]
    (folder / "test.dec").write_bytes(b"c\n\x81\n")
    assert places(find_pairs("cornell").read(tmp_path)) == ["cornell_test/test.dec:2"]


def test_dailydialog_contexts_have_several_replies_and_turns_before(tmp_path: Path) -> None:
    line = {"context": ["Hi.", "Hello!", "How are you?"], "positive_responses": ["Fine.", "Well, you?"]}
    broken = {"context": ["Hi."], "positive_responses": []}
    for name in ("data_positives.jsonl", "dev.jsonl", "test.jsonl"):
        write_lines(tmp_path / "dailydialog_pp" / name, json.dumps(line), json.dumps(line | {"context": ["Bye."]}))
    source = find_pairs("dailydialog")
    corpus = open_pairs(source, tmp_path, every_word=True, cache=tmp_path / "cache")
    found = [(format_turns(each.context), format_turns((each.reply,))) for each in examples(corpus, "val", 2)]
    context = "hello ! <eot> how are you ?"
    assert found == [(said, reply) for said in (context, "bye .") for reply in ("fine .", "well , you ?")]
    write_lines(tmp_path / "dailydialog_pp" / "dev.jsonl", json.dumps(broken), "{")
    assert places(source.read(tmp_path)) == ["dailydialog_pp/dev.jsonl:1", "dailydialog_pp/dev.jsonl:2"]


def test_a_line_that_is_no_utterance_is_named(tmp_path: Path) -> None:
    text = tabbed_pairs(write_lines(tmp_path / "own.tsv", "a\tb", f"a\t{'b ' * 10_001}")).read(tmp_path)
    assert places(text) == [f"{tmp_path.name}/own.tsv:2"]
    assert "the reply has 10,001 words" in text.broken[0].what


@pytest.mark.parametrize("name", ["ubuntu_irc", "switchboard", "opensubtitles", "opensubtitles_sample"])
def test_a_missing_corpus_says_what_to_put_where(name: str, tmp_path: Path) -> None:
    source = find_pairs(name)
    with pytest.raises(DataError) as caught:
        source.fingerprint(tmp_path)
    assert str(tmp_path / name) in str(caught.value.fix)
    assert all(each in str(caught.value.fix) for each in source.missing(tmp_path))
    text = source.read(tmp_path)
    assert len(text.broken) == len(source.missing(tmp_path)) > 0


def test_names_lead_to_registered_corpora_paths_and_files_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {"helpdesk", "ubuntu_irc", "switchboard", "opensubtitles", "opensubtitles_sample"} <= set(pair_corpora)
    assert all(find_pairs(name).name == name for name in pair_corpora)
    assert find_pairs("some/where/mine.tsv").name == "mine"
    path = write_lines(tmp_path / "pairs.txt", "hi\thello", "so\tlong")
    assert sum(split.num_pairs for split in find_pairs(str(path)).read(tmp_path).splits.values()) == 2
    monkeypatch.chdir(tmp_path)
    assert find_pairs("pairs.txt").name == "pairs"
    own = tmp_path / "own.py"
    own.write_text(
        "from parley.envs.corpora.pairs.turns import tabbed_pairs\nfrom pathlib import Path\n"
        "CORPUS = tabbed_pairs(Path('mine.tsv'))\n"
    )
    assert find_pairs(f"{own}:CORPUS").name == "mine"
    with pytest.raises(ConfigError, match="did you mean 'helpdesk'"):
        find_pairs("helpdeks")
