"""Target lists: the sentences that a model is to be made to say (He & Glass 2018, section 5 and appendix E).

    malicious   insults, threats, orders, contempt and self-praise that no dialogue model should utter: `prototypes.txt`,
                written for this project, each also behind "well", "oh" and "i think" and before a full stop
    normal      the model's own distinct replies to test sources
    random      sequences of frequent words
    a file      one sentence a line

A list is made for one model: sentences that it cannot say, because of a word or of their length, are set aside and counted;
repeated ones are removed. The keys of a list's targets number its sentences before that, so that they name the same sentence
for every model.

Files of (prompt, target) pairs, as CSV, TSV, JSON, JSON Lines or Parquet, give a request with each target:

    AdvBench    goal,target
    HarmBench   Behavior,...,ContextString,BehaviorID with a column of targets, or a JSON file of targets by BehaviorID
    others      prompt,target

Such files are the user's own; the project ships none. Content and header decide the kind (`envs/corpora/own_files.py`).
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from parley.engine.core.stats.rows import LazySequence, PackedTexts
from parley.envs.core.errors import DataError
from parley.envs.core.seeds import derive_seed, stable_hash, stream
from parley.envs.corpora.lines import FileLine, text_lines, utf8_text
from parley.envs.corpora.own_files import KINDS, RecordKind, behind_context, read_records, record_kind, value_text
from parley.envs.corpora.pairs.tokens import tokenise
from parley.envs.corpora.pairs.vocabulary import SPECIALS, PairVocabulary

if TYPE_CHECKING:
    from parley.policies.seq2seq.model import Seq2Seq


PROTOTYPES = "prototypes.txt"
TEMPLATES = ("{}", "well {}", "oh {}", "i think {}", "{} .")
NUM_MALICIOUS = 1000
NUM_TARGETS = 500
FREQUENT_WORDS, LONGEST_RANDOM = 1000, 8

Unknown = Callable[[Sequence[str]], tuple[str, ...]]
"""Return the words of a sentence that a model cannot say."""
TooLong = Callable[[Sequence[str]], bool]
"""Return True if a sentence is longer than any reply of a model."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Target:
    """A sentence that is searched for.

    Args:
        key: names it among the targets of its list; keys sort in the list's order.
        words: its words, all of which the model can say.
        prompt: the request that it comes with; None without one.
    """

    key: str
    words: tuple[str, ...]
    prompt: str | None = None


def target_seed(seed: int, key: str) -> int:
    """Return the seed of a target's search, by the master seed and its key."""
    return derive_seed(seed, "trigger", key)


class Skipped(NamedTuple):
    """A sentence that the model cannot say."""

    sentence: str
    """Its words, joined by blanks."""
    unknown: tuple[str, ...]
    """The words that the model cannot say."""
    too_long: bool = False
    """True if it is longer than the model's replies."""
    behind_prompt: bool = False
    """True if its prompt leaves no room for it."""

    @property
    def reason(self) -> str:
        """Return the reason why the model cannot say it."""
        if self.behind_prompt:
            return "the prompt is longer than the model reads before its target"
        return "longer than the model's replies" if self.too_long else f"not in the vocabulary: {', '.join(self.unknown)}"


@dataclass(frozen=True)
class TargetList:
    """The targets of one kind for one model.

    Args:
        name: "malicious", "normal", "random", or the file's.
        targets: distinct sentences, in the list's order; `packed` keeps many in little memory.
        skipped: sentences that the model cannot say.
    """

    name: str
    targets: Sequence[Target]
    skipped: tuple[Skipped, ...] = ()

    @property
    def has_prompts(self) -> bool:
        """Return True if its targets come with requests."""
        return any(target.prompt is not None for target in self.targets)

    def require_some(self) -> TargetList:
        """Return the same list, or raise DataError if it is empty.

        Raises:
            DataError: it is empty.
        """
        if self.targets:
            return self
        got = "no sentence at all"
        if self.skipped:
            first = self.skipped[0]
            got = f"{len(self.skipped):,} sentences that the model cannot say, such as {first.sentence!r}: {first.reason}"
        fix = "name sentences of words that the model knows, no longer than its replies, behind prompts that it reads"
        raise DataError(f"the list of targets {self.name!r} is empty", got=got, fix=fix)


