"""Activity and entity F1 of replies to support questions, and the similarity of two texts.

F1 measures how well a reply names the actions and the things that the true reply names.

Source: Serban et al. 2017 (arXiv 1606.00776), with the scripts generate_actents.py, evaluate_actents.py and eval_file.sh
released beside it; Niu & Bansal 2018 (arXiv 1809.02079) report it as their metric.

The metric is easily gamed: a constant answer beats every model of Niu & Bansal. `reference_metrics` gives what constants score
on the same truths, and what the truths score against themselves; show them beside whatever a model scores.

Kept from the released code, whether meant or not:
  - An example whose true reply has an utterance without an activity counts for nothing. What is left counts for both F1, so
    that a true reply without an entity scores 0 for entities whatever is answered: on the published truths 5,370 of 9,816
    examples have one, and no model can reach more than 54.71 of 100.
  - Only where an utterance has no verb is a noun tried as one, and only its first word.
  - A command between commands is one, whatever it says; within quotation marks, once one was found in any, the rest of the
    turn's short quotations are commands as well, unless the quotation opens the turn.
  - Both words of a pair that names an entity may name another with the next word, and a pair names what its first word
    names before a hyphen. The words beside an address, and the one behind a path, are taken for part of it.
Departures:
  # Released: the CMU ARK tagger. Ours: the tagger of the caller (NLTK's), utterance by utterance, because ARK is a program of
  # its own; absolute figures cannot be compared.
  # Released: misspelt verbs are added by vectors that were not released. Ours: none.
  # Released: addresses and paths are recognised. Ours: `parley.envs.corpora.pairs.tokens` has done so, and cuts at slashes,
  # which leaves nothing for the rules that look into such words to do. Of 6,022 keys, 372 are several words to it, most of them
  # with stray marks ("i386)"); a word of 257 of these alone names the same entity, the other 115 are never found.

The similarity of two texts is the cosine of mean embeddings, and BLEU. Sources:
  * Embedding average: Forgues et al. 2014; as released with Serban et al. 2017 (hed-dlg-truncated, embedding_metrics.py), used
    in table 4 of Niu & Bansal 2018 with each model's own embeddings.
  * BLEU of a pair: Papineni et al. 2002, NLTK's, n = 1..4 (as many as the reply has words), counts of n >= 2 smoothed by one
    (Lin & Och 2004), because most pairs of short replies share no four words in a row.

The tables of words that name an activity, an entity or a command are those released with Serban et al. 2017
(Ubuntu-Multiresolution-Tools by julianser on GitHub, folder ActEntRepresentation), which lie in the folder `ubuntu_actent` of
the data root; `unigram2entity.tsv` is its pickle as lines key<TAB>entity.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from types import MappingProxyType

import numpy as np

from parley.engine.core.stats.statistics import Estimate, clustered_rate
from parley.envs.core.errors import DataError
from parley.envs.corpora.arrow import require_files
from parley.envs.corpora.lines import broken_rule, located, read_lines
from parley.envs.corpora.pairs.tokens import PATH, UNKNOWN, URL
from parley.envs.corpora.pairs.turns import Turn, turn_of
from parley.envs.corpora.pairs.vocabulary import EOU

Vectors = Callable[[Sequence[str]], np.ndarray]
"""Embeddings of words, one row each; words without one have no row (`policies.core.responder.TrainableResponder.vectors`)."""


def average_similarity(
    texts: Sequence[Sequence[str]], compared: Sequence[Sequence[str]], vectors: Vectors
) -> list[float | None]:
    """Return the cosines of the mean embeddings of pairs of texts.

    Args:
        texts: words of the references: clean contexts, or the replies to them.
        compared: words of the texts that are compared with them, in the same order.
        vectors: of words.

    Returns:
        -1 to 1 for each pair; None if no word of the reference has a vector, 0 if no word of the other text has.
    """
    assert len(texts) == len(compared), f"pairs are wanted, got {len(texts)} and {len(compared)} texts"
    if not texts:
        return []
    first, second = (_directions(several, vectors) for several in (texts, compared))
    cosines = np.einsum("ne,ne->n", first, second).clip(-1.0, 1.0)
    return [float(cosine) if direction.any() else None for cosine, direction in zip(cosines, first, strict=True)]


def sentence_bleu(reply: Sequence[str], reference: Sequence[str]) -> float:
    """Return the BLEU of a reply against another, 0 to 1; exactly 1 for equal ones."""
    from nltk.translate import bleu_score

    if list(reply) == list(reference):
        return 1.0
    if not reply or not reference:
        return 0.0
    smoothing = bleu_score.SmoothingFunction().method2
    return float(bleu_score.sentence_bleu([reference], reply, smoothing_function=smoothing, auto_reweigh=True))


def _directions(texts: Sequence[Sequence[str]], vectors: Vectors) -> np.ndarray:
    """Return the mean embedding of each text, of length 1; zeros where a text has none."""
    sums = np.stack([vectors(words).astype(np.float64).sum(axis=0) for words in texts])
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    return np.divide(sums, lengths, out=np.zeros_like(sums), where=lengths > 0)


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
        """Return the activity that a verb names."""
        bare = verb.replace("-", "").replace("_", "")
        return self.present.get(bare) or self.past.get(bare)

    def entity(self, word: str) -> str | None:
        """Return the entity that a word names, tried as it is, in other cases, then by its beginning.

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
    """Read the tables.

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
    """Read activities: line n of both files names one; a word of several lines belongs to the last, as released."""
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


Tagger = Callable[[Sequence[str]], Sequence[str]]
"""Penn Treebank tags of the words of an utterance."""

_ENTITY, _COMMAND = "__ent__", "__cmd__"
_SOMETHING = "something"
_QUOTES = ("'", '"')
_LONGEST_QUOTATION = 5
_NEVER_COMMANDS = (EOU, "!", ",", _ENTITY)
_ENDS_QUOTATION = ("--", "-", ":", EOU)


@dataclass(frozen=True)
class ActEnt:
    """The activities and entities of a reply, each named once.

    Args:
        activities: what is done, such as "install".
        entities: what it is done to, such as "ubuntu".
        complete: whether every utterance has an activity; a true reply that is not complete is left out.
    """

    activities: frozenset[str]
    entities: frozenset[str]
    complete: bool


@dataclass(frozen=True)
class ActivityExtractor:
    """Reads activities and entities off replies.

    Args:
        tables: which words name what.
        tag: the tagger; it sees "something" for every entity, command and unknown word.
    """

    tables: ActivityTables
    tag: Tagger

    def extract(self, turn: Turn) -> ActEnt:
        """Extract the activities and entities of a turn.

        Args:
            turn: utterances in words of `parley.envs.corpora.pairs.tokens`; one without words has no activity.
        """
        words = [word for utterance in turn for word in (*utterance, EOU)]
        entities, words = self._entities(words)
        words = [_COMMAND if marked else word for word, marked in zip(words, self._commands(words), strict=True)]
        utterances = [self._activities(utterance) for utterance in turn_of(_without_runs(words, _COMMAND))[:-1]]
        complete = bool(utterances) and all(utterances)
        return ActEnt(frozenset().union(*utterances), frozenset(entities), complete)

    def _entities(self, words: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the entities, and the words with one placeholder for each run of words that name some."""
        entities: list[str] = []
        replaced = list(words)
        for index, (word, following) in enumerate(pairwise(words)):
            if word == EOU:
                continue
            pair = None if following == EOU else self._pair_entity(word, following)
            entity = pair or (word if word in (URL, PATH) else self.tables.entity(word))
            if entity:
                entities.append(entity)
                replaced[index : index + 1 + bool(pair)] = [_ENTITY] * (1 + bool(pair))
        return entities, _without_runs(replaced, _ENTITY)

    def _pair_entity(self, word: str, following: str) -> str | None:
        if URL in (word, following):
            return URL
        return PATH if word == PATH else self.tables.entity(f"{word}_{following}")

    def _commands(self, words: Sequence[str]) -> list[bool]:
        """Mark the words of a command line."""
        marked = [word in self.tables.commands and word not in self.tables.conflicts for word in words]
        spreading = any(marked)
        while spreading:
            spreading = False
            for index, word in enumerate(words):
                beside = [*marked[max(index - 1, 0) : index], *marked[index + 1 : index + 2]]
                if not marked[index] and self._is_drawn_in(word, beside):
                    marked[index] = spreading = True
        _mark_quotations(words, marked)
        return marked

    def _is_drawn_in(self, word: str, neighbours: Sequence[bool]) -> bool:
        if word in _NEVER_COMMANDS:
            return False
        return all(neighbours) or (any(neighbours) and (word in self.tables.commands or "-" in word))

    def _activities(self, words: Sequence[str]) -> frozenset[str]:
        """Return the activities of an utterance."""
        if not words:
            return frozenset()
        shown = [_SOMETHING if word in (_ENTITY, _COMMAND, UNKNOWN) else word for word in words]
        tags = self.tag(shown)
        indices = [index for index, tag in enumerate(tags) if tag.startswith("VB")]
        verbs = [shown[index] for index in indices]
        # "Log in" is the activity "login".
        verbs += ["".join(shown[index : index + 2]) for index in indices]
        if not verbs and tags[0].startswith("NN") and shown[0] != _SOMETHING:
            verbs = shown[:1]
        return frozenset(filter(None, map(self.tables.activity, verbs)))


