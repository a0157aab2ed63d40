from __future__ import annotations

import dataclasses
import hashlib
import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from parley.engine.responders.corpora import check_corpus, describe_corpus, find_corpus, get_corpus, list_corpora
from parley.engine.responders.corpus_info import GENERATED
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.corpora.pairs.corpora import find_pairs
from parley.envs.mutual_friends.compiled import load_friends
from parley.envs.negotiation.corpora.catalogue import PUBLISHED_NAMES, load_corpus
from parley.envs.negotiation.corpora.dealornodeal import parse_line
from parley.envs.ranking.corpora import find_candidates
from tests.envs.corpora.made_up import contents, write

FILES = contents()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def published(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder and the address it is served under."""
    folder = tmp_path / "published"
    write(folder, FILES)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def register(folder: Path, address: str | None, raw: str | None = None) -> str:
    """A corpus file of a user's own, with the digests of the made-up lines; its name for the registry."""
    files = ", ".join(
        f"CorpusFile(name={name!r}, num_lines={len(FILES[name])}, num_bytes={len(text(FILES[name]))}, "
        f"sha256=({hashlib.sha256(text(sorted(FILES[name]))).hexdigest()!r},), any_order=True)"
        for name in PUBLISHED_NAMES
    )
    path = folder / "own.py"
    path.write_text(
        "from parley.envs.negotiation.corpora.catalogue import CorpusFile, FileCorpus\n"
        f"CORPUS = FileCorpus(name='own', summary='s', licence='l', obtain='nowhere.example', address={address!r}, "
        f"raw={raw!r}, threshold=3, files=({files}))\n"
    )
    return f"{path}:CORPUS"


def raw_release() -> list[str]:
    """The dialogues of all splits in the format of the raw release."""
    lines = []
    for line in FILES["val.txt"] + FILES["train.txt"] + FILES["test.txt"]:
        record = parse_line(line)
        own, partner = (" ".join(map(str, record.scenario.context(side))) for side in (0, 1))
        output = line.split("<output> ")[1].split()
        choice, flag = " ".join(output[:3]), "agree"
        if output[0] == "<disagree>":
            choice, flag = "item0=0 item1=0 item2=0", "disagree"
        elif output[0] == "<no_agreement>":
            choice = "no agreement"
        elif output[0] == "<disconnect>":
            raise AssertionError("a made-up dialogue ends in a disconnection, which needs both views")
        lines.append(f"{own} {' '.join(record.tokens)} {choice} <eos> reward=0 {flag} {partner}")
    return lines


def test_the_list_says_what_is_there_and_what_is_missing(root: Path) -> None:
    write(root / "dealornodeal", {"val.txt": []})
    rows = {row.name: row for row in list_corpora(root)}
    assert rows["embedded"].present
    assert rows["embedded"].where == GENERATED
    real = rows["dealornodeal"]
    assert not real.present
    assert real.where == str(root / "dealornodeal")
    assert "train.txt (10,095 lines, 4,325,867 bytes)" in real.missing
    assert len(real.missing) == 3
    assert "NC" in real.licence
    json.dumps([dataclasses.asdict(row) for row in rows.values()])


@pytest.mark.parametrize(
    ("name", "got"), [("Mine", "the class Mine"), ("number", "5 without"), ("half", "half of one without")]
)
def test_what_is_no_corpus_is_named(tmp_path: Path, name: str, got: str) -> None:
    half = "class Mine:\n    fingerprint = 'half'\n    __repr__ = lambda self: self.fingerprint + ' of one'\n"
    (tmp_path / "own.py").write_text(f"number = 5\n{half}half = Mine()\n")
    asked = (find_corpus, check_corpus, describe_corpus, get_corpus, load_corpus, find_pairs, find_candidates, load_friends)
    for found in asked:
        with pytest.raises(ConfigError, match="this is no") as error:
            found(f"{tmp_path / 'own.py'}:{name}")
        assert str(error.value.got).startswith(got)


def test_get_downloads_and_compiles(root: Path, tmp_path: Path, published: tuple[Path, str]) -> None:
    folder, address = published
    name = register(tmp_path, address)
    told: dict[str, int] = {}
    delivery = get_corpus(name, root, lambda file, so_far, _: told.__setitem__(file, so_far))
    assert delivery.files == dict.fromkeys(PUBLISHED_NAMES, "downloaded")
    assert told == {file: len(text(FILES[file])) for file in PUBLISHED_NAMES}
    for file in PUBLISHED_NAMES:
        assert (root / "own" / file).read_bytes() == (folder / file).read_bytes()
    assert (Path(delivery.compiled) / "manifest.json").is_file()
    assert get_corpus(name, root).files == dict.fromkeys(PUBLISHED_NAMES, "kept")
    assert sorted(path.name for path in (root / "own").iterdir()) == sorted(PUBLISHED_NAMES)


def test_get_mends_what_differs_and_keeps_the_rest(root: Path, tmp_path: Path, published: tuple[Path, str]) -> None:
    write(root / "own", {**FILES, "val.txt": FILES["val.txt"][1:]})
    delivery = get_corpus(register(tmp_path, published[1]), root)
    assert delivery.files == {**dict.fromkeys(PUBLISHED_NAMES, "kept"), "val.txt": "downloaded"}
    assert (root / "own" / "val.txt").read_bytes() == text(FILES["val.txt"])


@pytest.mark.parametrize("by_hand", [False, True])
def test_get_rebuilds_a_training_split_that_is_not_published(
    by_hand: bool, root: Path, tmp_path: Path, published: tuple[Path, str]
) -> None:
    folder, address = published
    (folder / "train.txt").unlink()
    write(root / "own" if by_hand else folder, {"data.txt": raw_release()})
    delivery = get_corpus(register(tmp_path, address, raw="data.txt"), root)
    assert delivery.files["train.txt"] == "rebuilt from data.txt"
    assert (root / "own" / "train.txt").read_bytes() == text(FILES["train.txt"])
    assert (root / "own" / "data.txt").exists() == by_hand


def test_get_offline_names_each_file_and_its_folder(root: Path, tmp_path: Path) -> None:
    write(root / "own", {"val.txt": FILES["val.txt"]})
    with pytest.raises(DataError) as caught:
        get_corpus(register(tmp_path, "http://127.0.0.1:9", raw="data.txt"), root)
    fix = str(caught.value.fix)
    assert "cannot be downloaded" in caught.value.what
    assert str(root / "own") in fix
    assert "nowhere.example" in fix
    assert "train.txt (20 lines" in fix
    assert "selfplay.txt (6 lines" in fix
    assert "val.txt" not in fix
    assert "data.txt will do" in fix
    assert [path.name for path in (root / "own").iterdir()] == ["val.txt"]


def test_get_without_an_address_says_so(root: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no address to download from"):
        get_corpus(register(tmp_path, None), root)


def test_get_never_puts_other_content_in_place(root: Path, tmp_path: Path, published: tuple[Path, str]) -> None:
    folder, address = published
    write(folder, {"test.txt": FILES["test.txt"][1:], "train.txt": FILES["train.txt"][1:], "data.txt": raw_release()[:-2]})
    name = register(tmp_path, address, raw="data.txt")
    with pytest.raises(DataError, match="other content than expected"):
        get_corpus(name, root)
    assert not (root / "own" / "test.txt").exists()
    write(folder, {"test.txt": FILES["test.txt"]})
    with pytest.raises(DataError, match="held-out lines do not occur"):
        get_corpus(name, root)
    assert not (root / "own" / "train.txt").exists()
    write(folder, {"data.txt": [line for i, line in enumerate(raw_release()) if i != 7]})
    with pytest.raises(DataError, match="not the published one"):
        get_corpus(name, root)
    assert not (root / "own" / "train.txt").exists()


def test_check_finds_everything_and_says_where(root: Path, tmp_path: Path) -> None:
    broken = [*FILES["train.txt"][:4], "nonsense", *FILES["train.txt"][5:], "more nonsense"]
    write(root / "own", {**FILES, "train.txt": broken, "selfplay.txt": FILES["selfplay.txt"][:-1]})
    (root / "own" / "val.txt").unlink()
    check = check_corpus(register(tmp_path, None), root)
    assert check.exit_status == 1
    assert check.num_dialogues == {"train": 19, "val": 0, "test": 5}
    assert check.num_selfplay == 2
    places = [(Path(problem.file).name, problem.line) for problem in check.problems]
    assert places == [
        ("selfplay.txt", 5),
        ("selfplay.txt", None),
        ("train.txt", 5),
        ("train.txt", 21),
        ("train.txt", None),
        ("val.txt", None),
    ]
    assert all(problem.fix for problem in check.problems)
    json.dumps(dataclasses.asdict(check))


def test_check_of_a_whole_corpus_finds_nothing(root: Path, tmp_path: Path) -> None:
    write(root / "own", FILES)
    check = check_corpus(register(tmp_path, None), root)
    assert check.problems == ()
    assert check.exit_status == 0


def test_check_of_the_generated_corpus_finds_nothing() -> None:
    check = check_corpus("embedded")
    assert check.problems == ()
    assert sum(check.num_dialogues.values()) == 8_000


def test_info_counts_by_hand(root: Path, tmp_path: Path) -> None:
    scenario = (
        "<input> 1 1 2 3 3 1 </input> <dialogue> {} </dialogue> <output> {} </output> "
        "<partner_input> 1 4 2 0 3 2 </partner_input>"
    )
    lines = [
        scenario.format("YOU: a b <eos> THEM: a <eos> YOU: <selection>", "item0=0 item1=2 item2=0 item0=1 item1=0 item2=3"),
        scenario.format("THEM: a a a rare <eos> YOU: <selection>", " ".join(["<disagree>"] * 6)),
        scenario.format("THEM: <eos> YOU: b <eos> THEM: <selection>", " ".join(["<disconnect>"] * 6)),
        scenario.format("YOU: <selection>", " ".join(["<no_agreement>"] * 6)),
    ]
    selfplay = ["1 1 2 3 3 1", "1 4 2 0 3 2"] * 2
    own = tmp_path / "own.py"
    own.write_text(
        "from parley.envs.negotiation.corpora.catalogue import FileCorpus\n"
        "CORPUS = FileCorpus(name='own', summary='s', licence='l', obtain='o', threshold=1)\n"
    )
    write(root / "own", {"train.txt": lines, "val.txt": lines[:1], "test.txt": [], "selfplay.txt": selfplay})
    info = describe_corpus(f"{own}:CORPUS", root)
    train, val, test = info.splits
    assert info.num_words == 4 + 4  # the specials, the two markers, a and b
    assert (train.num_dialogues, val.num_dialogues, test.num_dialogues) == (4, 1, 0)
    assert train.num_tokens == 9 + 8 + 7 + 2
    assert train.num_loader_tokens == train.num_tokens + 4 * 12
    assert train.unknown_rate == pytest.approx(1 / 26)
    assert train.outcomes == {"items": 1, "disagree": 1, "no_agreement": 1, "disconnect": 1}
    assert (train.tokens.mean, train.tokens.median, train.tokens.max) == (6.5, 7.5, 9)
    assert (train.turns.mean, train.turns.max) == ((3 + 2 + 3 + 1) / 4, 3)
    assert (train.words.mean, train.words.max) == ((2 + 1 + 4 + 0 + 1) / 5, 4)
    assert train.num_scenarios == 1
    assert train.choices.max == 2 * 3 * 4 + 2
    assert test.tokens.mean == test.unknown_rate == test.num_scenarios == 0
    assert (info.num_selfplay, info.num_selfplay_distinct) == (2, 1)
    json.dumps(dataclasses.asdict(info))


def test_an_unknown_corpus_is_a_configuration_error() -> None:
    for verb in (get_corpus, check_corpus, describe_corpus):
        with pytest.raises(ConfigError, match="did you mean 'embedded'"):
            verb("embeded")