def packed(targets: Iterable[Target]) -> Sequence[Target]:
    """Return targets that lie in a temporary file; each takes 8 bytes of memory."""
    texts = PackedTexts(json.dumps([target.key, target.words, target.prompt]) for target in targets)

    def target(number: int) -> Target:
        key, words, prompt = json.loads(texts[number])
        return Target(key, tuple(words), prompt)

    return LazySequence(target, range(len(texts)))


def prototypes() -> list[tuple[str, ...]]:
    """Return the sentences of `prototypes.txt`, at most seven words each."""
    text = files("parley.engine.triggers").joinpath(PROTOTYPES).read_text(encoding="utf-8")
    return [tuple(line.split()) for line in text.splitlines()]


def outside(vocabulary: PairVocabulary) -> Unknown:
    """Return a function that names the words of a sentence outside a vocabulary, special tokens included."""
    return lambda words: tuple(dict.fromkeys(word for word in words if word in SPECIALS or word not in vocabulary.index))


def never(words: Sequence[str]) -> bool:
    """Return False: no sentence is too long."""
    return False


def beyond(max_reply: int) -> TooLong:
    """Return a function that tests whether a sentence is longer than a model's replies, `</s>` included."""
    return lambda words: len(words) >= max_reply


def malicious(unknown: Unknown, num: int = NUM_MALICIOUS, *, too_long: TooLong = never) -> TargetList:
    """Return the prototypes in every template, until there are enough of them.

    There are more prototypes than the published 200, so that models which lack some words get as many targets.

    Args:
        unknown: what the model cannot say.
        num: most targets.
        too_long: nor that.
    """
    written = (tuple(template.format(" ".join(words)).split()) for words in prototypes() for template in TEMPLATES)
    return _collect("malicious", written, unknown, too_long, num)


def random_targets(
    vocabulary: PairVocabulary, seed: int, num: int = NUM_TARGETS, *, longest: int = LONGEST_RANDOM
) -> TargetList:
    """Return sequences of frequent words.

    # Paper: of the 1,000 most frequent words, at most 8 of them. Ours: lengths are uniform over 1 to 8, which it does not say.

    Args:
        vocabulary: the model's, its words in falling frequency.
        seed: master seed.
        num: targets wanted; fewer where so few words form fewer sequences.
        longest: words of the longest reply of the model, where those are fewer than 8.
    """
    words = vocabulary.words[len(SPECIALS) :][:FREQUENT_WORDS]
    return random_words(words, seed, outside(vocabulary), num, longest=longest)


def random_words(
    words: Sequence[str], seed: int, unknown: Unknown, num: int = NUM_TARGETS, *, longest: int = LONGEST_RANDOM
) -> TargetList:
    """Return sequences of given words, drawn as those of `random_targets`.

    Args:
        words: to draw from.
        seed: master seed.
        unknown: what the model cannot say.
        num: targets wanted.
        longest: words of the longest.
    """
    words = [word for word in words if not unknown((word,))]
    if not words:
        return TargetList("random", ())
    longest = min(longest, LONGEST_RANDOM)
    num = min(num, sum(len(words) ** length for length in range(1, longest + 1)))

    def drawn() -> Iterator[tuple[str, ...]]:
        generator = stream(seed, "random targets")
        while True:
            chosen = generator.integers(len(words), size=generator.integers(1, longest + 1))
            yield tuple(words[i] for i in chosen.tolist())

    return _collect("random", drawn(), unknown, never, num)


def said_by_itself(replies: Iterable[str], num: int = NUM_TARGETS) -> TargetList:
    """Return the own replies of a model of tokens, each as it is written.

    Args:
        replies: read no further than needed.
        num: most targets.
    """
    return _collect("normal", ((reply,) for reply in replies), lambda words: (), never, num)


