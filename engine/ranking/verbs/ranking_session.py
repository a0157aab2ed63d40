"""Candidates under a person's hands: what rankers say of them, edit after edit (`parley play ranking`).

A change makes a new standing; those before are kept, so that each can be taken back. A change that a ranker cannot score is
none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from parley.engine.perturb.replies.catalogue import build_rules, rule_names
from parley.engine.perturb.replies.resources import RuleResources
from parley.engine.perturb.replies.rule import Attacked, Rule
from parley.engine.ranking.attacks.catalogue import attack_names, compose_attack
from parley.engine.ranking.attacks.outcomes import AttackOutcome
from parley.engine.ranking.attacks.settings import AttackSettings
from parley.engine.ranking.metrics.erasure import erased
from parley.engine.ranking.metrics.movement import expected_ranks
from parley.engine.ranking.verbs.asked import asked_rankers, loaded
from parley.engine.ranking.verbs.attack_worker import judges_of
from parley.engine.ranking.verbs.config import RankersConfig
from parley.engine.ranking.verbs.groups import (
    Contexts,
    group_seed,
    lexicon_setting,
    opened,
    ranked_split,
    rule_resources,
    rule_seed,
)
from parley.envs.core.errors import ConfigError, RankerError
from parley.envs.core.registry import nearest
from parley.envs.core.seeds import stream
from parley.envs.corpora.pairs.chinese import cut
from parley.envs.corpora.pairs.tokens import tokenise
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
