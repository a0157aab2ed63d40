"""Dialogue as turns: what perturbations change and response models read.

An utterance is a tuple of words, a turn the utterances that one person says in a row, and a dialogue's context its last turns,
the oldest first. As a line of text, utterances of a turn are separated by `<eou>` and turns by `<eot>`; the published forms
`__eou__` and `__eot__`, which end utterances and turns there, are read as well.

Tokens written as people write them: the way back from `tokens.py`.

    do n't you see ( here ) , " it works " ?     don't you see (here), "it works"?

A contraction's second half stands at its word, a closing mark at the word before it, an opening one at the word behind it;
quotation marks open and close in turn. Where that would read as other tokens the blank stays. What a text's own blanks and
capitals were the tokens do not say: who has the text keeps them (`engine/perturb/strategies/texts.py`).

Reader of the conversations in the Ubuntu IRC logs with reply links (`envs/corpora/pairs/recorded.py` has the format).

Source: Kummerfeld et al. 2019, "A Large-Scale Corpus for Conversation Disentanglement": a conversation is what reply links
connect. Here an utterance of the corpus is a turn, as `envs/corpora/pairs/turns.py` writes it: neighbouring messages of one
nick, with `<eou>` between them; pairs are neighbouring turns, so that a reply's context is found by following them back
(`envs/corpora/pairs/contexts.py`).

- Lines are connected by links in any direction, system lines and bots among them; these are then left out, and so is what has
  no word once a leading "nick:" or "nick," of a nick of the file is taken off.
- A conversation has at least three turns, and so two speakers. Of train, val and test:
      conversations                                3,628     151     251
      replies with one turn of context or more    32,898   1,311   2,490
      replies with two turns or more              29,270   1,160   2,239
  (One conversation and eleven replies of train more, if messages without a word stayed.)
- Lines that nobody annotated are in no conversation.

Reader of your own pairs: files of lines "source<TAB>reply", or of records with columns, named by their path.

    source <TAB> reply                        one turn before the reply
    turn <TAB> ... <TAB> source <TAB> reply   several, the oldest first; `<eot>` between turns does as well
    source <TAB> reply ||| reply              several replies, each a pair with the same source

CSV, TSV, JSON, JSON Lines and Parquet are read by their columns (`envs/corpora/own_files.py`); a context may be a list of turns
there, and a reply a list of replies. `path/file` is one file, of which each line belongs to the split that the hash of its
source names, 90 : 5 : 5 or as its name says, so that no source is in two of them. `path/folder` holds a file each for `train`,
`val` and `test`. A context that repeats the end of the line before, its reply included, is made of the same utterances, as in
a dialogue that was cut into pairs. `parley reply` writes such files.
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
from parley.envs.corpora.lines import SPLITS, broken_rule, located, read_lines, require_utf8
from parley.envs.corpora.own_files import EVEN_SHARES, OwnFile, looks_like_csv, split_files
from parley.envs.corpora.pairs import vocabulary
from parley.envs.corpora.pairs.recorded import FOLDERS, LOG, read_links, read_messages, without_address
from parley.envs.corpora.pairs.tokens import FilePairs, PairText, normalised, origins, split_of, tokenise, tokenise_where
from parley.envs.corpora.pairs.vocabulary import EOU

CLITICS = frozenset({"n't", "'s", "'m", "'d", "'re", "'ve", "'ll"})
"""Second halves of contractions."""
CLOSING = frozenset({".", ",", ";", ":", "?", "!", "...", ")", "]", "}", "%"})
"""Marks at the end of what they belong to."""
OPENING = frozenset({"(", "[", "{", "#"})
"""Marks at its beginning."""
QUOTES = frozenset({'"', "`"})
"""Marks that open and close."""
_NUM_TEXTS = 1 << 16


def detokenise(tokens: Sequence[str]) -> str:
    """Return a text of tokens."""
    return "".join(piece for pair in written(tokens) for piece in pair).lstrip(" ")


def written(tokens: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What stands before each token, a blank or nothing, and what the token is written as."""
    is_open: dict[str, bool] = {}
    run: list[str] = []
    holds = False
    for place, token in enumerate(tokens):
        glued = holds or token in CLOSING or token in CLITICS
        holds = token in OPENING
        if token in QUOTES:
            is_open[token] = not is_open.get(token, False)
            holds, glued = is_open[token], glued or not is_open[token]
        token = first_half(token, tokens[place + 1] if place + 1 < len(tokens) else "")
        run = [*run, token] if place and glued and reads("".join(run) + token) == [*run, token] else [token]
        yield " " if place and len(run) == 1 else "", token