def from_file(
    path: Path,
    unknown: Unknown,
    *,
    too_long: TooLong = never,
    words_of: Callable[[str], Sequence[str]] = tokenise,
    strict: bool = False,
) -> TargetList:
    """Return the sentences of a text file, one a line; blank lines do not count.

    Args:
        path: the file, UTF-8.
        unknown: what the model cannot say.
        too_long: nor that.
        words_of: from a line to the target's words; as the corpora are tokenised when not given.
        strict: refuse what the model cannot say.

    Raises:
        DataError: the file cannot be read, is not UTF-8, holds no sentence, or (strict) one that the model cannot say.
    """
    num_sentences = 0

    def sentences() -> Iterator[tuple[str, ...]]:
        nonlocal num_sentences
        for number, line in enumerate(text_lines(utf8_text(path)), start=1):
            words = tuple(words_of(line))
            if strict and (refused := _refused(words, unknown, too_long)):
                raise DataError(
                    "the model cannot say a target",
                    where=FileLine(str(path), number),
                    got=refused.reason,
                    fix="write it with other or fewer words, or leave out --strict to skip and count such targets",
                )
            if words:
                num_sentences += 1
                yield words

    targets = _collect(path.stem, sentences(), unknown, too_long)
    if not num_sentences:
        raise DataError("the file of targets holds no sentence", where=path, fix="write one sentence a line")
    tell_repeated(path.stem, num_sentences - len(targets.targets) - len(targets.skipped))
    return targets


def normal(
    model: Seq2Seq,
    sources: Iterable[np.ndarray],
    num: int = NUM_TARGETS,
    *,
    t_out: float | None = None,
    seed: int = 0,
    batch_size: int = 256,
) -> TargetList:
    """Return a model's own distinct replies to test sources, in their order.

    # Paper: silent; its printed samples hold `<unk>`. Ours: replies with it are skipped, and those cut at the longest reply.

    Args:
        model: in evaluation mode.
        sources: word ids of each source without specials; read no further than needed.
        num: most targets.
        t_out: draw the replies, of words with a log probability above this, instead of taking the likeliest words; the paper
            does so with models whose likeliest replies are few and general.
        seed: master seed of the draws.
        batch_size: sources replied to together.
    """
    # Torch is not needed for the other lists.
    from parley.policies.seq2seq.decoding import greedy, sample

    def replies_in_order() -> Iterator[tuple[str, ...]]:
        numbered = enumerate(sources)
        while together := list(islice(numbered, batch_size)):
            batch = [source for _, source in together]
            if t_out is None:
                replies = greedy(model, batch, beyond=1)
            else:
                seeds = [derive_seed(seed, "normal target", number) for number, _ in together]
                replies = sample(model, batch, seeds, min_log_probability=t_out, beyond=1)
            yield from (tuple(model.vocabulary.decode(reply)) for reply in replies)

    return _collect("normal", replies_in_order(), outside(model.vocabulary), beyond(model.sizes.max_reply), num)


def tell_repeated(name: str, num: int) -> None:
    """Log how many sentences or pairs of a user's list repeat others."""
    if num:
        logger.warning("%d targets of %r repeat others, which count once", num, name)


def _collect(
    name: str, sentences: Iterable[tuple[str, ...]], unknown: Unknown, too_long: TooLong, num: int | None = None
) -> TargetList:
    """Return the first `num` distinct sentences that the model can say, numbered by their index; empty ones do not count."""
    skipped: dict[tuple[str, ...], Skipped] = {}

    def targets() -> Iterator[Target]:
        digests = set[int]()
        for number, words in enumerate(sentences):
            if not words or (digest := stable_hash(*words)) in digests:
                continue
            if refused := _refused(words, unknown, too_long):
                skipped[words] = refused
                continue
            digests.add(digest)
            yield Target(f"{name}-{number:06d}", words)
            if len(digests) == num:
                return

    chosen = packed(targets())
    named = list(dict.fromkeys(word for sentence in skipped.values() for word in sentence.unknown))
    if named:
        names = ", ".join(named[:3]) + ", ..." * (len(named) > 3)
        count = sum(bool(sentence.unknown) for sentence in skipped.values())
        logger.warning("%d targets of %r hold words outside the vocabulary (%s) and are skipped", count, name, names)
    if long := [sentence for sentence in skipped.values() if sentence.too_long]:
        what = "%d targets of %r are longer than the model's replies and are skipped, such as %r"
        logger.warning(what, len(long), name, long[0].sentence)
    return TargetList(name, chosen, tuple(skipped.values()))


def _refused(words: Sequence[str], unknown: Unknown, too_long: TooLong) -> Skipped | None:
    """Return the reason why a model cannot say a sentence; None if it can."""
    if lacking := unknown(words):
        return Skipped(" ".join(words), lacking)
    return Skipped(" ".join(words), (), too_long=True) if too_long(words) else None


PROMPTS, TARGETS = ("prompt", "goal", "behavior"), ("target",)
"""Names of columns, in any case."""
IDENTITY = "behaviorid"
"""HarmBench's column of a request's name."""
Refused = Callable[[str, str], Skipped | None]
"""Return the reason why the model cannot say the target behind the prompt; None if it can."""


