"""`parley play ranking`: a person edits candidate replies at the terminal, and sees how rankers respond.

Screens go to standard error; moves are read from standard input, also from a pipe. With --json each move that changes or shows
something prints one object on standard output.

Each change makes a new snapshot. Older snapshots are kept for undo. A change that a ranker cannot score is refused.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from rich.console import Console
from rich.text import Text
from tyro import conf

from parley.engine.core.cli.flags import gathered, parse
from parley.engine.core.cli.main import Verb
from parley.engine.core.cli.screen import StandardTerminal, Terminal, make_console, show_error, show_lines, show_table, watching
from parley.engine.core.verbs.checkpoints import require_device, threads
from parley.engine.core.verbs.job import command_line
from parley.engine.perturb.lexicon.built_in import ANNOUNCEMENT
from parley.engine.perturb.replies.catalogue import build_rules, rule_names
from parley.engine.perturb.replies.shapes import Attacked, Rule, RuleResources
from parley.engine.perturb.strategies.texts import ChangeKind, aligned, bracketed, spans
from parley.engine.ranking.attacks.cases import AttackOutcome
from parley.engine.ranking.attacks.catalogue import attack_names, compose_attack
from parley.engine.ranking.attacks.settings import AttackDetails, AttackSettings
from parley.engine.ranking.metrics.erasure import erased
from parley.engine.ranking.metrics.searched import expected_ranks
from parley.engine.ranking.verbs.attack_worker import judges_of
from parley.engine.ranking.verbs.config import (
    DEFAULT_CORPUS,
    Contexts,
    PlayRankingConfig,
    RankersConfig,
    RankingConfig,
    group_seed,
    lexicon_setting,
    loaded,
    opened,
    ranked_split,
    ranker_specs,
    rule_resources,
    rule_seed,
)
from parley.envs.core.config import Configuration, NonNegativeInt, NumItems, PositiveInt, assign, overlay, shared
from parley.envs.core.errors import ConfigError, ParleyError, RankerError
from parley.envs.core.registry import nearest
from parley.envs.core.seeds import stream
from parley.envs.core.storage.copies import fetched_file
from parley.envs.corpora.pairs.tokens import cut, tokenise
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import CandidateGroup
from parley.policies.ranking.ranker import Ranker, Unread, compared_outcomes, scores_of, unread_of


@dataclass(frozen=True, eq=False)
class RankingSnapshot:
    """A context with its candidates and their scores.

    Args:
        group: context and candidates.
        scores: of the candidates, by ranker (C,).
        unread: the parts that a ranker leaves out, by ranker; rankers that read all are missing.
    """

    group: CandidateGroup
    scores: Mapping[str, np.ndarray]
    unread: Mapping[str, Unread]

    def ranks(self, ranker: str) -> np.ndarray:
        """Return the ranks from 1, ties shared (C,)."""
        return expected_ranks(self.scores[ranker].tolist())


class RankingSession:
    """Contexts of a corpus one by one, whose candidates are edited.

    Args:
        config: rankers, corpus, lexicon and seed.
        settings: of searches; the goal is that of the reply that is attacked.
        key: of the first context; the seed's choice when empty.
        device: torch device of rankers.

    Raises:
        ConfigError: no ranker, corpus or method is called so, or no context has the key.
        CheckpointError: a ranker's checkpoint is damaged or of another kind.
        DataError: the corpus cannot be read, or has no context to rank replies to.
        RankerError: a ranker gives no scores.
    """

    def __init__(self, config: RankersConfig, settings: AttackSettings, key: str = "", device: str = "cpu") -> None:
        self._config, self._settings = config, settings
        attack_names(settings.method)
        self._corpus = opened(config)
        self._split = ranked_split(config, self._corpus)
        contexts = Contexts(self._corpus.splits["train"])
        self.rankers: Mapping[str, Ranker] = loaded(ranker_specs(config.model_names), contexts, config.chat.on(device))
        order = stream(config.seed, "played", self._corpus.name).permutation(len(self._split)).tolist()
        self._rows = [self._row(key), *order] if key else order
        self._turn = 0
        self._snapshots = [self._scored(self._split[self._rows[0]])]
        self._rule: Callable[[str], Rule] = cache(lambda name: build_rules([name], self._resources)[0])

    @property
    def now(self) -> RankingSnapshot:
        """The current snapshot."""
        return self._snapshots[-1]

    @property
    def start(self) -> RankingSnapshot:
        """The context as the corpus has it."""
        return self._snapshots[0]

    @property
    def lexicon(self) -> str:
        """The lexicon that rules and searches read."""
        return self._config.lexicon_name

    def next(self) -> None:
        """Go on to another context; after the last one to the first."""
        turn = (self._turn + 1) % len(self._rows)
        self._snapshots = [self._scored(self._split[self._rows[turn]])]
        self._turn = turn

    def undo(self) -> None:
        """Undo the last change.

        Raises:
            ConfigError: there is none.
        """
        if len(self._snapshots) == 1:
            raise ConfigError("nothing is changed, so there is nothing to take back")
        self._snapshots.pop()

    def index_of(self, number: str) -> int:
        """Return the index of a reply from its number as typed.

        Raises:
            ConfigError: no reply has it.
        """
        return _index(number, len(self.now.group.candidates), "reply")

    def edit(self, index: int, text: str) -> None:
        """Replace the words of a reply.

        Raises:
            ConfigError: the text has no word, or is Chinese without blanks and jieba is not installed.
            RankerError: a ranker gives no scores.
        """
        self._replace(index, self._words(text, f"{index + 1} i am sorry can you repeat"))

    def edit_turn(self, number: str, text: str) -> None:
        """Replace the words of a turn of the context; raise as `edit` does, and for an unknown number."""
        context = self.now.group.context
        index = _index(number, len(context), "turn")
        words = self._words(text, f"turn {index + 1} how do i print this ?")
        self._stand(replace(self.now.group, context=(*context[:index], words, *context[index + 1 :])))

    def apply(self, name: str) -> Attacked:
        """Apply a fixed rule to the current candidates; change nothing if the rule does not.

        Raises:
            ConfigError: not one rule is called so, or it does not suit the language.
            DataError: its resource is missing.
            RankerError: a ranker gives no scores.
        """
        names = rule_names(name) if name else ()
        if len(names) != 1:
            what = "one rule at a time" if names else "no rule is named"
            raise ConfigError(what, got=name or None, fix="type one, such as: rule iiw; parley list names the rules")
        group = self.now.group
        with lexicon_setting():
            rule = self._rule(names[0])
            (attacked,) = rule.apply([group], [rule_seed(self._config.seed, rule.name, group.key)])
        if any(attacked.changed):
            self._stand(attacked.group)
        return attacked

    def attack(self, index: int) -> AttackOutcome:
        """Attack a reply at the first ranker: promote a wrong one, demote a right one.

        Returns:
            The result; the best draft, if any, becomes the current reply.

        Raises:
            ConfigError: the method asks for slopes, and the ranker gives none.
            DataError: the lexicon's data are not there.
            RankerError: a ranker gives no scores.
        """
        group, ranker = self.now.group, next(iter(self.rankers.values()))
        alone = replace(group, attackable=tuple(other == index for other in range(len(group.candidates))))
        settings = replace(self._settings, goal="demote" if group.labels[index] else "promote")
        with lexicon_setting():
            search = compose_attack(ranker, self._resources.language, settings, **self._judges)
            (outcome,) = search.run([alone], [group_seed(self._config.seed, group.key)])
        if outcome.status == "error":
            raise RankerError(outcome.reason)
        if outcome.cost:
            self._replace(index, outcome.words)
        return outcome

    def drops(self, snapshot: RankingSnapshot, index: int) -> dict[str, np.ndarray]:
        """Return the loss of score, or log-odds of probabilities, when each word is left out, by ranker (T,).

        Raises:
            RankerError: a ranker gives no scores.
        """
        pairs = [(snapshot.group.context, erased(snapshot.group.candidates[index]))]
        drops_by_ranker = {}
        for label, ranker in self.rankers.items():
            (scores,) = compared_outcomes(ranker, pairs)
            if isinstance(scores, RankerError):
                raise scores
            drops_by_ranker[label] = scores[0] - scores[1:]
        return drops_by_ranker

    @cached_property
    def _resources(self) -> RuleResources:
        return rule_resources(self._config, self._corpus)

    @cached_property
    def _judges(self) -> dict[str, Any]:
        return judges_of(self._settings, self._corpus.splits["train"], self._config.seed, known_words=True)

    def _row(self, key: str) -> int:
        keys = [self._split.key(row) for row in range(len(self._split))]
        if key not in keys:
            what = f"no context of the {self._split.name} split has the key {key!r}{nearest(key, keys)}"
            raise ConfigError(what, where="--key", fix=f"such as {keys[0]}; a context is drawn where none is named")
        return keys.index(key)

    def _words(self, text: str, example: str) -> Utterance:
        words = tuple((cut if self._corpus.language == "zh" else tokenise)(text))
        if not words:
            raise ConfigError("there is no word behind the number", fix=f"type words, such as: {example}")
        return words

    def _replace(self, index: int, words: Sequence[str]) -> None:
        candidates = self.now.group.candidates
        self._stand(replace(self.now.group, candidates=(*candidates[:index], tuple(words), *candidates[index + 1 :])))

    def _stand(self, group: CandidateGroup) -> None:
        self._snapshots.append(self._scored(group))

    def _scored(self, group: CandidateGroup) -> RankingSnapshot:
        pair = (group.context, group.candidates)
        scores = {label: scores_of(ranker, [pair])[0] for label, ranker in self.rankers.items()}
        unread = {label: unread_of(ranker, *pair) for label, ranker in self.rankers.items()}
        return RankingSnapshot(group, scores, {label: left_out for label, left_out in unread.items() if any(left_out)})


def _index(number: str, size: int, what: str) -> int:
    if number.isdecimal() and 1 <= int(number) <= size:
        return int(number) - 1
    wrong = f"no {what} has the number {number}" if number else f"the number of a {what} is missing"
    raise ConfigError(wrong, fix=f"type a number from 1 to {size}")


HELP = """Type a move:
  3 WORDS        reply 3 says these words
  turn 1 WORDS   turn 1 of the context says these words
  attack 3       search for a few edits that lift a wrong reply, or push a right one down
  rule iiw       what a fixed rule makes of the replies (parley list names the rules)
  words 3        how much each word of reply 3 matters
  undo  next     take the last change back; another context
  show  help     the context and its replies again; this list
  quit           leave"""
_FIGURES = ("rank", "score")
_BAR = 20
"""Columns of the longest bar."""
_MOST_WORDS = 12
"""Words of a reply whose importance is shown."""


@dataclass(frozen=True, kw_only=True)
class PlayRankingArguments(Configuration):
    """The rankers, the candidates, and the attacks on them."""

    model: Annotated[str, conf.arg(metavar="RANKER[,RANKER]")] = "tfidf"
    """tfidf, bm25, a run of a matching model, hf:FOLDER, seq2seq:RUN, lm:RUN, or path/file.py:Name; attacks search by the
    first one."""
    corpus: str = DEFAULT_CORPUS
    """Corpus of candidates or of pairs: a name, a file or folder of label<TAB>turn<TAB>...<TAB>response lines, or
    path/file.py:NAME."""
    split: Literal["test", "val", "train"] = "test"
    """Split of the corpus."""
    key: Annotated[str, conf.arg(metavar="KEY", help_behavior_hint="")] = ""
    """Context to begin with, by its key in rows and on pages, such as test-0000012; drawn when not given."""
    seed: NonNegativeInt = 1
    """Decides which contexts come, and every random draw."""
    method: str = AttackSettings.method
    """Search: greedy, beam, random, gradient (rankers with slopes), gaslite (bi-encoders), editor:RUN, or path/file.py:Name."""
    edits: NumItems = AttackSettings.edits
    """Words that an attack changes at most."""
    budget: NumItems = AttackSettings.budget
    """Queries of an attack at most, a query is one context and candidate scored."""
    lexicon: Literal["", "nltk", "built-in"] = ""
    """Tags and synonyms: NLTK's data, or a small lexicon written for this project; when empty the latter for the built-in
    help desk alone."""
    data_root: Annotated[Path | None, conf.arg(metavar="PATH", help_behavior_hint="")] = None
    """Where corpora lie; PARLEY_DATA or the user cache folder when not given."""
    device: Annotated[str, conf.arg(help_behavior_hint="")] = "cpu"
    """Torch device of rankers, such as cpu or cuda."""
    threads: PositiveInt = 1
    """CPU threads that rankers compute with."""
    config: Annotated[str, conf.arg(metavar="FILE.yaml", help_behavior_hint="")] = ""
    """Settings laid over the defaults; a file or its URI."""
    set: Annotated[conf.UseAppendAction[tuple[str, ...]], conf.arg(metavar="KEY=VALUE", help_behavior_hint="(repeatable)")] = ()
    """One setting, such as candidates.negatives=hard; parley settings play ranking lists them."""
    json: Annotated[conf.FlagCreatePairsOff[bool], conf.arg(help_behavior_hint="")] = False
    """Print one JSON object for each move on standard output."""


def run_play_ranking(verb: Verb, arguments: Sequence[str]) -> int:
    """Play until the person leaves; return the exit status."""
    parsed = parse(PlayRankingArguments, verb, gathered(arguments, "--model"))
    more = overlay(PlayRankingConfig(), fetched_file(parsed.config), parsed.config) if parsed.config else PlayRankingConfig()
    more = assign(more, parsed.set)
    require_device(parsed.device, "--device")
    config = RankersConfig(
        model=parsed.model,
        corpus=parsed.corpus,
        split=parsed.split,
        seed=parsed.seed,
        lexicon=parsed.lexicon,
        rules="none",
        data_root=parsed.data_root,
        candidates=more.candidates,
        replies=more.replies,
        chat=more.chat,
    )
    details = shared(more.attack, AttackDetails)
    settings = AttackSettings(method=parsed.method, edits=parsed.edits, budget=parsed.budget, **details)
    with threads(parsed.threads):
        with watching():
            session = RankingSession(config, settings, parsed.key, parsed.device)
        terminal = StandardTerminal()
        terminal.show(f"You edit replies, and see where {parsed.model} ranks them.\n\n{HELP}\n")
        game = RankingScreen(session, make_console(), as_json=parsed.json)
        game.begin()
        try:
            game.play(terminal)
        except KeyboardInterrupt:
            terminal.show("")
    common = {setting.name: getattr(config, setting.name) for setting in fields(config) if setting.name != "rules"}
    again = command_line(("evaluate", "ranking"), {"": RankingConfig}, RankingConfig(**common), run=None)
    show_lines(game.console, "next", [again])
    return 0


class RankingScreen:
    """The screen of a session, and the moves that a person types.

    Args:
        session: contexts and rankers.
        console: where screens go.
        as_json: whether each move prints an object on standard output too.
    """

    def __init__(self, session: RankingSession, console: Console, *, as_json: bool) -> None:
        self._session, self.console, self._as_json = session, console, as_json
        # Each screen needs the word importance of the last two snapshots.
        self._drops = lru_cache(4)(session.drops)
        self._watched, self._announced = 0, False
        self._moves: Mapping[str, Callable[[str], None]] = {
            "turn": self._edit_turn,
            "attack": self._attack,
            "rule": self._rule,
            "words": self._show_words,
            "undo": self._undo,
            "next": self._next,
            "show": self._show,
            "help": lambda _: self._say(HELP),
        }

    def begin(self) -> None:
        """Show a new context, and how much the words of its right reply matter."""
        labels = self._session.now.group.labels
        self._watched = labels.index(True) if True in labels else 0
        self._show("", "context")

    def play(self, terminal: Terminal) -> None:
        """Make the typed moves until the person leaves; show errors with their fixes.

        Raises:
            KeyboardInterrupt: the input has ended.
        """
        while (line := terminal.ask("\nmove: ")) != "quit":
            word, _, rest = line.partition(" ")
            try:
                if word.isdecimal():
                    self._edit(word, rest)
                elif word in self._moves:
                    self._moves[word](rest.strip())
                elif word:
                    what = f"there is no move {word!r}{nearest(word, [*self._moves, 'quit'])}"
                    raise ConfigError(what, fix="3 WORDS says reply 3 otherwise; help lists the moves")
            except ParleyError as error:
                show_error(error)

    def _edit(self, number: str, text: str) -> None:
        before, index = self._session.now, self._session.index_of(number)
        self._session.edit(index, text)
        self._watched = index
        self._show_moved("edit", before)

    def _edit_turn(self, rest: str) -> None:
        before = self._session.now
        number, _, text = rest.partition(" ")
        self._session.edit_turn(number, text)
        self._show_moved("turn", before)

    def _attack(self, number: str) -> None:
        before, index = self._session.now, self._session.index_of(number)
        self._announce()
        outcome = self._session.attack(index)
        self._watched = index
        report = AttackReport.of(before, index, outcome)
        self._say(str(report))
        self._show_moved("attack", before, attack=asdict(report))

    def _rule(self, name: str) -> None:
        before = self._session.now
        self._announce()
        changed = {index: num for index, num in enumerate(self._session.apply(name).changed) if num}
        if not changed:
            self._say(f"{name} finds nothing to change: these replies are untouched")
        self._watched = next(iter(changed), self._watched)
        record = {"name": name, "words_changed": {str(index + 1): num for index, num in changed.items()}}
        self._show_moved("rule", before, rule=record)

    def _undo(self, _: str) -> None:
        before = self._session.now
        self._session.undo()
        self._show_moved("undo", before)

    def _next(self, _: str) -> None:
        self._session.next()
        self.begin()

    def _show_words(self, number: str) -> None:
        self._watched = self._session.index_of(number)
        self._show_drops(self._session.now)
        self._print("words")

    def _show(self, _: str, move: str = "show") -> None:
        now = self._session.now
        turns = [(str(number), " ".join(words)) for number, words in enumerate(now.group.context, 1)]
        show_table(self.console, f"context {now.group.key}, the newest turn last", ("turn", "words"), turns)
        self._show_replies(now)
        self._show_drops(now)
        self._print(move)

    def _show_moved(self, move: str, before: RankingSnapshot, **details: Any) -> None:
        """Show the effect of a move on words, scores, ranks and word importance."""
        for name, old, new in (
            *_changed_lines("turn", before.group.context, self._session.now.group.context),
            *_changed_lines("reply", before.group.candidates, self._session.now.group.candidates),
        ):
            self._say(f"\n{name:<8} - {old}\n{'':<8} + {new}")
        self._show_replies(before)
        self._show_drops(before)
        self._print(move, **details)

    def _show_replies(self, before: RankingSnapshot) -> None:
        """Show the replies by rank at the first ranker; several rankers get a table of figures."""
        now, rankers = self._session.now, [*self._session.rankers]
        first = now.ranks(rankers[0])
        order = sorted(range(len(first)), key=lambda index: (first[index], index))
        words = {index: (self._state_of(index), " ".join(now.group.candidates[index])) for index in order}
        figures = {index: [figure for label in rankers for figure in _figures(before, now, label, index)] for index in order}
        for label, unread in now.unread.items():
            self._say(f"{label} does not read all of {unread}, for they are too long")
        if len(rankers) == 1:
            rows = [(str(index + 1), *figures[index], *words[index]) for index in order]
            show_table(self.console, "replies", ("reply", *_FIGURES, "is", "words"), rows, right=_FIGURES)
            return
        show_table(self.console, "replies", ("reply", "is", "words"), [(str(index + 1), *words[index]) for index in order])
        columns = [f"{label} {what}" for label in rankers for what in _FIGURES]
        rows = [(str(index + 1), *figures[index]) for index in order]
        show_table(self.console, "ranks and scores", ("reply", *columns), rows, right=columns)

    def _state_of(self, index: int) -> str:
        now, start = self._session.now.group, self._session.start.group
        edited = now.candidates[index] != start.candidates[index]
        return ("right" if now.labels[index] else "wrong") + ", edited" * edited

    def _show_drops(self, before: RankingSnapshot) -> None:
        """Show how much each word of the watched reply matters, the most important ones first."""
        session, now, index = self._session, self._session.now, self._watched
        words = now.group.candidates[index]
        drops, earlier = self._drops(now, index), self._drops(before, index)
        kept = _kept(before.group.candidates[index], words)
        label, most = next((label, float(np.abs(lost_scores).max(initial=0.0))) for label, lost_scores in drops.items())
        rows = []
        for i in sorted(range(len(words)), key=lambda i: -drops[label][i])[:_MOST_WORDS]:
            cells = [
                _moved(f"{earlier[ranker][kept[i]]:.3g}" if i in kept else "", f"{drops[ranker][i]:.3g}") for ranker in drops
            ]
            size = round(_BAR * abs(drops[label][i]) / most) if most else 0
            rows.append((words[i], *cells, ("+" if drops[label][i] > 0 else "-") * size))
        left = f"; {len(words) - _MOST_WORDS} words matter less" if len(words) > _MOST_WORDS else ""
        lost = (
            "log-odds" if any(getattr(ranker, "gives_probabilities", False) for ranker in session.rankers.values()) else "score"
        )
        title = f"words of reply {index + 1}: {lost} lost when a word is left out{left}"
        columns = [*session.rankers] if len(session.rankers) > 1 else [lost]
        show_table(self.console, title, ("word", *columns, ""), rows, right=columns)

    def _print(self, move: str, **details: Any) -> None:
        if not self._as_json:
            return
        now, start = self._session.now, self._session.start.group
        ranks = {label: now.ranks(label) for label in self._session.rankers}
        replies = [
            {
                "reply": index + 1,
                "words": " ".join(words),
                "right": now.group.labels[index],
                "edited": words != start.candidates[index],
                "scores": {label: float(scores[index]) for label, scores in now.scores.items()},
                "ranks": {label: float(values[index]) for label, values in ranks.items()},
            }
            for index, words in enumerate(now.group.candidates)
        ]
        drops = {label: values.tolist() for label, values in self._drops(now, self._watched).items()}
        watched = {"reply": self._watched + 1, "words": now.group.candidates[self._watched], "lost": drops}
        record = {"move": move, "key": now.group.key, "context": [" ".join(turn) for turn in now.group.context]}
        unread = {label: left_out._asdict() for label, left_out in now.unread.items()}
        sys.stdout.write(f"{json.dumps({**record, 'unread': unread, **details, 'replies': replies, 'importance': watched})}\n")
        sys.stdout.flush()

    def _announce(self) -> None:
        if self._session.lexicon == "built-in" and not self._announced:
            self._announced = True
            self._say(ANNOUNCEMENT)

    def _say(self, text: str) -> None:
        self.console.print(Text(text), soft_wrap=True)


@dataclass(frozen=True)
class AttackReport:
    """A search on a reply, as it is told.

    Args:
        reply: its number.
        goal: promote or demote.
        status: success, failure or skipped.
        reason: why there is no success.
        queries: made.
        words_changed: of the best draft.
        moves: the edits in their order.
        closer_at: queries by which the reply came closer to the goal.
    """

    reply: int
    goal: str
    status: str
    reason: str
    queries: int
    words_changed: int
    moves: Sequence[str]
    closer_at: Sequence[int]

    @classmethod
    def of(cls, before: RankingSnapshot, index: int, outcome: AttackOutcome) -> Self:
        """Report an attack on a reply of a snapshot."""
        goal = "demote" if before.group.labels[index] else "promote"
        closer = [point.queries for point in outcome.trace]
        reached = (outcome.status, outcome.reason, outcome.queries, outcome.cost)
        return cls(index + 1, goal, *reached, outcome.moves, closer)

    def __str__(self) -> str:
        start = f"{self.goal} reply {self.reply}: "
        if self.status == "skipped":
            return f"{start}{self.reason}"
        outcome = "success" if self.status == "success" else f"no success, {self.reason}"
        start += f"{outcome}; {self.queries:,} queries"
        if not self.words_changed:
            return f"{start}, and no edit brings it closer"
        closer = ", ".join(map(str, self.closer_at))
        return f"{start}, closer at query {closer}; words changed: {self.words_changed} ({', '.join(self.moves)})"


def _figures(before: RankingSnapshot, now: RankingSnapshot, ranker: str, index: int) -> tuple[str, str]:
    """Return rank and score of a reply, with the old ones if they moved."""
    ranks = (f"{snapshot.ranks(ranker)[index]:g}" for snapshot in (before, now))
    scores = (f"{snapshot.scores[ranker][index]:.3g}" for snapshot in (before, now))
    return _moved(*ranks), _moved(*scores)


def _changed_lines(what: str, before: Sequence[Utterance], after: Sequence[Utterance]) -> Iterator[tuple[str, str, str]]:
    """Yield changed utterances with changed words in brackets, such as ("reply 3", "the [old] disk", "the [new] disk")."""
    for number, (old, new) in enumerate(zip(before, after, strict=True), 1):
        if old != new:
            yield (f"{what} {number}", *bracketed(spans(((old,),), ((new,),))))


def _kept(old: Utterance, new: Utterance) -> dict[int, int]:
    same = ((before, after) for kind, before, after in aligned(old, new) if kind is ChangeKind.SAME)
    return {new_i: old_i for before, after in same for old_i, new_i in zip(_range(before), _range(after), strict=True)}


def _range(part: slice) -> range:
    return range(part.start, part.stop)


def _moved(before: str, after: str) -> str:
    return after if before in ("", after) else f"{before} -> {after}"