def first_half(token: str, following: str) -> str:
    """What a token is written as before another one: "can" loses a letter in "can't"."""
    return "ca" if (token, following) == ("can", "n't") else token


@lru_cache(_NUM_TEXTS)
def reads(text: str) -> list[str]:
    """Return the tokens that a text of no blank is read as; not to be changed by whoever gets them."""
    return tokenise(text)


EOT = vocabulary.EOT
"""Separates turns, see there."""

Utterance = tuple[str, ...]
Turn = tuple[Utterance, ...]
Turns = tuple[Turn, ...]

_UTTERANCE_END = re.compile(r"<eou>|__eou__")
_TURN_END = re.compile(r"<eot>|__eot__")


@dataclass(frozen=True)
class Example:
    """One thing said in a recorded dialogue, and what came before it.

    Args:
        key: unique in its corpus, such as "test-000123"; sorts in the order of the corpus.
        context: the turns before, oldest first; at least one.
        reply: the turn that followed.
        after: the turn that followed the reply, the first of several; None where the corpus has none.
    """

    key: str
    context: Turns
    reply: Turn
    after: Turn | None = field(default=None, compare=False)


def parse_turns(line: str) -> Turns:
    """Read a line of text.

    Args:
        line: turns and utterances with their marks; marks at the very end of a turn or of the line end what is before them.

    Returns:
        The turns; an utterance or a turn without a word stays, as an empty one, so that boundaries keep their places.
    """
    # Marks are found in what tokens are made of, so that no token is one.
    turns = [_UTTERANCE_END.split(turn) for turn in _without_end(_TURN_END.split(normalised(line)))]
    return tuple(tuple(tuple(tokenise(utterance)) for utterance in _without_end(turn)) for turn in turns)


def tokens_where(line: str) -> list[tuple[str, int, int]] | None:
    """Return the words of a line of text, and where in it each begins and ends; marks are between them. None: it holds no mark."""
    read = normalised(line)
    if not (_TURN_END.search(read) or _UTTERANCE_END.search(read)):
        return None
    found, where = [], origins(line)
    for turn in _between(_TURN_END, read, 0, len(read)):
        for start, end in _between(_UTTERANCE_END, read, *turn):
            first = where[start]
            found += [(token, first + i, first + j) for token, i, j in tokenise_where(line[first : where[end]])]
    return found


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
    """Return the line of text that `parse_turns` reads back, words joined by blanks."""
    return " ".join(context_words(turns))


def _between(mark: re.Pattern[str], text: str, start: int, end: int) -> list[tuple[int, int]]:
    """What stretches of a part of a text marks leave."""
    marks = list(mark.finditer(text, start, end))
    return list(zip([start, *(each.end() for each in marks)], [*(each.start() for each in marks), end], strict=True))


def _without_end(pieces: list[str]) -> list[str]:
    """Published lines end every piece with its mark, so that nothing stands behind the last one."""
    return pieces[:-1] if len(pieces) > 1 and not pieces[-1].strip() else pieces


MIN_TURNS = 3
"""Of a conversation; its neighbouring turns are of different speakers."""


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
    """Return the lines that links connect.

    Args:
        links: pairs of lines; one with itself is a line of its own.

    Returns:
        The lines of each component in order, components in the order of their first lines.
    """
    parents: dict[int, int] = {}

    def root(line: int) -> int:
        while (parent := parents.setdefault(line, line)) != line:
            parents[line] = parents[parent]
            line = parent
        return line

    for first, second in links:
        one, other = sorted((root(first), root(second)))
        parents[other] = one
    found: dict[int, list[int]] = {}
    for line in sorted(parents):
        found.setdefault(root(line), []).append(line)
    return list(found.values())