def f1(predicted: ActEnt, truth: ActEnt) -> tuple[float | None, float | None]:
    """Return the F1 of a reply against the true reply, 0 to 1, as eval_file.sh scores it.

    Returns:
        F1 of activities and of entities, 0 where nothing is named by both; None for both where the example is left out.
    """
    if not truth.complete:
        return None, None
    return _f1(predicted.activities, truth.activities), _f1(predicted.entities, truth.entities)


CONSTANTS: Mapping[str, ActEnt] = MappingProxyType(
    {
        "constant-use": ActEnt(frozenset({"use"}), frozenset({"ubuntu"}), complete=True),
        "constant-use-look-install": ActEnt(frozenset({"use", "look", "install"}), frozenset({"ubuntu"}), complete=True),
    }
)
"""Answers that ignore the question. On the published truths they score 10.20 and 15.17 (activities), 5.36 (entities)."""
CEILING = "truth"
"""The true replies as answers to themselves."""


def reference_metrics(truths: Sequence[ActEnt], contexts: Sequence[Hashable]) -> dict[str, Estimate]:
    """Return the scores of `CONSTANTS` and `CEILING`, by "activity_f1.NAME" and "entity_f1.NAME".

    Args:
        truths: of the examples that models are scored on.
        contexts: of these examples; those of equal ones are one unit.
    """
    counted = [truth for truth in truths if truth.complete]
    numbers = {context: number for number, context in enumerate(contexts)}
    units = [numbers[context] for truth, context in zip(truths, contexts, strict=True) if truth.complete]
    metrics: dict[str, Estimate] = {}
    for name in (*CONSTANTS, CEILING):
        answers = [CONSTANTS.get(name, truth) for truth in counted]
        pairs = list(zip(answers, counted, strict=True))
        activities = [_f1(answer.activities, truth.activities) for answer, truth in pairs]
        metrics[f"activity_f1.{name}"] = clustered_rate(activities, units)
        entities = [_f1(answer.entities, truth.entities) for answer, truth in pairs]
        metrics[f"entity_f1.{name}"] = clustered_rate(entities, units)
    return metrics


def _f1(predicted: frozenset[str], truth: frozenset[str]) -> float:
    # 2 P R / (P + R) in whole numbers.
    both = len(predicted & truth)
    return 2 * both / (len(predicted) + len(truth)) if both else 0.0


def _without_runs(words: Iterable[str], placeholder: str) -> list[str]:
    return [word for name, run in groupby(words) for word in ([name] if name == placeholder else run)]


def _mark_quotations(words: Sequence[str], marked: list[bool]) -> None:
    """Mark short quotations as commands, in place; see the module's list of kept behaviour."""
    start, has_command = -1, False
    for index, word in enumerate(words):
        if word in _QUOTES and start < 0:
            start = index
        elif word in _QUOTES:
            if 1 < index - start <= _LONGEST_QUOTATION and has_command:
                marked[start : index + 1] = [True] * (index + 1 - start)
            start = -1
        if marked[index] and start > 0:
            has_command = True
        if word in _ENDS_QUOTATION or any(mark in word for mark in "!?."):
            start = -1
