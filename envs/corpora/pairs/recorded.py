"""Readers of the published corpora of recorded dialogues, as pairs.

Cornell movie dialogues (Danescu-Niculescu-Mizil & Lee 2011), two parallel files in Windows-1252. Line n of `test.dec` answers
line n of `test.enc`. The lines do not name their films, so the hash of the source gives the split, 90 : 5 : 5, and no source is
in two splits. Pairs with a side that has no word are left out.

Switchboard with dialogue acts (Jurafsky et al. 1997), one file per dialogue. `train`, `val` and `test` hold files of lines
"speaker|text|act". Neighbouring lines of one speaker are a turn, which is one utterance here. Neighbouring turns of a dialogue
are pairs: 95,329 in train, 1,466 in val, 2,119 in test.

DailyDialog++ (Sai et al. 2020): contexts of several turns, each with five replies that people wrote.

    data_positives.jsonl   7,641 contexts: training
    dev.jsonl              1,028 contexts: validation
    test.jsonl             1,142 contexts: test

A line is a JSON object of "context" (turns, oldest first) and lists of replies. The last turn of a context and each correct
reply are a pair; the turns before it are links. The corpus of candidates uses the wrong replies (`envs/ranking/corpora.py`).

KdConv (Zhou et al. 2020): Chinese conversations about films, music and travel. Each of the three folders holds JSON lists of
dialogues, {"name": ..., "messages": [{"message": text, ...}, ...]}. Messages have no blanks and are cut into words by jieba. A
message is an utterance; neighbouring messages of a dialogue are pairs. If a folder has no `train.json`, its `dev.json` is the
training split, except every tenth dialogue, which is for validation. The 900 dialogues in `dev.json` and `test.json` have 8,421
and 8,837 replies with two turns of context or more.

OpenSubtitles in OPUS (Lison & Tiedemann 2016, "OpenSubtitles2016: Extracting Large Parallel Corpora from Movie and TV
Subtitles"): files in any folder below `opensubtitles`. `.txt` and `.en` (Moses) hold one utterance per line, `.xml` holds
sentences `<s>`, with or without words `<w>`; each may be compressed (`.gz`). Files called README or LICENSE are skipped.
Speakers are unknown, so neighbouring lines are pairs, as in He & Glass 2018.

    at least 20 files   each is a film; the hash of its path gives the split, 90 : 5 : 5
    fewer               each holds many films and is cut into blocks of 1,000 lines (files of less than 20,000 lines into blocks
                        of a twentieth, at least 50 lines); of every 20 blocks 18 are training, one validation, one test

No pair or context crosses the border of a block; a film that does is in both.

The OpenSubtitles sample of Li et al. 2017 ("Adversarial Learning for Neural Dialogue Generation"): files `t_given_s_SPLIT.txt`
of lines "source|target". Words are numbers, counted from 1, in the dictionary `movie_25000`; its first word stands for every
unknown word.

Ubuntu IRC logs with reply links (Kummerfeld et al. 2019, "A Large-Scale Corpus for Conversation Disentanglement"). `train`,
`dev` and `test` hold pairs of files: `X.ascii.txt`, the lines of one log, and `X.annotation.txt`, lines "i j -" for "line j
replies to line i", counted from 0, i <= j; i = j begins a conversation. The lines of the log are

    [HH:MM] <nick> text                 [HH:MM]  * nick action
    [HH:MM] -nick:#channel- notice      [HH:MM] (nick/#channel) text from elsewhere      === joined, left, renamed

Utterances are the messages and actions of people. Notices, `===` lines, bots and messages without a word are dropped. A leading
"nick:" or "nick," of a nick in the same file is removed. Pairs are, between different nicks:

- every annotated reply link whose ends both have words: 36,073 in train, 1,437 in val, 2,554 in test;
- for lines without annotation (each file begins with a thousand), the nick rule: a message that begins with "nick:" or
  "nick," replies to the last message of that nick before it: 54,244, 4,092 and 3,441. On annotated lines the rule agrees with
  the annotation in about 70 % of the cases.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from parley.envs.core.errors import DataError
from parley.envs.core.seeds import stable_hash
from parley.envs.corpora.arrow import read_file
from parley.envs.corpora.lines import SPLITS, FileLine, broken_rule, located, read_lines, require_utf8, split_lines
from parley.envs.corpora.pairs.tokens import UNKNOWN, FilePairs, PairText, SplitText, cut, cutter_version, split_of, tokenise

SOURCES, REPLIES = "test.enc", "test.dec"


def read_cornell(folder: Path) -> PairText:
    """Read both files; if they differ in length, read no pairs, because lines cannot be matched."""
    text, paths = PairText(), [folder / SOURCES, folder / REPLIES]
    sources, replies = map(read_lines, paths)
    if len(sources) != len(replies):
        got, fix = f"{len(sources):,} and {len(replies):,} lines", "get both files again"
        text.broken.append(DataError("the files are not parallel", where=folder, got=got, fix=fix))
        return text
    for number, lines in enumerate(zip(sources, replies, strict=True), 1):
        sides = []
        for path, line in zip(paths, lines, strict=True):
            try:
                sides.append(tokenise(line.encode("utf-8", "surrogateescape").decode("cp1252")))
            except UnicodeDecodeError:
                error = broken_rule("the file is Windows-1252 text", ascii(line))
                text.broken.append(located(error, str(path), number))
        if len(sides) == 2 and all(sides):
            source, reply = sides
            split = text.splits[split_of(" ".join(source))]
            split.link(split.add(source), split.add(reply))
    return text


def read_switchboard(folder: Path) -> PairText:
    """Read every dialogue below the folder.

    Args:
        folder: holds `train`, `val` and `test`.
    """
    text = PairText()
    for name, split in text.splits.items():
        for path in sorted((folder / name).glob("*.txt")):
            rows = [split.add(turn) for turn in _turns(path, text.broken)]
            for source, reply in pairwise(rows):
                split.link(source, reply)
    return text


def parse_line(line: str) -> tuple[str, list[str]]:
    """Parse one line of Switchboard.

    Returns:
        The speaker, A or B, and the words, which may be empty.

    Raises:
        DataError: the line is not "A|text|act" or "B|text|act".
    """
    require_utf8(line)
    fields = line.split("|")
    if len(fields) != 3 or fields[0] not in ("A", "B"):
        raise broken_rule("a line is A or B, text and act, with | between them", line)
    return fields[0], tokenise(fields[1])


def _turns(path: Path, broken: list[DataError]) -> list[list[str]]:
    turns: list[list[str]] = []
    before = ""
    for number, line in enumerate(read_lines(path), 1):
        try:
            speaker, words = parse_line(line)
        except DataError as error:
            broken.append(located(error, str(path), number))
            continue
        if speaker != before:
            turns.append([])
        turns[-1] += words
        before = speaker
    return [turn for turn in turns if turn]


FILES = {"train": "data_positives.jsonl", "val": "dev.jsonl", "test": "test.jsonl"}
CONTEXT, POSITIVE = "context", "positive_responses"


def read_dailydialog_pairs(folder: Path) -> PairText:
    """Read the correct replies of the three files."""
    text = PairText()
    for name, file in FILES.items():
        split, path = text.splits[name], folder / file
        for number, line in enumerate(read_lines(path), 1):
            try:
                context, replies = parse_lists(line, CONTEXT, POSITIVE)
            except DataError as error:
                text.broken.append(located(error, str(path), number))
                continue
            turns = [split.add(turn) for turn in context]
            split.follow(turns)
            for reply in replies:
                split.link(turns[-1], split.add(reply))
    return text


def parse_lists(line: str, *names: str) -> list[list[list[str]]]:
    """Parse lists of texts from one line.

    Args:
        line: a JSON object.
        names: names of the lists.

    Returns:
        The words of each text of each list.

    Raises:
        DataError: the line has another form, lacks a list, or holds a text without a word.
    """
    require_utf8(line)
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise broken_rule(f"a line is a JSON object: {error.msg}", line) from None
    return [_texts(record, name) for name in names]


def _texts(record: Any, name: str) -> list[list[str]]:
    listed = record.get(name) if isinstance(record, dict) else None
    if not isinstance(listed, list) or not listed or not all(isinstance(text, str) for text in listed):
        raise broken_rule(f'a line has a list of texts as "{name}"', json.dumps(record, ensure_ascii=False))
    words_by_text = [tokenise(text) for text in listed]
    if not all(words_by_text):
        raise broken_rule(f'each text of "{name}" has a word', json.dumps(listed, ensure_ascii=False))
    return words_by_text


DOMAINS = ("film", "music", "travel")
TRAIN, DEV, TEST = "train.json", "dev.json", "test.json"
_HELD_OUT = 10
"""One dialogue in so many is for validation, if `dev.json` is the training split."""


def read_kdconv(folder: Path) -> PairText:
    """Read every dialogue below the folder.

    Args:
        folder: holds `film`, `music` and `travel`.

    Raises:
        ConfigError: jieba is not installed.
    """
    text = PairText()
    for domain in (folder / name for name in DOMAINS):
        trained = (domain / TRAIN).is_file()
        _read_kdconv_file(domain / TEST, text, "test")
        _read_kdconv_file(domain / DEV, text, "val" if trained else None)
        if trained:
            _read_kdconv_file(domain / TRAIN, text, "train")
    return text


def parse_dialogue(record: Any) -> list[list[str]]:
    """Return the words of each message of a dialogue.

    Raises:
        DataError: the record has another form, or a message has no word.
    """
    messages = record.get("messages") if isinstance(record, dict) else None
    if not isinstance(messages, list):
        raise broken_rule('a dialogue has "messages"', json.dumps(record, ensure_ascii=False))
    return [_words(message) for message in messages]


def _words(message: Any) -> list[str]:
    text = message.get("message") if isinstance(message, dict) else None
    words = cut(text) if isinstance(text, str) else []
    if not words:
        raise broken_rule('a message has a "message" of a word or more', json.dumps(message, ensure_ascii=False))
    return words


def _read_kdconv_file(path: Path, text: PairText, only: str | None) -> None:
    """Read a file into the split `only`, or each dialogue into training or validation by its hash."""
    for line, record in _records(path, text.broken):
        try:
            utterances = parse_dialogue(record)
        except DataError as error:
            text.broken.append(located(error, str(path), line))
            continue
        held_out = stable_hash("validation", *(" ".join(words) for words in utterances)) % _HELD_OUT == 0
        split = text.splits[only or ("val" if held_out else "train")]
        for source, reply in pairwise([split.add(words) for words in utterances]):
            split.link(source, reply)


def _records(path: Path, broken: list[DataError]) -> Iterator[tuple[int, Any]]:
    """Yield the entries of a JSON list, each with its first line."""
    content = read_file(path).decode("utf-8", errors="surrogateescape")
    decoder, position, line, separator = json.JSONDecoder(), 0, 1, "["
    try:
        require_utf8(content)
        while True:
            start = _next(content, position)
            line, position = line + content.count("\n", position, start), start
            if content[position : position + 1] != separator:
                break
            start = _next(content, position + 1)
            line, position = line + content.count("\n", position, start), start
            record, end = decoder.raw_decode(content, position)
            yield line, record
            line, position, separator = line + content.count("\n", position, end), end, ","
        if separator == "[" or content[position:].strip() != "]":
            raise broken_rule("the file is one JSON list", content[position : position + 80])
    except json.JSONDecodeError as error:
        broken.append(located(broken_rule("the file is one JSON list", error.msg), str(path), error.lineno))
    except DataError as error:
        broken.append(located(error, str(path), line))


def _next(content: str, position: int) -> int:
    while content[position : position + 1].isspace():
        position += 1
    return position


KDCONV = FilePairs(
    name="kdconv",
    summary="1,500 Chinese conversations each about films, music and travel (KdConv, Zhou et al. 2020); needs jieba",
    licence="Apache-2.0",
    obtain="github.com/thu-coai/KdConv, folder data",
    vocabulary=15_000,
    wanted=(("*/train.json", "*/dev.json"), *((f"{domain}/{name}",) for domain in DOMAINS for name in (DEV, TEST))),
    reader=read_kdconv,
    tools=(cutter_version(),),
)


SUFFIXES = (".txt", ".txt.gz", ".en", ".en.gz", ".xml", ".xml.gz")
NO_FILMS = ("readme", "license", "licence")
"""Prefixes of files beside the films that are no films."""
FEWEST_FILMS = 20
"""Fewest files that count as one film each."""
BLOCK, SHORTEST_BLOCK, BLOCKS = 1000, 50, 20
"""Most and fewest lines of a block of a file of many films, and the number of blocks per cycle of splits."""
DICTIONARY = "movie_25000"
SAMPLES = {"train": "t_given_s_train.txt", "val": "t_given_s_dev.txt", "test": "t_given_s_test.txt"}


def read_opus(folder: Path) -> PairText:
    """Read every film below the folder, without lines that have no word."""
    text, films = PairText(), _films(folder)
    for path in films:
        try:
            lines = list(_film(path))
        except DataError as error:
            text.broken.append(error)
            continue
        one_block = [(split_of(path.relative_to(folder).as_posix()), range(len(lines)))]
        for name, block in one_block if len(films) >= FEWEST_FILMS else _blocks(len(lines)):
            _read_subtitles(path, lines, block, text.splits[name], text.broken)
    return text


def read_sample(folder: Path) -> PairText:
    """Read the sample, with the words of the dictionary unchanged."""
    text = PairText()
    words = read_lines(folder / DICTIONARY)
    words[0] = UNKNOWN
    for name, file in SAMPLES.items():
        split = text.splits[name]
        for number, line in enumerate(read_lines(folder / file), 1):
            try:
                source, target = parse_coded(line, words)
            except DataError as error:
                text.broken.append(located(error, str(folder / file), number))
            else:
                split.link(split.add(source), split.add(target))
    return text


def parse_coded(line: str, words: list[str]) -> tuple[list[str], list[str]]:
    """Parse one line of the sample.

    Args:
        line: "source|target", each a sequence of word numbers separated by spaces.
        words: the dictionary.

    Returns:
        The words of source and target, at least one each.

    Raises:
        DataError: the line has another form, or a number is not in the dictionary.
    """
    sides = [side.split() for side in line.split("|")]
    if len(sides) != 2 or not all(sides) or not all(word.isdecimal() and word.isascii() for side in sides for word in side):
        raise broken_rule("a line is numbers, | and numbers", line)
    source, target = ([int(word) for word in side] for side in sides)
    if not all(1 <= number <= len(words) for number in (*source, *target)):
        raise broken_rule(f"a word is a number from 1 to {len(words):,}", line)
    return [words[number - 1] for number in source], [words[number - 1] for number in target]


def _read_subtitles(path: Path, lines: Sequence[str], places: range, split: SplitText, broken: list[DataError]) -> None:
    """Add some lines of a file to a split, and pair each with the next."""
    rows = []
    for i in places:
        try:
            require_utf8(lines[i])
        except DataError as error:
            broken.append(located(error, str(path), i + 1))
            continue
        # Subtitles put a dash before each of two speakers on one screen.
        if words := tokenise(lines[i].lstrip("-\N{EN DASH}\N{EM DASH} ")):
            rows.append(split.add(words))
    for source, reply in pairwise(rows):
        split.link(source, reply)


def _blocks(num_lines: int) -> Iterator[tuple[str, range]]:
    """Yield the blocks of a file of many films: the split and the lines of each."""
    size = min(BLOCK, max(SHORTEST_BLOCK, -(-num_lines // BLOCKS)))
    for number, start in enumerate(range(0, num_lines, size)):
        position = number % BLOCKS
        yield SPLITS[max(0, position - (BLOCKS - len(SPLITS)))], range(start, min(start + size, num_lines))


def _films(folder: Path) -> list[Path]:
    files = (path for path in folder.rglob("*") if path.name.endswith(SUFFIXES) and path.is_file())
    return sorted(path for path in files if not path.name.lower().startswith(NO_FILMS))


def _film(path: Path) -> Iterator[str]:
    content = read_file(path)
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            fix = "get the file again"
            raise DataError("a film cannot be unpacked", where=path, got=str(error), fix=fix) from None
    if path.name.endswith((".xml", ".xml.gz")):
        yield from _sentences(content, path)
    else:
        yield from split_lines(content)


def _sentences(content: bytes, path: Path) -> Iterator[str]:
    try:
        film = ElementTree.fromstring(content)
    except ElementTree.ParseError as error:
        where = FileLine(str(path), error.position[0])
        raise DataError("a film is not XML", where=where, got=str(error), fix="get the file again") from None
    for sentence in film.iter("s"):
        words = [word.text or "" for word in sentence.iter("w")]
        yield " ".join(words or sentence.itertext())


FOLDERS = {"train": "train", "val": "dev", "test": "test"}
LOG, LINKS = ".ascii.txt", ".annotation.txt"

_MESSAGE = re.compile(r"\[\d\d:\d\d\] (?:<([^>]+)>| \* (\S+)) ?(.*)")
_SYSTEM = re.compile(r"===|\[\d\d:\d\d\] (?:-[^ ]+-|\([^ ]+\)) ")
_BOT = re.compile(r"ubot\w*|lubotu\d*|floodbot\d*|chanserv")
_ADDRESSED = re.compile(r"([^\s:,]+)[:,]")


class ChannelMessage(NamedTuple):
    """A message of a person."""

    nick: str
    """In lower case, as IRC compares them."""
    text: str


def read_ubuntu(folder: Path) -> PairText:
    """Read every log below the folder.

    Args:
        folder: holds `train`, `dev` and `test`.
    """
    text = PairText()
    for split, name in FOLDERS.items():
        for path in sorted((folder / name).glob(f"*{LOG}")):
            _read_log(path, text.splits[split], text.broken)
    return text


def parse_message(line: str) -> ChannelMessage | None:
    """Parse one line of a log.

    Returns:
        The message, or None for a line of the system or a bot.

    Raises:
        DataError: the line has none of the five forms.
    """
    require_utf8(line)
    match = _MESSAGE.fullmatch(line)
    if match is None:
        if _SYSTEM.match(line):
            return None
        raise broken_rule("a line of a log is a message, an action, a notice, text from elsewhere or ===", line)
    nick = (match[1] or match[2]).lower()
    return None if _BOT.fullmatch(nick) else ChannelMessage(nick, match[3].strip())


def parse_link(line: str, num_lines: int) -> tuple[int, int]:
    """Parse one line of an annotation.

    Args:
        line: "i j -".
        num_lines: lines of the log.

    Returns:
        The earlier and the later line, counted from 0.

    Raises:
        DataError: the line has another form, names a line that the log lacks, or links a line to a later one.
    """
    fields = line.split()
    if len(fields) != 3 or fields[2] != "-" or not all(re.fullmatch("[0-9]+", field) for field in fields[:2]):
        raise broken_rule("a link is two numbers and -", line)
    earlier, later = map(int, fields[:2])
    if earlier > later:
        raise broken_rule("a link names the earlier line first, for nobody replies to a later one", line)
    if later >= num_lines:
        raise broken_rule(f"a link joins two of the {num_lines:,} lines of its log", line)
    return earlier, later


def read_messages(path: Path, broken: list[DataError]) -> list[ChannelMessage | None]:
    """Return the messages of a log; None for lines of the system or a bot, and broken lines.

    Args:
        path: of the log.
        broken: takes the error of each broken line.
    """
    messages: list[ChannelMessage | None] = []
    for number, line in enumerate(read_lines(path), 1):
        try:
            messages.append(parse_message(line))
        except DataError as error:
            broken.append(located(error, str(path), number))
            messages.append(None)
    return messages


def read_links(log: Path, num_lines: int, broken: list[DataError]) -> list[tuple[int, int]]:
    """Return the reply links of a log: earlier and later line, counted from 0.

    Args:
        log: path of the log; the annotation lies beside it.
        num_lines: lines of the log.
        broken: receives the error of each broken line, or of a missing file.
    """
    path = log.with_name(log.name.removesuffix(LOG) + LINKS)
    if not path.is_file():
        broken.append(DataError("a file is missing", where=path, fix="put it beside the log of the same name"))
        return []
    links = []
    for number, line in enumerate(read_lines(path), 1):
        try:
            links.append(parse_link(line, num_lines))
        except DataError as error:
            broken.append(located(error, str(path), number))
    return links


def without_address(text: str, nicks: set[str]) -> str:
    """Return a message without a leading "nick:" or "nick," of one of the nicks, given in lower case."""
    addressed = _ADDRESSED.match(text)
    return text[addressed.end() :] if addressed and addressed[1].lower() in nicks else text


def _read_log(path: Path, split: SplitText, broken: list[DataError]) -> None:
    messages = read_messages(path, broken)
    links = read_links(path, len(messages), broken)
    links += _addressed(messages, annotated={reply for _, reply in links})
    nicks = {message.nick for message in messages if message is not None}
    # Line number -> index of its utterance.
    utterances: dict[int, int] = {}
    for number, message in enumerate(messages):
        if message is not None and (words := tokenise(without_address(message.text, nicks))):
            utterances[number] = split.add(words)
    for source, reply in links:
        if source in utterances and reply in utterances and _nick(messages, source) != _nick(messages, reply):
            split.link(utterances[source], utterances[reply])


def _addressed(messages: Sequence[ChannelMessage | None], annotated: set[int]) -> Iterator[tuple[int, int]]:
    """Yield the pairs of the nick rule: lines of source and reply."""
    last: dict[str, int] = {}
    for number, message in enumerate(messages):
        if message is None:
            continue
        if number not in annotated:
            addressed = _ADDRESSED.match(message.text)
            source = last.get(addressed[1].lower()) if addressed else None
            if source is not None:
                yield source, number
        last[message.nick] = number


def _nick(messages: Sequence[ChannelMessage | None], number: int) -> str | None:
    message = messages[number]
    return None if message is None else message.nick
