"""Dialogue as turns: parsing and writing them as text, conversations of Ubuntu IRC, and the reader of a user's own pairs.

An utterance is a tuple of words. A turn is the utterances that one person says in a row. The context of a reply is the turns
before it, oldest first. As text, `<eou>` separates utterances of a turn and `<eot>` separates turns; the published forms
`__eou__` and `__eot__`, which end utterances and turns, are read as well.

`detokenise` reverses `tokens.py`, except for blanks and capitals, which tokens do not hold
(`engine/perturb/strategies/texts.py` keeps those of a text). A clitic joins its word, a closing mark the word before, an
opening mark the word after; quotation marks open and close in turn. A blank stays where the joined text would give other
tokens.

    do n't you see ( here ) , " it works " ?     don't you see (here), "it works"?

Conversations of Ubuntu IRC: Kummerfeld et al. 2019, "A Large-Scale Corpus for Conversation Disentanglement" (format in
`recorded.py`). Lines that reply links connect, in any direction, form a conversation. Neighbouring messages of one nick are a
turn, which is one utterance of the corpus, with `<eou>` between messages; neighbouring turns are pairs.

- System lines and bots connect lines and are then left out, like messages that have no word without a leading "nick:" or
  "nick," of a nick of the file.
- A conversation has at least three turns, so two speakers. In train, val and test:
      conversations                                3,628     151     251
      replies with one turn of context or more    32,898   1,311   2,490
      replies with two turns or more              29,270   1,160   2,239
  (With messages without a word, train would have one conversation and eleven replies more.)
- Lines without annotation are in no conversation.

A user's own pairs are lines, or records with columns (CSV, TSV, JSON, JSON Lines, Parquet; `envs/corpora/own_files.py`), in
which a context may be a list of turns and a reply a list of replies:

    source <TAB> reply                        one turn before the reply
    turn <TAB> ... <TAB> source <TAB> reply   several turns, oldest first; `<eot>` between turns works too
    source <TAB> reply ||| reply              several replies, each a pair with the same source

In one file, the hash of a line's source gives its split, 90 : 5 : 5 or by the shares in the name, so no source is in two
splits. A folder has a file each for `train`, `val` and `test`. If a context repeats the end of the line before, with its reply,
the utterances are shared, as in a dialogue that was cut into pairs. `parley reply` writes such files.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import ClassVar

from parley.envs.core.errors import DataError
from parley.envs.corpora.lines import SPLITS, broken_rule, located, require_utf8, stream_lines
from parley.envs.corpora.own_files import EVEN_SHARES, OwnFile, looks_like_csv, split_files
from parley.envs.corpora.pairs import vocabulary
from parley.envs.corpora.pairs.recorded import FOLDERS, LOG, read_links, read_messages, without_address
from parley.envs.corpora.pairs.tokens import FilePairs, PairText, normalised, origins, split_of, tokenise, tokenise_where
from parley.envs.corpora.pairs.vocabulary import EOU

CLITICS = frozenset({"n't", "'s", "'m", "'d", "'re", "'ve", "'ll"})
"""Clitics: second halves of contractions."""
CLOSING = frozenset({".", ",", ";", ":", "?", "!", "...", ")", "]", "}", "%"})
"""Marks that join the word before them."""
OPENING = frozenset({"(", "[", "{", "#"})
"""Marks that join the word after them."""
QUOTES = frozenset({'"', "`"})
"""Marks that open and close."""
_NUM_TEXTS = 1 << 16


def detokenise(tokens: Sequence[str]) -> str:
    """Return the text of tokens."""
    return "".join(piece for pair in written(tokens) for piece in pair).lstrip(" ")


def written(tokens: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the blank or nothing before each token, and the token as written."""
    is_open: dict[str, bool] = {}
    run: list[str] = []
    holds = False
    for i, token in enumerate(tokens):
        glued = holds or token in CLOSING or token in CLITICS
        holds = token in OPENING
        if token in QUOTES:
            is_open[token] = not is_open.get(token, False)
            holds, glued = is_open[token], glued or not is_open[token]
        token = first_half(token, tokens[i + 1] if i + 1 < len(tokens) else "")
        run = [*run, token] if i and glued and reads("".join(run) + token) == [*run, token] else [token]
        yield " " if i and len(run) == 1 else "", token


