"""Defences around a target: what it hears behind a filter, when it refuses to end, and searches that mind a filter."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from parley.engine.negotiation.attacks.candidates import Candidates
from parley.engine.negotiation.attacks.replacement import preemptive, reactive
from parley.engine.negotiation.attacks.settings import SearchConfig
from parley.engine.negotiation.defences import DefendedAgent, FilteredView, PerplexityFilter, admissible
from parley.envs.core.errors import ConfigError
from parley.envs.core.play import Utterances, play_sessions
from parley.envs.negotiation.dealornodeal_rules import selection_index
from parley.envs.negotiation.domain import EOS_ID, SELECTION_ID, UNK_ID, Scenario, Vocabulary, domain_of
from parley.envs.negotiation.game import NegotiationGame, Rules, SideView
from parley.envs.negotiation.scripted.bargainers import Demand, last_demand
from parley.envs.negotiation.scripted.wording import bargainer_vocabulary
from parley.policies.negotiator.model import token_nll
from tests.engine.negotiation.adversaries import TARGET as SPEAKER
from tests.engine.negotiation.searches import TARGET, states
from tests.engine.negotiation.speakers import leaning
from tests.policies.negotiator.made_up import TINY, VOCABULARY, negotiator

WORDS = bargainer_vocabulary()
COUNTS, VALUES = (1, 2, 3), ((1, 3, 1), (4, 0, 2))
SCENARIO = Scenario(COUNTS, VALUES)
JUDGE = negotiator(23)
OTHER = leaning(WORDS, TINY, 1, {})
"""A judge of other words."""


class Says:
    """An agent that says given sentences one after the other, and chooses a given share; what it heard is kept."""

    def __init__(self, *sentences: str, share: tuple[int, int, int] = (0, 0, 0), vocabulary: Vocabulary = WORDS) -> None:
        self.name, self.vocabulary, self.sentences = "says", vocabulary, sentences
        self.choice = selection_index(COUNTS, share)
        self.heard: list[list[tuple[bool, str]]] = []

    def join(self, view: SideView) -> Says:
        self.view = view
        return self

    def speak(self, rows: np.ndarray) -> Utterances:
        (row,) = rows.tolist()
        turns = self.view.turns(row)
        self.heard.append(turns)
        return Utterances.of([self.view.encode(self.sentences[sum(mine for mine, _ in turns)])])

    def choose(self, rows: np.ndarray) -> np.ndarray:
        return np.full(len(rows), self.choice)


class Dislikes(PerplexityFilter):
    """Stops sentences with a word."""

    def __init__(self, word: str) -> None:
        super().__init__(OTHER, 1.0)
        self.word = WORDS.index[word]

    def perplexities(self, contexts: np.ndarray, tokens: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        sentences = [row[start:end] for row, start, end in zip(tokens, starts, ends, strict=True)]
        return np.array([2.0 if self.word in sentence else 1.0 for sentence in sentences])


def talk(adversary: Says, target: DefendedAgent | Says) -> NegotiationGame:
    """One dialogue that the adversary opens."""
    game = NegotiationGame([SCENARIO], [1], WORDS, Rules(max_turns=8, complementary=True), [0])
    return play_sessions(game, [adversary.join(game.view(0)), target.join(game.view(1))])


def test_a_stopped_sentence_is_one_unknown_word_to_the_target() -> None:
    target = Says("i want the book", "deal", "<selection>")
    game = talk(Says("i take the hats", "you get the balls", "deal"), DefendedAgent(target, Dislikes("balls")))
    assert [words for _, words in game.transcript(0)][2] == ["you", "get", "the", "balls"], "it was said, all the same"
    assert target.heard[-1] == [
        (False, "i take the hats"), (True, "i want the book"), (False, "<unk>"), (True, "deal"), (False, "deal"),
    ]  # fmt: skip
    view = FilteredView(game.view(1), Dislikes("balls"))
    view.listen(np.array([0]))
    assert view.stopped == [[2]]
    ids = view.tokens[0, : view.num_tokens[0]].tolist()
    them, you = WORDS.them_id, WORDS.you_id
    first, second = (WORDS.encode(text.split()).tolist() for text in ("i take the hats", "i want the book"))
    deal = WORDS.index["deal"]
    unheard, agreed = [them, UNK_ID, EOS_ID, you, deal, EOS_ID], [them, deal, EOS_ID, you, SELECTION_ID]
    assert ids == [them, *first, EOS_ID, you, *second, EOS_ID, *unheard, *agreed]
    left = view.num_tokens[0]
    real = game.view(1)
    assert (view.uniforms[0, left : left + 9] == real.uniforms[0, real.num_tokens[0] : real.num_tokens[0] + 9]).all()


class Asked(Says):
    """One that also keeps what it read each time that it was asked what it chooses."""

    def __init__(self, *sentences: str, share: tuple[int, int, int]) -> None:
        super().__init__(*sentences, share=share)
        self.read: list[list[tuple[bool, str]]] = []

    def join(self, view: SideView) -> Asked:
        # What is asked what it would choose takes a part of its own.
        part = Asked(*self.sentences, share=(0, 0, 0))
        part.choice, part.read = self.choice, self.read
        part.view = view
        return part

    def choose(self, rows: np.ndarray) -> np.ndarray:
        self.read.append(self.view.turns(0))
        return super().choose(rows)


@pytest.mark.parametrize(("ears", "heard"), [(Dislikes("hats"), "<unk>"), (None, "you get the hats")])
def test_what_it_would_choose_is_asked_by_what_it_hears_and_behind_its_end(ears: PerplexityFilter | None, heard: str) -> None:
    target = Asked("i want the book", "<selection>", "<selection>", share=(0, 0, 0))
    talk(Says("hi", "you get the hats", "<selection>"), DefendedAgent(target, ears, own_demand=True))
    begun = [(False, "hi"), (True, "i want the book"), (False, heard)]
    assert target.read[0] == [*begun, (True, "<selection>")], "as if it had ended the talk"
    assert target.read[-1][: len(begun)] == begun


def test_a_filter_that_stops_nothing_changes_nothing_and_one_that_stops_all_leaves_the_ends() -> None:
    def played(limit: float) -> tuple[NegotiationGame, list[list[int]]]:
        game = NegotiationGame([SCENARIO] * 12, range(12), VOCABULARY, Rules(max_turns=6, max_words=8, max_tokens=64))
        sessions = [SPEAKER.join(game.view(0)), DefendedAgent(SPEAKER, PerplexityFilter(JUDGE, limit)).join(game.view(1))]
        play_sessions(game, sessions)
        return game, sessions[1].stopped  # type: ignore[attr-defined]

    plain = NegotiationGame([SCENARIO] * 12, range(12), VOCABULARY, Rules(max_turns=6, max_words=8, max_tokens=64))
    play_sessions(plain, [SPEAKER.join(plain.view(0)), SPEAKER.join(plain.view(1))])
    through, stopped = played(np.inf)
    assert stopped == [[]] * 12
    assert (through.tokens == plain.tokens).all()
    deaf, stopped = played(0.0)
    assert not (deaf.tokens == plain.tokens).all()
    for row in range(12):
        turns = deaf.transcript(row)
        assert stopped[row] == [
            turn for turn, (side, words) in enumerate(turns[:-1]) if side == 0 and words and words != ["<selection>"]
        ]


def test_the_filter_reads_what_the_listener_reads() -> None:
    exchanges, sentences, _ = states([0, 1, 2])
    for row, sentence in enumerate(sentences):
        start = int(exchanges.lengths[row]) + 1
        said = np.concatenate([exchanges.tokens[row, : start - 1], [VOCABULARY.them_id], sentence])[None]
        context, ends = exchanges.contexts[1][[row]], np.array([said.shape[1]])
        nats = token_nll(JUDGE, context, said, ends)[0]
        expected = np.exp(nats[start:].sum() / len(sentence))
        found = PerplexityFilter(JUDGE, 1.0).perplexities(context, said, np.array([start]), ends)
        assert found == pytest.approx([expected])


@pytest.mark.parametrize("search", [reactive, preemptive])
def test_a_search_that_minds_a_filter_asks_about_no_sentence_that_is_stopped(
    search: Callable[..., list], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = SearchConfig(proposals="exhaustive", replies=2, screening_replies=2, finalists=2, max_replacements=2)
    numbers = list(range(8))

    def found(limit: float | None) -> tuple[list, list[int]]:
        exchanges, sentences, generators = states(numbers)
        fluency = None if limit is None else PerplexityFilter(JUDGE, limit)
        results = search(TARGET, exchanges, sentences, config, generators, fluency)
        passed = []
        for row, (before, result) in enumerate(zip(sentences, results, strict=True)):
            lengths = np.array([len(result.sentence)] * len(numbers))
            width = int(exchanges.lengths.max()) + 1 + int(lengths.max())
            tokens = np.zeros((len(numbers), width), dtype=np.int64)
            start = int(exchanges.lengths[row])
            tokens[row, :start] = exchanges.tokens[row, :start]
            tokens[row, start] = VOCABULARY.them_id
            tokens[row, start + 1 : start + 1 + len(result.sentence)] = result.sentence
            same = Candidates(np.array([row]), lengths[[row]] - 1, np.array([EOS_ID]))
            within = admissible(PerplexityFilter(JUDGE, limit or np.inf), exchanges, tokens, lengths, same)
            changed = (result.sentence != before).any()
            passed.append((bool(changed), bool(within[0])))
        return results, passed

    free, _ = found(None)
    unlimited, _ = found(np.inf)
    assert [one.sentence.tolist() for one in unlimited] == [one.sentence.tolist() for one in free]
    assert all(one.kept_out == 0 for one in unlimited)
    _, sentences, _ = states(numbers)
    minding, passed = found(13.0)
    assert any(one.kept_out for one in minding)
    assert sum(one.reads for one in minding) < sum(one.reads for one in free)
    assert all(within for changed, within in passed if changed), "whatever was put into a sentence keeps it below the limit"
    assert any(changed for changed, _ in passed)
    assert not any(one.reached for one, (_, within) in zip(minding, passed, strict=True) if not within)
    none, _ = found(1e-9)
    assert all((one.sentence == before).all() and not one.reached for one, before in zip(none, sentences, strict=True))


def test_a_target_refuses_to_end_below_its_own_demand_and_says_it_again() -> None:
    target = Says("i want the book and 3 balls", "<selection>", "<selection>", "<selection>", share=(0, 0, 1))
    game = talk(Says("i take the hats", "and the book", "<selection>"), DefendedAgent(target, own_demand=True))
    said = [" ".join(words) for _, words in game.transcript(0)]
    assert said == [
        "i take the hats", "i want the book and 3 balls", "and the book", "i want the book and 3 balls", "<selection>",
    ]  # fmt: skip
    assert game.to_move[0] == 0, "the adversary ended the talk, which nobody can refuse"
    assert game.points[0].tolist() == [1 + 6 + 2, 2], "and the target chose as ever"


def test_who_gets_what_it_asked_for_may_end() -> None:
    for target, reason in {
        Says("i want the book and 3 balls", "<selection>", share=(1, 0, 3)): "as much as it asked for",
        Says("i want the book and 3 balls", "deal , i take the book", "<selection>", share=(1, 0, 0)): "it came down",
        Says("hello there", "<selection>"): "it asked for nothing",
    }.items():
        defended = DefendedAgent(target, own_demand=True)
        game = talk(Says("i take the hats", "okay", "okay"), defended)
        assert game.to_move[0] == 1, reason
        assert game.transcript(0)[-1] == (1, ["<selection>"]), reason


def test_demands_are_own_proposals_and_those_that_were_taken() -> None:
    mine, theirs = True, False
    talks = [(theirs, "you can have the book"), (mine, "i want the book and 3 balls")]
    assert last_demand(talks[:1], COUNTS) is None
    assert last_demand(talks, COUNTS) == Demand((1, 0, 3), 1)
    offered = [*talks, (theirs, "i take the balls and the hats , you get the book")]
    assert last_demand(offered, COUNTS) == Demand((1, 0, 3), 1)
    assert last_demand([*offered, (mine, "deal")], COUNTS) == Demand((1, 0, 0), 3)
    assert last_demand([*offered, (mine, "deal"), (mine, "<selection>")], COUNTS) == Demand((1, 0, 0), 3)


def test_a_defence_that_cannot_work_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"another vocabulary(.|\n)*--judge"):
        DefendedAgent(SPEAKER, PerplexityFilter(OTHER, 5.0))
    interview = Says(vocabulary=domain_of("interview").vocabulary())
    with pytest.raises(ConfigError, match=r"demands are read(.|\n)*'interview'"):
        DefendedAgent(interview, own_demand=True)
