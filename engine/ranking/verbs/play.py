"""`parley play ranking`: a person edits candidate replies at the terminal, and sees what rankers make of it.

What is shown goes to standard error, and what is typed comes from standard input, a pipe too. With --json each move that
changes or shows something prints one object on standard output.

Candidates under a person's hands: what rankers say of them, edit after edit (`parley play ranking`).

A change makes a new standing; those before are kept, so that each can be taken back. A change that a ranker cannot score is
none.
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
    asked_rankers,
    group_seed,
    lexicon_setting,
    loaded,
    opened,
    ranked_split,
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
class Standing:
    """A context with its candidates, and what rankers say of them.

    Args:
        group: context and candidates.
        scores: of the candidates, by ranker (C,).
        unread: by ranker what it leaves out; those that read all are not there.
    """

    group: CandidateGroup
    scores: Mapping[str, np.ndarray]
    unread: Mapping[str, Unread]

    def ranks(self, ranker: str) -> np.ndarray:
        """From 1, ties sharing theirs (C,)."""
        return expected_ranks(self.scores[ranker].tolist())


class CandidateBoard:
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
        self.rankers: Mapping[str, Ranker] = loaded(asked_rankers(config.model_names), contexts, config.chat.on(device))
        order = stream(config.seed, "played", self._corpus.name).permutation(len(self._split)).tolist()
        self._rows = [self._row(key), *order] if key else order
        self._turn = 0
        self._standings = [self._scored(self._split[self._rows[0]])]
        self._rule = cache(self._built)

    @property
    def now(self) -> Standing:
        """What stands."""
        return self._standings[-1]

    @property
    def start(self) -> Standing:
        """The context as the corpus has it."""
        return self._standings[0]

    @property
    def lexicon(self) -> str:
        """The lexicon that rules and searches read."""
        return self._config.lexicon_name

    def next(self) -> None:
        """Goes on to another context; after the last one to the first."""
        turn = (self._turn + 1) % len(self._rows)
        self._standings = [self._scored(self._split[self._rows[turn]])]
        self._turn = turn

    def undo(self) -> None:
        """Takes the last change back.

        Raises:
            ConfigError: there is none.
        """
        if len(self._standings) == 1:
            raise ConfigError("nothing is changed, so there is nothing to take back")
        self._standings.pop()

    def place(self, number: str) -> int:
        """The place of a reply that is named by its number.

        Raises:
            ConfigError: no reply has it.
        """
        return _place(number, len(self.now.group.candidates), "reply")

    def edit(self, place: int, text: str) -> None:
        """Says a reply otherwise.

        Raises:
            ConfigError: the text has no word, or is Chinese without blanks and jieba is not installed.
            RankerError: a ranker gives no scores.
        """
        self._replace(place, self._words(text, f"{place + 1} i am sorry can you repeat"))

    def edit_turn(self, number: str, text: str) -> None:
        """Says a turn of the context otherwise; errors as of `edit`, and of a number that no turn has."""
        context = self.now.group.context
        place = _place(number, len(context), "turn")
        words = self._words(text, f"turn {place + 1} how do i print this ?")
        self._stand(replace(self.now.group, context=(*context[:place], words, *context[place + 1 :])))

    def apply(self, name: str) -> Attacked:
        """What a fixed rule makes of the candidates as they stand; nothing changes where it finds nothing to do.

        Raises:
            ConfigError: not one rule is called so, or it does not suit the language.
            DataError: what it leans on is not there.
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

    def attack(self, place: int) -> AttackOutcome:
        """Searches for few edits of a reply: a wrong one is promoted, a right one demoted, in the eyes of the first ranker.

        Returns:
            What came of it; the best draft stands, if there is one.

        Raises:
            ConfigError: the method asks for slopes, and the ranker gives none.
            DataError: the lexicon's data are not there.
            RankerError: a ranker gives no scores.
        """
        group, ranker = self.now.group, next(iter(self.rankers.values()))
        alone = replace(group, attackable=tuple(other == place for other in range(len(group.candidates))))
        settings = replace(self._settings, goal="demote" if group.labels[place] else "promote")
        with lexicon_setting():
            search = compose_attack(ranker, self._resources.language, settings, **self._judges)
            (outcome,) = search.run([alone], [group_seed(self._config.seed, group.key)])
        if outcome.status == "error":
            raise RankerError(outcome.reason)
        if outcome.cost:
            self._replace(place, outcome.words)
        return outcome

    def drops(self, standing: Standing, place: int) -> dict[str, np.ndarray]:
        """What leaving a word out costs a reply, by ranker, in scores, or log-odds of probabilities (T,).

        Raises:
            RankerError: a ranker gives no scores.
        """
        asked = [(standing.group.context, erased(standing.group.candidates[place]))]
        found = {}
        for label, ranker in self.rankers.items():
            (scores,) = compared_outcomes(ranker, asked)
            if isinstance(scores, RankerError):
                raise scores
            found[label] = scores[0] - scores[1:]
        return found

    @cached_property
    def _resources(self) -> RuleResources:
        return rule_resources(self._config, self._corpus)

    @cached_property
    def _judges(self) -> dict[str, Any]:
        """What edits are judged by; words of the training split alone enter."""
        return judges_of(self._settings, self._corpus.splits["train"], self._config.seed, known_words=True)

    def _built(self, name: str) -> Rule:
        (rule,) = build_rules([name], self._resources)
        return rule

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

    def _replace(self, place: int, words: Sequence[str]) -> None:
        candidates = self.now.group.candidates
        self._stand(replace(self.now.group, candidates=(*candidates[:place], tuple(words), *candidates[place + 1 :])))

    def _stand(self, group: CandidateGroup) -> None:
        self._standings.append(self._scored(group))

    def _scored(self, group: CandidateGroup) -> Standing:
        pair = (group.context, group.candidates)
        scores = {label: scores_of(ranker, [pair])[0] for label, ranker in self.rankers.items()}
        unread = {label: unread_of(ranker, *pair) for label, ranker in self.rankers.items()}
        return Standing(group, scores, {label: each for label, each in unread.items() if any(each)})