def first_half(token: str, following: str) -> str:
    """Return a token as written before another: "can" loses a letter in "can't"."""
    return "ca" if (token, following) == ("can", "n't") else token


@lru_cache(_NUM_TEXTS)
def reads(text: str) -> list[str]:
    """Return the tokens of a text without blanks; callers must not change the list."""
    return tokenise(text)


EOT = vocabulary.EOT
"""Separates turns; see `vocabulary.py`."""

Utterance = tuple[str, ...]
Turn = tuple[Utterance, ...]
Turns = tuple[Turn, ...]

_UTTERANCE_END = re.compile(r"<eou>|__eou__")
_TURN_END = re.compile(r"<eot>|__eot__")


@dataclass(frozen=True)
class Example:
    """A reply of a recorded dialogue, with the turns around it.

    Args:
        key: unique in its corpus, such as "test-000123"; sorts in the order of the corpus.
        context: the turns before, oldest first; at least one.
        reply: the turn that followed.
        after: the first turn that followed the reply; None if the corpus has none.
        dialogue: number of its dialogue in the split; None if it is of no corpus.
    """

    key: str
    context: Turns
    reply: Turn
    after: Turn | None = field(default=None, compare=False)
    dialogue: int | None = field(default=None, compare=False)

    @property
    def unit(self) -> str:
        """Its dialogue, which counts once in an interval; its key if it is of no corpus."""
        return self.key if self.dialogue is None else str(self.dialogue)


def parse_turns(line: str) -> Turns:
    """Parse a line of text into turns.

    Args:
        line: turns and utterances with their marks; a mark at the end of a turn or line ends the part before it.

    Returns:
        The turns. Utterances and turns without a word stay, as empty ones.
    """
    # Marks are matched in the normalised text, so no token contains one.
    turns = [_UTTERANCE_END.split(turn) for turn in _without_end(_TURN_END.split(normalised(line)))]
    return tuple(tuple(tuple(tokenise(utterance)) for utterance in _without_end(turn)) for turn in turns)


def tokens_where(line: str) -> list[tuple[str, int, int]] | None:
    """Return the words of a line with marks, each with its start and end; None if the line has no mark."""
    read = normalised(line)
    if not (_TURN_END.search(read) or _UTTERANCE_END.search(read)):
        return None
    tokens, where = [], origins(line)
    for turn in _between(_TURN_END, read, 0, len(read)):
        for start, end in _between(_UTTERANCE_END, read, *turn):
            first = where[start]
            tokens += [(token, first + i, first + j) for token, i, j in tokenise_where(line[first : where[end]])]
    return tokens


def turn_words(turn: Turn) -> list[str]:
    """Return the words of a turn, `<eou>` between its utterances."""
    words: list[str] = []
    for number, utterance in enumerate(turn):
        if number:
            words.append(EOU)
        words.extend(utterance)
    return words


def context_words(turns: Sequence[Turn]) -> list[str]:
    """Return the words of several turns, `<eot>` between them."""
    words: list[str] = []
    for number, turn in enumerate(turns):
        if number:
            words.append(EOT)
        words.extend(turn_words(turn))
    return words


def turn_of(words: Sequence[str]) -> Turn:
    """Return the turn that `turn_words` wrote."""
    utterances: list[list[str]] = [[]]
    for word in words:
        if word == EOU:
            utterances.append([])
        else:
            utterances[-1].append(word)
    return tuple(map(tuple, utterances))


def format_turns(turns: Turns) -> str:
    """Return the line of text that `parse_turns` reads, words joined by blanks."""
    return " ".join(context_words(turns))