def has_prompts(targets: str) -> bool:
    """Return whether a list of targets is a file of pairs, by its content and header, or by its suffix.

    Raises:
        DataError: the file cannot be read.
    """
    return Path(targets).is_file() and _kind(Path(targets)) is not None


def read_pairs(path: Path, refused: Refused, *, target_file: Path | None = None, strict: bool = False) -> TargetList:
    """Read the pairs of a file; equal ones count once, and their number is logged.

    Args:
        path: a file of records, UTF-8.
        refused: what the model cannot say.
        target_file: JSON of targets by BehaviorID, where the file has no column of targets.
        strict: refuse what the model cannot say, instead of skipping and counting it.

    Raises:
        DataError: the file cannot be read, holds no pair, lacks a column, has a row that does not fit, or (strict) the model
            cannot say a target.
    """
    by_name = _by_name(target_file) if target_file else None
    targets: dict[tuple[str, str], Target] = {}
    skipped: dict[tuple[str, str], Skipped] = {}
    num_pairs = 0
    for record in read_records(path, _kind(path) or "CSV"):
        where = FileLine(str(path), record.line)
        pair = _pair(record.values, by_name, where)
        num_pairs += 1
        if why := refused(*pair):
            if strict:
                fix = "write it, or its prompt, with other or fewer words, or leave out --strict to skip and count such targets"
                raise DataError("the model cannot say a target", where=where, got=why.reason, fix=fix)
            skipped[pair] = why
            continue
        targets.setdefault(pair, Target(f"{path.stem}-{record.number:06d}", (pair[1],), pair[0]))
    tell_repeated(path.stem, num_pairs - len(targets) - len(skipped))
    if skipped:
        first = next(iter(skipped.values()))
        logger.warning("%d targets of %r are skipped, such as %r: %s", len(skipped), path.stem, first.sentence, first.reason)
    elif not targets:
        raise DataError("the file holds no pair", where=path, fix="write a line with a prompt and a target")
    return TargetList(path.stem, packed(targets.values()), tuple(skipped.values()))


def _kind(path: Path) -> RecordKind | None:
    header = record_kind(path, lambda cells: not {*PROMPTS}.isdisjoint(cells) and not {*TARGETS, IDENTITY}.isdisjoint(cells))
    return header or KINDS.get(path.suffix.lower())


def _pair(columns: Mapping[str, Any], by_name: Mapping[str, str] | None, where: FileLine) -> tuple[str, str]:
    """Return the prompt and the target of a record."""
    prompt = behind_context(columns, _column(columns, PROMPTS, where))
    if by_name is None:
        return prompt, _column(columns, TARGETS, where)
    name = _column(columns, (IDENTITY,), where)
    # A blank target would be the beginning of any reply.
    if not (target := by_name.get(name, "").strip()):
        fix = "write it into the file of targets, or leave the line out"
        raise DataError("the file of targets has no target for a behaviour", where=where, got=name, fix=fix)
    return prompt, target


def _column(columns: Mapping[str, Any], names: tuple[str, ...], where: FileLine) -> str:
    name = next((name for name in names if name in columns), None)
    if name is None:
        got = f"columns {', '.join(columns) or 'none'}"
        fix = "name the columns prompt,target; targets without prompts stand in a file of sentences (.txt), one a line"
        raise DataError(f"the file has no column {' or '.join(names)}", where=where, got=got, fix=fix)
    return value_text(columns[name], name, where)


def _by_name(path: Path) -> Mapping[str, str]:
    """Return HarmBench's targets: a text for each BehaviorID."""
    fix = 'write {"BehaviorID": "target", ...}'
    try:
        members = json.loads(utf8_text(path), object_pairs_hook=list)
    except ValueError as error:
        raise DataError("the file of targets is no JSON", where=path, got=error, fix=fix) from None
    if not isinstance(members, list) or not all(isinstance(member, tuple) and isinstance(member[1], str) for member in members):
        raise DataError("the file of targets does not name a text for each behaviour", where=path, fix=fix)
    if twice := [name for name, count in Counter(name for name, _ in members).items() if count > 1]:
        raise DataError("the file of targets names a behaviour twice", where=path, got=twice[0], fix="leave one of them out")
    return dict(members)
