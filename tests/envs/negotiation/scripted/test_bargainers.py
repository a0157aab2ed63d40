"""The scripted bargainers: what they say is understood, deals hold, and no partner can make them fail."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.envs.core.errors import ConfigError, DataError
from parley.envs.core.play import Utterances
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.negotiation.dealornodeal_rules import MAX_COUNT, Triple, complement, random_scenario
from parley.envs.negotiation.domain import EOS_ID, SELECTION_ID, UNK, Scenario, Vocabulary
from parley.envs.negotiation.game import Agent, NegotiationGame, Rules, SideView, play
from parley.envs.negotiation.scripted.bargainers import STYLES, Bargainer, Style, Talks, scripted, scripted_tough, settle
from parley.envs.negotiation.scripted.listening import Meaning, understand
from parley.envs.negotiation.scripted.wording import PHRASES, Act, Move, Phrasebook, bargainer_vocabulary

VOCABULARY = bargainer_vocabulary()
PHRASEBOOK = Phrasebook(VOCABULARY)
PROPOSING = (Act.OPEN, Act.COUNTER, Act.CONCEDE, Act.INSIST)

triples = st.tuples(*[st.integers(1, MAX_COUNT)] * 3)
seeds = st.integers(0, 2**32 - 1)


def new_game(size: int, vocabulary: Vocabulary = VOCABULARY, rules: Rules | None = None, seed: int = 3) -> NegotiationGame:
    scenarios = [random_scenario(stream(seed, "scenario", i)) for i in range(size)]
    return NegotiationGame(scenarios, [derive_seed(seed, i) for i in range(size)], vocabulary, rules)


def held(first: Agent, second: Agent, size: int = 200, rules: Rules | None = None, seed: int = 3) -> NegotiationGame:
    return play(new_game(size, first.vocabulary, rules, seed), (first, second))


def bargainer(name: str = "scripted") -> Bargainer:
    return Bargainer.named(name, VOCABULARY)


def text(move: Move, counts: Triple, seed: int, chattiness: float = 1.0) -> list[str]:
    ids = PHRASEBOOK.say(move, counts, chattiness, np.random.default_rng(seed))
    assert ids[-1] == EOS_ID
    return VOCABULARY.decode(ids[:-1])


class Reciter:
    """Says the given sentences in turn in every dialogue, the last for ever, and chooses no agreement."""

    name = "reciter"
    vocabulary = VOCABULARY

    def __init__(self, sentences: Sequence[Sequence[int]]) -> None:
        self.sentences = sentences

    def join(self, view: SideView) -> Reciter:
        self.view, self.turns = view, dict.fromkeys(range(len(view)), 0)
        return self

    def speak(self, rows: np.ndarray) -> Utterances:
        said = []
        for row in rows.tolist():
            said.append(self.sentences[min(self.turns[row], len(self.sentences) - 1)])
            self.turns[row] += 1
        tokens = np.zeros((len(said), max(map(len, said))), dtype=np.int64)
        for i, words in enumerate(said):
            tokens[i, : len(words)] = words
        return Utterances(tokens, np.array([len(words) for words in said]))

    def choose(self, rows: np.ndarray) -> np.ndarray:
        return np.array([len(self.view.selections(row)) - 2 for row in rows.tolist()])


@settings(max_examples=400, deadline=None)
@given(counts=triples, data=st.data(), act=st.sampled_from(PROPOSING), seed=seeds, junk=st.none() | st.integers(0, 2))
def test_every_proposal_is_understood_exactly(
    counts: Triple, data: st.DataObject, act: Act, seed: int, junk: int | None
) -> None:
    share = data.draw(st.tuples(*[st.integers(0, count) for count in counts]))
    words = text(Move(act, share, seed % 3, junk), counts, seed)
    meaning = understand(words)
    assert meaning.share(counts) == share, " ".join(words)
    assert not meaning.parts


@settings(max_examples=200, deadline=None)
@given(counts=triples, data=st.data(), seed=seeds)
def test_replies_are_understood(counts: Triple, data: st.DataObject, seed: int) -> None:
    share = data.draw(st.tuples(*[st.integers(0, count) for count in counts]))
    for act in (Act.ACCEPT, Act.YIELD):
        meaning = understand(text(Move(act, share), counts, seed))
        assert meaning.accepts
        assert meaning.share(counts) in (None, share)
    refusal = understand(text(Move(Act.REFUSE, None, seed % 3, seed % 2), counts, seed))
    assert (refusal.refuses, refusal.accepts, refusal.proposes, refusal.parts) == (True, False, False, False)
    parting = understand(text(Move(Act.PART), counts, seed))
    assert (parting.parts, parting.accepts, parting.proposes) == (True, False, False)
    for act in (Act.ASK, Act.THANK):
        meaning = understand(text(Move(act), counts, seed))
        assert (meaning.proposes, meaning.refuses, meaning.parts) == (False, False, False)


@pytest.mark.parametrize(
    ("sentence", "share"),
    [
        ("the hats are yours , the rest is mine", (2, 0, 2)),
        ("you can not have the hats but the books are fine for you", (0, 3, 2)),
        ("no hats for me , just the 2 balls", (0, 0, 2)),
        ("i can not give you the balls . take a book and 2 hats", (1, 1, 2)),
        ("i will trade my hats for your balls", (0, 0, 2)),
        ("could you leave me one of each ?", (1, 1, 1)),
        ("4 books for me", (2, 0, 0)),
        ("i do not need the books . i want the hats", (0, 3, 0)),
        ("everything except one hat please", (2, 2, 2)),
        ("the basketballs and a zeppelin please", (0, 0, 2)),
        ("the hats are worth nothing to me", None),
        ("you can have the rest", None),
        ("what would you do with it ?", None),
        ("", None),
    ],
)
def test_ordinary_sentences_are_understood(sentence: str, share: Triple | None) -> None:
    assert understand(sentence.split()).share((2, 3, 2)) == share


def test_reasons_tell_what_is_useless() -> None:
    for reason in PHRASES["junk"]:
        assert understand(reason.replace("{kind}", "the hats").split()).spurned == (False, True, False), reason
    for reason in PHRASES["prize"]:
        assert understand(reason.replace("{kind}", "the hats").split()) == Meaning()


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(st.sampled_from((*VOCABULARY.words, "zeppelin", UNK)), max_size=12), max_size=8), triples)
def test_any_words_leave_the_talks_in_order(utterances: list[list[str]], counts: Triple) -> None:
    talks = Talks(counts)
    for k, words in enumerate(utterances):
        talks.hear(k % 2 == 0, understand(words))
        for share in (talks.table, talks.agreed):
            assert share is None or all(0 <= number <= count for number, count in zip(share, counts, strict=True))
        assert talks.agreed is None or talks.agreed == talks.table


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, len(VOCABULARY) - 1), min_size=1, max_size=10), min_size=1, max_size=6),
    st.sampled_from(sorted(STYLES)),
    seeds,
)
def test_no_partner_can_break_a_bargainer(sentences: list[list[int]], name: str, seed: int) -> None:
    game = held(Reciter(sentences), bargainer(name), 4, seed=seed)
    assert (game.selections >= 0).all()
    assert not game.num_illegal[:, 1].any()
    assert (game.num_tokens <= game.rules.max_tokens).all()


@pytest.mark.parametrize(
    "names", [("scripted", "scripted"), ("scripted", "scripted-tough"), ("scripted-tough", "scripted-tough")]
)
def test_deals_are_understood_alike_and_dialogues_end_by_themselves(names: tuple[str, str]) -> None:
    game = held(bargainer(names[0]), bargainer(names[1]))
    for scenario, (first, second) in zip(game.scenarios, game.selections.tolist(), strict=True):
        assert complement(scenario.counts, first) == second
    assert not game.forced.any()
    assert not game.num_illegal.any()
    assert 4 < game.num_turns.mean() < 12


def test_bargaining_beats_chance_and_is_efficient() -> None:
    game = held(bargainer(), bargainer(), 300)
    assert game.agreed.mean() > 0.9
    # A random allocation gives 5 points on average.
    assert (game.points.mean(axis=0) > 6.5).all()
    assert np.mean([game.is_pareto(row) for row in np.flatnonzero(game.agreed).tolist()]) > 0.7


def test_the_tough_style_earns_more_and_agrees_less() -> None:
    game = held(bargainer(), bargainer("scripted-tough"), 300)
    assert game.points[:, 1].mean() > game.points[:, 0].mean() + 0.8
    both_tough = held(bargainer("scripted-tough"), bargainer("scripted-tough"), 300)
    assert 0.7 < both_tough.agreed.mean() < game.agreed.mean()


def test_two_who_want_everything_never_agree() -> None:
    greedy = Bargainer(VOCABULARY, Style(greed=1.0, yielding=0.0))
    game = held(greedy, greedy, 100)
    assert not game.agreed.any()
    assert not game.forced.any()


def test_insisting_pays() -> None:
    def earned(yielding: float) -> float:
        insistent = Bargainer(VOCABULARY, Style(greed=0.85, patience=9, yielding=0.0))
        return float(held(insistent, Bargainer(VOCABULARY, Style(yielding=yielding)), 300).points[:, 0].mean())

    assert earned(0.8) > earned(0.0) + 0.8


def test_a_slip_of_memory_spoils_the_deal() -> None:
    forgetful = Bargainer(VOCABULARY, Style(slip=1.0))
    assert held(bargainer(), bargainer(), 50).agreed.any()
    assert not held(bargainer(), forgetful, 50).agreed.any()


def test_an_open_proposal_binds_only_who_would_take_it() -> None:
    values, style = (0, 1, 4), Style()
    rng = np.random.default_rng(0)
    for sentence, ended_by_me, chosen in (
        ("you can have the balls", True, (0, 0, 2)),
        ("you can have the books", True, None),
        ("i need everything", True, None),
    ):
        talks = Talks((2, 2, 2))
        talks.hear(False, understand(sentence.split()))
        talks.i_ended = ended_by_me
        assert settle(talks, values, style, rng) == chosen
    mine = Talks((2, 2, 2))
    mine.hear(True, understand(["the", "balls", "please"]))
    assert settle(mine, values, style, rng) == (0, 0, 2)
    mine.i_ended = True
    assert settle(mine, values, style, rng) is None


def test_a_dialogue_cut_off_costs_nobody_more_than_the_aim() -> None:
    game = held(bargainer(), bargainer("scripted-tough"), 100, Rules(max_turns=3))
    assert game.forced.any()
    least = Style.aim(STYLES["scripted"], 3, 3)
    assert (game.points[game.agreed, 0] >= least).all()


def test_moves_depend_on_the_dialogue_alone() -> None:
    agents = (bargainer(), bargainer("scripted-tough"))
    whole = play(new_game(20), agents)
    alone = play(NegotiationGame(whole.scenarios[7:8], whole.seeds[7:8], VOCABULARY), agents)
    assert alone.transcript(0) == whole.transcript(7)
    resumed = new_game(20)
    while (resumed.phase == 0).any():
        for side, agent in enumerate(agents):
            rows = resumed.rows_to_speak(side)
            if rows.size:
                # A fresh session before each move: nothing may be remembered but the words.
                resumed.say(rows, agent.join(resumed.view(side)).speak(rows))
    play(resumed, (bargainer(), bargainer("scripted-tough")))
    assert (resumed.tokens == whole.tokens).all()
    assert (resumed.selections == whole.selections).all()


def test_wording_is_varied_and_complete() -> None:
    game = held(bargainer(), bargainer("scripted-tough"), 300)
    said = [tuple(words) for row in range(len(game)) for _, words in game.transcript(row)]
    assert len(set(said)) > 0.6 * len(said)
    rng = np.random.default_rng(0)
    words: set[str] = set()
    for k in range(6000):
        act = list(Act)[k % (len(Act) - 1)]
        counts = (1 + k % 4, 1 + k // 4 % 4, 1 + k // 16 % 4)
        share = (k % (counts[0] + 1), k // 2 % (counts[1] + 1), k // 3 % (counts[2] + 1))
        words.update(VOCABULARY.decode(PHRASEBOOK.say(Move(act, share, k % 3, k % 2), counts, 1.0, rng)[:-1]))
    assert words == set(VOCABULARY.words[6:])
    assert 150 <= len(VOCABULARY) <= 300


def test_phrases_with_unknown_words_are_not_used() -> None:
    gone = {"would", "hello", "two", "everything", "fair", "middle", "."}
    smaller = Vocabulary(tuple(word for word in VOCABULARY.words if word not in gone))
    agents = (Bargainer.named("scripted", smaller), Bargainer.named("scripted-tough", smaller))
    game = held(*agents)
    said = {word for row in range(len(game)) for _, words in game.transcript(row) for word in words}
    assert UNK not in said
    for scenario, (first, second) in zip(game.scenarios, game.selections.tolist(), strict=True):
        assert complement(scenario.counts, first) == second


@pytest.mark.parametrize(("word", "unsaid"), [("hats", "the hats"), ("ball", "the ball"), ("?", "question")])
def test_a_vocabulary_without_the_needed_words_is_refused(word: str, unsaid: str) -> None:
    with pytest.raises(DataError, match=unsaid):
        Phrasebook(Vocabulary(tuple(other for other in VOCABULARY.words if other != word)))


def test_the_named_styles_have_factories() -> None:
    for factory, name in ((scripted, "scripted"), (scripted_tough, "scripted-tough")):
        agent = factory(VOCABULARY)
        assert (agent.name, agent.style) == (name, STYLES[name])


def test_mistakes_are_named() -> None:
    with pytest.raises(ConfigError, match="did you mean 'scripted-tough'"):
        Bargainer.named("scripted-tuff", VOCABULARY)
    with pytest.raises(ConfigError, match="greed is out of range"):
        Style(greed=1.5)
    other = Vocabulary((*VOCABULARY.words, "zeppelin"))
    with pytest.raises(ConfigError, match="another vocabulary"):
        bargainer().join(new_game(1, other).view(0))


def test_a_bargainer_accepts_what_a_person_offers() -> None:
    scenario = Scenario((2, 2, 2), ((4, 1, 0), (0, 1, 4)))
    sentences = ["you can have the hats and the balls , i keep the books", "deal", "ok"]
    person = Reciter([[*VOCABULARY.encode(sentence.split()), EOS_ID] for sentence in sentences] + [[SELECTION_ID]])
    game = NegotiationGame([scenario], [5], VOCABULARY, first_speakers=[0])
    play(game, (person, bargainer()))
    assert tuple(game.view(1).selections(0)[game.selections[0, 1]][:3] - np.array([0, 5, 10])) == (0, 2, 2)