def _between(mark: re.Pattern[str], text: str, start: int, end: int) -> list[tuple[int, int]]:
    marks = list(mark.finditer(text, start, end))
    return list(zip([start, *(match.end() for match in marks)], [*(match.start() for match in marks), end], strict=True))


def _without_end(pieces: list[str]) -> list[str]:
    """Drop an empty last piece: published lines end every piece with a mark."""
    return pieces[:-1] if len(pieces) > 1 and not pieces[-1].strip() else pieces


MIN_TURNS = 3
"""Fewest turns of a conversation; neighbouring turns are of different speakers."""


def read_conversations(folder: Path) -> PairText:
    """Read every log below the folder.

    Args:
        folder: holds `train`, `dev` and `test`.
    """
    text = PairText()
    for split, name in FOLDERS.items():
        for path in sorted((folder / name).glob(f"*{LOG}")):
            for turns in _conversations(path, text.broken):
                rows = [text.splits[split].add(turn_words(turn)) for turn in turns]
                for source, reply in pairwise(rows):
                    text.splits[split].link(source, reply)
    return text


def components(links: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Return the connected components of lines.

    Args:
        links: pairs of lines; a pair of a line with itself adds the line.

    Returns:
        The sorted lines of each component, components in order of their first lines.
    """
    parents: dict[int, int] = {}

    def root(line: int) -> int:
        while (parent := parents.setdefault(line, line)) != line:
            parents[line] = parents[parent]
            line = parent
        return line

    for first, second in links:
        first_root, second_root = sorted((root(first), root(second)))
        parents[second_root] = first_root
    lines_by_root: dict[int, list[int]] = {}
    for line in sorted(parents):
        lines_by_root.setdefault(root(line), []).append(line)
    return list(lines_by_root.values())


def _conversations(log: Path, broken: list[DataError]) -> Iterator[list[Turn]]:
    messages = read_messages(log, broken)
    nicks = {message.nick for message in messages if message is not None}
    for lines in components(read_links(log, len(messages), broken)):
        spoken = [message for line in lines if (message := messages[line])]
        utterances = [(message.nick, tuple(tokenise(without_address(message.text, nicks)))) for message in spoken]
        turns = [
            tuple(words for _, words in group) for _, group in groupby(filter(itemgetter(1), utterances), key=itemgetter(0))
        ]
        if len(turns) >= MIN_TURNS:
            yield turns


SUFFIX = ".tsv"
VOCABULARY = 30_000
BETWEEN_REPLIES = "|||"
MAX_WORDS = 10_000
"""Most words of a source or reply; a longer line is an error."""


WordLists = list[list[str]]
"""Utterances as lists of words."""


class TabbedPairs(FilePairs):
    """A corpus of a user's lines or records."""

    READER_VERSION: ClassVar[int] = FilePairs.READER_VERSION + 2


def tabbed_pairs(file: Path | OwnFile) -> TabbedPairs:
    """Return the corpus of a file or a folder of files.

    Args:
        file: a file or a folder; a missing path is a file if its name has a suffix.

    Raises:
        ConfigError: two files of the folder are for one split.
        DataError: the file cannot be read, or its columns are unknown.
    """
    own_file = file if isinstance(file, OwnFile) else OwnFile(file)
    path = own_file.path
    is_file = path.is_file() or (bool(path.suffix) and not path.is_dir())
    files = {} if is_file else {split: path / f"{split}{SUFFIX}" for split in SPLITS} | split_files(path)
    names = [path.name] if is_file else [file.name for file in files.values()]
    there = [own_file.of(file) for file in (files.values() or [path]) if file.is_file()]
    format_text = next((f", {file.columns_text}" for file in there if file.kind), "")
    if is_file and own_file.shares != EVEN_SHARES:
        format_text += f", {':'.join(map(str, own_file.shares))} to train, val and test"
    return TabbedPairs(
        name=path.stem if is_file else path.resolve().name,
        summary=f"pairs of your own{format_text}",
        licence="your own",
        obtain="",
        vocabulary=VOCABULARY,
        wanted=tuple((glob.escape(name),) for name in names),
        reader=partial(_read_one, own_file=own_file) if is_file else partial(_read_three, own_file=own_file, files=files),
        place=path.parent if is_file else path,
        tools=own_file.key,
    )


def parse_line(line: str) -> tuple[list[list[str]], list[list[str]]]:
    """Parse a line of a user's pairs.

    Returns:
        The words of each turn of the context, oldest first, and of each reply; `<eou>` separates utterances of a turn.

    Raises:
        DataError: no tab, or a turn or a reply without a word or with too many.
    """
    require_utf8(line)
    *columns, last = line.split("\t")
    if not columns:
        raise broken_rule("a tab belongs between source and reply, and there is none", line)
    context = [_words("the source", turn, line) for column in columns for turn in parse_turns(column)]
    replies = [_words("the reply", parsed, line) for text in last.split(BETWEEN_REPLIES) for parsed in parse_turns(text)]
    return context, replies


def parse_texts(context: Sequence[str], replies: Sequence[str]) -> tuple[list[list[str]], list[list[str]]]:
    """Parse the texts of a record as `parse_line` parses a line.

    Raises:
        DataError: a turn or a reply has no word, or too many.
    """
    turns = [_words("the context", turn, text) for text in context for turn in parse_turns(text)]
    return turns, [_words("the reply", turn, text) for text in replies for turn in parse_turns(text)]


def _words(name: str, turn: Turn, line: str) -> list[str]:
    words = turn_words(tuple(utterance for utterance in turn if utterance))
    if not words:
        raise broken_rule(f"{name} has no word", line)
    if len(words) > MAX_WORDS:
        raise broken_rule(f"{name} has {len(words):,} words, and {MAX_WORDS:,} are the most of an utterance", line)
    return words


def _read_one(folder: Path, own_file: OwnFile) -> PairText:
    text = PairText()
    _read(own_file, text, None)
    return text


def _read_three(folder: Path, own_file: OwnFile, files: dict[str, Path]) -> PairText:
    text = PairText()
    for split, path in files.items():
        _read(own_file.of(path), text, split)
    return text


def _read(own_file: OwnFile, text: PairText, only: str | None) -> None:
    """Read a file into the split `only`, or each line into the split of its source's hash."""
    last, utterances, rows = "", WordLists(), list[int]()
    for entry in _lines(own_file, text.broken) if own_file.kind is None else _records(own_file, text.broken):
        if entry is None:
            utterances, rows = [], []
            continue
        context, replies = entry
        name = split_of(" ".join(context[-1]), own_file.shares) if only is None else only
        split = text.splits[name]
        if name == last and context == utterances[-len(context) :]:
            context_rows = rows[-len(context) :]
        else:
            context_rows = [split.add(turn) for turn in context]
            split.follow(context_rows)
        answers = [split.add(reply) for reply in replies]
        for answer in answers:
            split.link(context_rows[-1], answer)
        last, utterances, rows = name, [*context, replies[0]], [*context_rows, answers[0]]


def _lines(own_file: OwnFile, broken: list[DataError]) -> Iterator[tuple[WordLists, WordLists] | None]:
    """Yield the parsed lines; None for each broken one."""
    if other := looks_like_csv(own_file.path):
        broken.append(other)
        return
    for number, line in enumerate(stream_lines(own_file.path), 1):
        try:
            yield parse_line(line)
        except DataError as error:
            broken.append(located(error, str(own_file.path), number, "mend the line, or leave it out"))
            yield None


def _records(own_file: OwnFile, broken: list[DataError]) -> Iterator[tuple[WordLists, WordLists] | None]:
    """Yield the parsed records; None for each broken one."""
    for exchange in own_file.exchanges(broken):
        if exchange is None:
            yield None
            continue
        try:
            pair = parse_texts(exchange.context, exchange.replies)
        except DataError as error:
            broken.append(located(error, str(own_file.path), exchange.line, "mend the record, or leave it out"))
            yield None
        else:
            yield pair