def _place(number: str, size: int, what: str) -> int:
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
    """Which rankers, about which candidates, and how they are attacked."""

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
    """Plays until the person leaves; returns the exit status."""
    asked = parse(PlayRankingArguments, verb, gathered(arguments, "--model"))
    more = overlay(PlayRankingConfig(), fetched_file(asked.config), asked.config) if asked.config else PlayRankingConfig()
    more = assign(more, asked.set)
    require_device(asked.device, "--device")
    config = RankersConfig(
        model=asked.model,
        corpus=asked.corpus,
        split=asked.split,
        seed=asked.seed,
        lexicon=asked.lexicon,
        rules="none",
        data_root=asked.data_root,
        candidates=more.candidates,
        replies=more.replies,
        chat=more.chat,
    )
    details = shared(more.attack, AttackDetails)
    settings = AttackSettings(method=asked.method, edits=asked.edits, budget=asked.budget, **details)
    with threads(asked.threads):
        with watching():
            board = CandidateBoard(config, settings, asked.key, asked.device)
        terminal = StandardTerminal()
        terminal.show(f"You edit replies, and see where {asked.model} ranks them.\n\n{HELP}\n")
        game = RankingScreen(board, make_console(), as_json=asked.json)
        game.begin()
        try:
            game.play(terminal)
        except KeyboardInterrupt:
            terminal.show("")
    known = {each.name: getattr(config, each.name) for each in fields(config) if each.name != "rules"}
    again = command_line(("evaluate", "ranking"), {"": RankingConfig}, RankingConfig(**known), run=None)
    show_lines(game.console, "next", [again])
    return 0