def _conversations(log: Path, broken: list[DataError]) -> Iterator[list[Turn]]:
    messages = read_messages(log, broken)
    nicks = {message.nick for message in messages if message is not None}
    for lines in components(read_links(log, len(messages), broken)):
        spoken = [message for line in lines if (message := messages[line])]
        said = [(message.nick, tuple(tokenise(without_address(message.text, nicks)))) for message in spoken]
        turns = [tuple(words for _, words in group) for _, group in groupby(filter(itemgetter(1), said), key=itemgetter(0))]
        if len(turns) >= MIN_TURNS:
            yield turns


SUFFIX = ".tsv"
VOCABULARY = 30_000
BETWEEN_REPLIES = "|||"
MAX_WORDS = 10_000
"""Words of a side; a line with more of them is not one utterance."""


Said = list[list[str]]
"""Utterances as words."""


class TabbedPairs(FilePairs):
    """A corpus of lines or records as above."""

    READER_VERSION: ClassVar[int] = FilePairs.READER_VERSION + 2


def tabbed_pairs(file: Path | OwnFile) -> TabbedPairs:
    """Return the corpus of a file or a folder of files.

    Args:
        file: a file, or a folder; what is not there is a file where its name has a suffix.

    Raises:
        ConfigError: two files of the folder are for one split.
        DataError: the file cannot be read, or it is not known which columns hold what.
    """
    own = file if isinstance(file, OwnFile) else OwnFile(file)
    path = own.path
    is_file = path.is_file() or (bool(path.suffix) and not path.is_dir())
    files = {} if is_file else {split: path / f"{split}{SUFFIX}" for split in SPLITS} | split_files(path)
    names = [path.name] if is_file else [file.name for file in files.values()]
    there = [own.of(file) for file in (files.values() or [path]) if file.is_file()]
    told = next((f", {file.told}" for file in there if file.kind), "")
    if is_file and own.shares != EVEN_SHARES:
        told += f", {':'.join(map(str, own.shares))} to train, val and test"
    return TabbedPairs(
        name=path.stem if is_file else path.resolve().name,
        summary=f"pairs of your own{told}",
        licence="your own",
        obtain="",
        vocabulary=VOCABULARY,
        wanted=tuple((glob.escape(name),) for name in names),
        reader=partial(_read_one, own=own) if is_file else partial(_read_three, own=own, files=files),
        place=path.parent if is_file else path,
        tools=own.key,
    )


def parse_line(line: str) -> tuple[list[list[str]], list[list[str]]]:
    """Read one line.

    Returns:
        The words of each turn of the context, oldest first, and of each reply; `<eou>` stands between utterances of a turn.

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
    """Read the texts of a record as `parse_line` reads those of a line.

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


def _read_one(folder: Path, own: OwnFile) -> PairText:
    text = PairText()
    _read(own, text, None)
    return text


def _read_three(folder: Path, own: OwnFile, files: dict[str, Path]) -> PairText:
    text = PairText()
    for split, path in files.items():
        _read(own.of(path), text, split)
    return text


def _read(own: OwnFile, text: PairText, only: str | None) -> None:
    """Read a file into one split, or each line into that of its source's hash."""
    last, utterances, rows = "", Said(), list[int]()
    for entry in _lines(own, text.broken) if own.kind is None else _records(own, text.broken):
        if entry is None:
            utterances, rows = [], []
            continue
        context, replies = entry
        name = split_of(" ".join(context[-1]), own.shares) if only is None else only
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


def _lines(own: OwnFile, broken: list[DataError]) -> Iterator[tuple[Said, Said] | None]:
    """Read lines in turn; None comes in the place of a broken one."""
    if other := looks_like_csv(own.path):
        broken.append(other)
        return
    for number, line in enumerate(read_lines(own.path), 1):
        try:
            yield parse_line(line)
        except DataError as error:
            broken.append(located(error, str(own.path), number, "mend the line, or leave it out"))
            yield None


def _records(own: OwnFile, broken: list[DataError]) -> Iterator[tuple[Said, Said] | None]:
    """Read records in turn; None comes in the place of a broken one."""
    for exchange in own.exchanges(broken):
        if exchange is None:
            yield None
            continue
        try:
            pair = parse_texts(exchange.context, exchange.replies)
        except DataError as error:
            broken.append(located(error, str(own.path), exchange.line, "mend the record, or leave it out"))
            yield None
        else:
            yield pair