class RankingScreen:
    """What a person sees of a board, and the moves that are typed.

    Args:
        board: contexts and rankers.
        console: where screens go.
        as_json: whether each move prints an object on standard output too.
    """

    def __init__(self, board: CandidateBoard, console: Console, *, as_json: bool) -> None:
        self._board, self.console, self._as_json = board, console, as_json
        # The last two standings are asked for again and again.
        self._drops = lru_cache(4)(board.drops)
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
        """Shows a context for the first time, and how much the words of its right reply matter."""
        labels = self._board.now.group.labels
        self._watched = labels.index(True) if True in labels else 0
        self._show("", "context")

    def play(self, terminal: Terminal) -> None:
        """Does what is typed until the person leaves; what cannot be done is told, with what to type instead.

        Raises:
            KeyboardInterrupt: the input has ended.
        """
        while (line := terminal.ask("\nmove: ")) != "quit":
            word, _, rest = line.partition(" ")
            try:
                if word.isdecimal():
                    self._edit(word, rest)
                elif word:
                    self._move(word)(rest.strip())
            except ParleyError as error:
                show_error(error)

    def _move(self, word: str) -> Callable[[str], None]:
        if word not in self._moves:
            what = f"there is no move {word!r}{nearest(word, [*self._moves, 'quit'])}"
            raise ConfigError(what, fix="3 WORDS says reply 3 otherwise; help lists the moves")
        return self._moves[word]

    def _edit(self, number: str, text: str) -> None:
        before, place = self._board.now, self._board.place(number)
        self._board.edit(place, text)
        self._watched = place
        self._show_moved("edit", before)

    def _edit_turn(self, rest: str) -> None:
        before = self._board.now
        number, _, text = rest.partition(" ")
        self._board.edit_turn(number, text)
        self._show_moved("turn", before)

    def _attack(self, number: str) -> None:
        before, place = self._board.now, self._board.place(number)
        self._announce()
        outcome = self._board.attack(place)
        self._watched = place
        told = AttackTold.of(before, place, outcome)
        self._say(str(told))
        self._show_moved("attack", before, attack=asdict(told))

    def _rule(self, name: str) -> None:
        before = self._board.now
        self._announce()
        changed = {place: num for place, num in enumerate(self._board.apply(name).changed) if num}
        if not changed:
            self._say(f"{name} finds nothing to change: these replies are untouched")
        self._watched = next(iter(changed), self._watched)
        told = {"name": name, "words_changed": {str(place + 1): num for place, num in changed.items()}}
        self._show_moved("rule", before, rule=told)

    def _undo(self, _: str) -> None:
        before = self._board.now
        self._board.undo()
        self._show_moved("undo", before)

    def _next(self, _: str) -> None:
        self._board.next()
        self.begin()

    def _show_words(self, number: str) -> None:
        self._watched = self._board.place(number)
        self._show_drops(self._board.now)
        self._print("words")

    def _show(self, _: str, move: str = "show") -> None:
        now = self._board.now
        turns = [(str(number), " ".join(words)) for number, words in enumerate(now.group.context, 1)]
        show_table(self.console, f"context {now.group.key}, the newest turn last", ("turn", "words"), turns)
        self._show_replies(now)
        self._show_drops(now)
        self._print(move)

    def _show_moved(self, move: str, before: Standing, **told: Any) -> None:
        """What a move changed: words, scores and ranks, and how much words matter."""
        for name, old, new in (
            *_changed_lines("turn", before.group.context, self._board.now.group.context),
            *_changed_lines("reply", before.group.candidates, self._board.now.group.candidates),
        ):
            self._say(f"\n{name:<8} - {old}\n{'':<8} + {new}")
        self._show_replies(before)
        self._show_drops(before)
        self._print(move, **told)

    def _show_replies(self, before: Standing) -> None:
        """The replies as they are ranked now, the first ranker's best on top; the figures of several rankers by themselves."""
        now, rankers = self._board.now, [*self._board.rankers]
        first = now.ranks(rankers[0])
        order = sorted(range(len(first)), key=lambda place: (first[place], place))
        words = {place: (self._told_of(place), " ".join(now.group.candidates[place])) for place in order}
        figures = {place: [each for label in rankers for each in _figures(before, now, label, place)] for place in order}
        for label, unread in now.unread.items():
            self._say(f"{label} does not read all of {unread}, for they are too long")
        if len(rankers) == 1:
            rows = [(str(place + 1), *figures[place], *words[place]) for place in order]
            show_table(self.console, "replies", ("reply", *_FIGURES, "is", "words"), rows, right=_FIGURES)
            return
        show_table(self.console, "replies", ("reply", "is", "words"), [(str(place + 1), *words[place]) for place in order])
        columns = [f"{label} {what}" for label in rankers for what in _FIGURES]
        rows = [(str(place + 1), *figures[place]) for place in order]
        show_table(self.console, "ranks and scores", ("reply", *columns), rows, right=columns)

    def _told_of(self, place: int) -> str:
        """Such as "wrong, edited"."""
        now, start = self._board.now.group, self._board.start.group
        edited = now.candidates[place] != start.candidates[place]
        return ("right" if now.labels[place] else "wrong") + ", edited" * edited

    def _show_drops(self, before: Standing) -> None:
        """How much each word of the reply that is watched matters, the most important ones on top."""
        board, now, place = self._board, self._board.now, self._watched
        words = now.group.candidates[place]
        drops, earlier = self._drops(now, place), self._drops(before, place)
        kept = _kept(before.group.candidates[place], words)
        label, most = next((label, float(np.abs(each).max(initial=0.0))) for label, each in drops.items())
        rows = []
        for i in sorted(range(len(words)), key=lambda i: -drops[label][i])[:_MOST_WORDS]:
            told = [_moved(f"{earlier[each][kept[i]]:.3g}" if i in kept else "", f"{drops[each][i]:.3g}") for each in drops]
            size = round(_BAR * abs(drops[label][i]) / most) if most else 0
            rows.append((words[i], *told, ("+" if drops[label][i] > 0 else "-") * size))
        left = f"; {len(words) - _MOST_WORDS} words matter less" if len(words) > _MOST_WORDS else ""
        lost = "log-odds" if any(getattr(each, "gives_probabilities", False) for each in board.rankers.values()) else "score"
        title = f"words of reply {place + 1}: {lost} lost when a word is left out{left}"
        columns = [*board.rankers] if len(board.rankers) > 1 else [lost]
        show_table(self.console, title, ("word", *columns, ""), rows, right=columns)

    def _print(self, move: str, **told: Any) -> None:
        if not self._as_json:
            return
        now, start = self._board.now, self._board.start.group
        ranks = {label: now.ranks(label) for label in self._board.rankers}
        replies = [
            {
                "reply": place + 1,
                "words": " ".join(words),
                "right": now.group.labels[place],
                "edited": words != start.candidates[place],
                "scores": {label: float(scores[place]) for label, scores in now.scores.items()},
                "ranks": {label: float(each[place]) for label, each in ranks.items()},
            }
            for place, words in enumerate(now.group.candidates)
        ]
        drops = {label: each.tolist() for label, each in self._drops(now, self._watched).items()}
        watched = {"reply": self._watched + 1, "words": now.group.candidates[self._watched], "lost": drops}
        record = {"move": move, "key": now.group.key, "context": [" ".join(turn) for turn in now.group.context]}
        unread = {label: each._asdict() for label, each in now.unread.items()}
        sys.stdout.write(f"{json.dumps({**record, 'unread': unread, **told, 'replies': replies, 'importance': watched})}\n")
        sys.stdout.flush()

    def _announce(self) -> None:
        """Says once where words come from."""
        if self._board.lexicon == "built-in" and not self._announced:
            self._announced = True
            self._say(ANNOUNCEMENT)

    def _say(self, text: str) -> None:
        self.console.print(Text(text), soft_wrap=True)


@dataclass(frozen=True)
class AttackTold:
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
    def of(cls, before: Standing, place: int, outcome: AttackOutcome) -> Self:
        """What came of an attack on a reply of a standing."""
        goal = "demote" if before.group.labels[place] else "promote"
        closer = [point.queries for point in outcome.trace]
        reached = (outcome.status, outcome.reason, outcome.queries, outcome.cost)
        return cls(place + 1, goal, *reached, outcome.moves, closer)

    def __str__(self) -> str:
        start = f"{self.goal} reply {self.reply}: "
        if self.status == "skipped":
            return f"{start}{self.reason}"
        found = "success" if self.status == "success" else f"no success, {self.reason}"
        start += f"{found}; {self.queries:,} queries"
        if not self.words_changed:
            return f"{start}, and no edit brings it closer"
        closer = ", ".join(map(str, self.closer_at))
        return f"{start}, closer at query {closer}; words changed: {self.words_changed} ({', '.join(self.moves)})"


def _figures(before: Standing, now: Standing, ranker: str, place: int) -> tuple[str, str]:
    """Rank and score of a reply, with what they were where they moved."""
    ranks = (f"{each.ranks(ranker)[place]:g}" for each in (before, now))
    scores = (f"{each.scores[ranker][place]:.3g}" for each in (before, now))
    return _moved(*ranks), _moved(*scores)


def _changed_lines(what: str, before: Sequence[Utterance], after: Sequence[Utterance]) -> Iterator[tuple[str, str, str]]:
    """Utterances that changed, with changed words in brackets: such as ("reply 3", "the [old] disk", "the [new] disk")."""
    for number, (old, new) in enumerate(zip(before, after, strict=True), 1):
        if old != new:
            yield (f"{what} {number}", *bracketed(spans(((old,),), ((new,),))))


def _kept(old: Utterance, new: Utterance) -> dict[int, int]:
    """Of the words that stayed, where they stood, by where they stand."""
    same = ((before, after) for kind, before, after in aligned(old, new) if kind is ChangeKind.SAME)
    return {new_i: old_i for before, after in same for old_i, new_i in zip(_range(before), _range(after), strict=True)}


def _range(part: slice) -> range:
    return range(part.start, part.stop)


def _moved(before: str, after: str) -> str:
    """Such as "1 -> 4"."""
    return after if before in ("", after) else f"{before} -> {after}"
