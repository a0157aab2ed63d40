"""GASLITE on encoders of a few thousand weights: averaged slopes, retokenisation, and what it finds beside random words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers", reason="the extra hugging-face is not installed")

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

from parley.engine.ranking.attacks.attack import AttackMethod, Gaslite, RandomSteps, RandomWords, RankAttack, Steps
from parley.engine.ranking.attacks.cases import Case
from parley.engine.ranking.attacks.catalogue import compose_attack
from parley.engine.ranking.attacks.settings import AttackSettings, GasliteSizes
from parley.envs.core.errors import ConfigError
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import CandidateGroup, Context
from parley.policies.ranking.encoders import BiEncoder
from parley.policies.ranking.ranker import Pair
from tests.engine.ranking.fakes import Sum, Toy, group
from tests.policies.ranking.folders import bert, tokenizer

NUM_WORDS = 200
NAMES = ("gaslite", "random-steps", "random-words")
CONTEXT = ("it is on now", "a black screen")


class Watched(BiEncoder):
    """Remembers what it is asked."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.scored: list[Utterance] = []
        self.sloped: list[Utterance] = []
        self.refused: list[Utterance] = []

    def score_all(self, pairs: Sequence[Pair]) -> list[np.ndarray]:
        self.scored += [reply for _, candidates in pairs for reply in candidates]
        return super().score_all(pairs)

    def slopes(self, context: Context, reply: Utterance, words: Sequence[str]) -> np.ndarray:
        self.sloped.append(reply)
        return super().slopes(context, reply, words)

    def reads(self, reply: Utterance, words: Utterance) -> bool:
        found = super().reads(reply, words)
        self.refused += [] if found else [words]
        return found


def small() -> Watched:
    """Ten words, of which a question mark sticks to the word before it and is then no token of its own."""
    return Watched(bert(), tokenizer())


def large(seed: int = 3) -> Watched:
    """Two hundred words in sixteen dimensions."""
    words = ["<unk>", *(f"w{number}" for number in range(NUM_WORDS - 1))]
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    read = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>")
    config = transformers.BertConfig(
        vocab_size=NUM_WORDS, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=64, pad_token_id=0,
    )  # fmt: skip
    model, generator = transformers.BertModel(config), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Offsets that all words share would drown them.
            if parameter.ndim > 1:
                parameter.normal_(0, 1.0 if "word_embeddings" in name else 0.25, generator=generator)
    return Watched(model, read)


class Unreachable(Watched):
    """Likes one reply better than any other, so that attacks show the best that they find."""

    def score_all(self, pairs: Sequence[Pair]) -> list[np.ndarray]:
        found = super().score_all(pairs)
        return [
            np.where([each == ("top",) for each in said], 9.0, scores) for scores, (_, said) in zip(found, pairs, strict=True)
        ]


def attack(ranker: BiEncoder, method: AttackMethod, edits: int = 3, budget: int = 60) -> RankAttack:
    return RankAttack(ranker, Toy(), method=method, moves=[], edits=edits, budget=budget)


def case_of(ranker: BiEncoder, of: CandidateGroup) -> Case:
    """The example as a method sees it."""
    seen: list[Case] = []

    class Looks:
        def steps(self, case: Case) -> Steps:
            seen.append(case)
            yield from ()

    attack(ranker, Looks()).run([of], [5])
    return seen[0]


def wrong(ranker: BiEncoder, said: str) -> CandidateGroup:
    """A group whose right reply is the context's own words, which the ranker has to like best."""
    of = group(["a black screen is on", said], context=CONTEXT)
    scores = ranker.score(of.context, of.candidates)
    return of if scores[0] > scores[1] else group([said, "a black screen is on"], context=CONTEXT)


def test_slopes_are_the_mean_at_the_trigger_and_at_texts_with_one_random_word() -> None:
    ranker = small()
    case = case_of(ranker, wrong(ranker, "not it"))
    reply, trigger = case.original.words, ("off", "now", "is")
    ranker.sloped.clear()
    found_LV = Gaslite(num_gradients=6).gains(case, trigger)
    texts = list(ranker.sloped)
    assert texts[0] == (*reply, *trigger)
    assert [sum(a != b for a, b in zip(text, texts[0], strict=True)) <= 1 for text in texts] == [True] * 6
    assert len(set(texts)) > 3, "words are drawn"
    assert all(text[: len(reply)] == reply for text in texts), "the reply's own words stay"
    assert case.inside.num_slopes == 6
    words = ranker.vocabulary()
    each = [BiEncoder.slopes(ranker, case.group.context, text, list(words))[len(reply) :] for text in texts]
    np.testing.assert_allclose(found_LV, np.mean(each, axis=0), rtol=1e-6, atol=1e-9)
    assert np.abs(found_LV - each[0]).max() > 1e-3, "which is not the slope at the trigger"
    alone_LV = Gaslite(num_gradients=1).gains(case, trigger)
    np.testing.assert_allclose(alone_LV, each[0], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("method", [Gaslite(3, 4, 2), RandomSteps(3, 4), RandomWords()], ids=str)
def test_nothing_is_asked_that_is_read_as_other_tokens(method: AttackMethod) -> None:
    ranker = small()
    of = wrong(ranker, "not it")
    reply = of.candidates[1]
    (outcome,) = attack(ranker, method, budget=150).run([of], [1])
    asked = [text for text in ranker.scored if text not in of.candidates]
    assert len(set(asked)) >= outcome.queries > 0
    assert all(text[: len(reply)] == reply and len(text) == len(reply) + 3 for text in asked)
    assert ranker.refused, "marks come up"
    assert not any("?" in text for text in asked), "a mark sticks to the word before it"


@pytest.mark.parametrize("method", [Gaslite(2, 3, 2), RandomSteps(2, 3), RandomWords()], ids=str)
def test_what_is_appended_counts_as_so_many_words_and_slopes_stand_beside_queries(method: AttackMethod) -> None:
    ranker = Unreachable(bert(), tokenizer())
    of = group(["top", "not it is"], context=CONTEXT)
    (outcome,) = attack(ranker, method, edits=4, budget=23).run([of], [2])
    assert (outcome.status, outcome.queries, outcome.cost, outcome.moves) == ("failure", 23, 4, ("appended",))
    assert outcome.words[:3] == of.candidates[1]
    assert outcome.edited == (False,) * 3 + (True,) * 4
    assert outcome.score is not None
    assert outcome.score > outcome.scores[1]
    if isinstance(method, Gaslite):
        assert outcome.num_slopes > 0
        assert outcome.num_slopes % 2 == 0
    else:
        assert outcome.num_slopes == 0


def furthest(ranker: BiEncoder, method: AttackMethod, groups: Sequence[CandidateGroup]) -> list[float]:
    """The scores that an attack comes to where no reply can reach the top."""
    found = attack(ranker, method, edits=4, budget=80).run(groups, range(len(groups)))
    return [outcome.score for outcome in found if outcome.score is not None]


def test_the_controls_tell_the_gradient_from_going_on_from_the_best_text() -> None:
    made = large()
    ranker = Unreachable(made.model, made._tokenizer)
    groups = [group(["top", f"w{number} w{number + 1}"], context=(f"w{2 * number} w7",)) for number in range(12)]
    by_slopes = furthest(ranker, Gaslite(2, 5, 4), groups)
    in_steps = furthest(ranker, RandomSteps(2, 5), groups)
    anew = furthest(ranker, RandomWords(), groups)
    assert sum(a > b for a, b in zip(by_slopes, in_steps, strict=True)) >= 10
    assert sum(a > b for a, b in zip(in_steps, anew, strict=True)) >= 8


def test_random_steps_change_one_word_of_the_best_text_so_far() -> None:
    ranker = large()
    case = case_of(ranker, group(["w1 w2", "w9"], context=("w1 w2",)))
    steps = RandomSteps(num_positions=2, num_candidates=3).steps(case)
    (first,) = next(steps).drafts
    best, margins, places = first.words, np.zeros(1), list[int]()
    for number in range(12):
        drafts = steps.send(margins).drafts
        changed = {
            tuple(i for i, pair in enumerate(zip(draft.words, best, strict=True)) if len(set(pair)) > 1) for draft in drafts
        }
        assert len(drafts) == 3
        ((place,),) = changed
        places.append(place)
        margins = np.full(3, -1.0)
        if number % 2:
            margins[2], best = number, drafts[2].words
    assert set(places) == {1, 2, 3}, "places behind the reply, one for each list"
    assert case.inside.num_slopes == 0


def test_it_comes_closer_than_random_words_and_sooner() -> None:
    made = large()
    ranker = Unreachable(made.model, made._tokenizer)
    groups = [group(["top", f"w{number} w{number + 1}"], context=(f"w{2 * number} w7",)) for number in range(12)]
    sizes = {"edits": 4, "budget": 80}
    by_slopes = attack(ranker, Gaslite(2, 5, 4), **sizes).run(groups, range(12))
    at_random = attack(ranker, RandomWords(), **sizes).run(groups, range(12))
    ahead = [
        a.score > b.score for a, b in zip(by_slopes, at_random, strict=True) if a.score is not None and b.score is not None
    ]
    assert sum(ahead) >= 11
    sooner = []
    for found, drawn in zip(by_slopes, at_random, strict=True):
        best = drawn.trace[-1]
        reached = [point.queries for point in found.trace if point.margin >= best.margin]
        sooner.append(min([*reached, 80]) < best.queries)
    assert sum(sooner) >= 9


def test_averaged_slopes_point_to_words_that_are_better_than_drawn_ones() -> None:
    ranker = large()
    case = case_of(ranker, group(["w1 w2", "w9"], context=("w1 w2",)))
    trigger = ("w5", "w6", "w7")
    gains_LV = Gaslite(num_gradients=8).gains(case, trigger)
    words = ranker.vocabulary()

    def mean_score(numbers: Sequence[int], place: int) -> float:
        texts = [(*case.original.words, *trigger[:place], words[i], *trigger[place + 1 :]) for i in numbers]
        return float(np.mean(ranker.score(case.group.context, texts)))

    everything = range(len(words))
    for place in range(3):
        assert mean_score(np.argsort(-gains_LV[place])[:10].tolist(), place) > mean_score(everything, place)


def test_a_reply_that_leaves_no_room_is_not_asked_about() -> None:
    ranker = Watched(bert(), tokenizer(), longest=6)
    of = wrong(ranker, "not it is")
    for method in (Gaslite(2, 2, 2), RandomSteps(2, 2), RandomWords()):
        (outcome,) = attack(ranker, method).run([of], [0])
        assert (outcome.status, outcome.reason, outcome.queries) == ("failure", "no edit is left to try", 0)


@pytest.mark.parametrize("name", NAMES)
def test_settings_make_it_and_limits_of_edits_do_not_hold(name: str) -> None:
    sizes = GasliteSizes(num_words=6, num_gradients=3, num_positions=2, num_candidates=4)
    settings = AttackSettings(method=name, edits=2, budget=40, gaslite=sizes)
    made = compose_attack(small(), Toy(), settings, vocabulary={"nothing"})
    assert made.method == dict(zip(NAMES, (Gaslite(2, 4, 3), RandomSteps(2, 4), RandomWords()), strict=True))[name]
    assert (made.edits, made.moves) == (6, [])
    told = repr(made)
    assert "AtMostWords(edits=6)" in told
    assert "moves: none" in told
    assert "KeptTags" not in told
    assert "KnownWords" not in told


def test_who_gives_no_vocabulary_or_wants_a_right_reply_down_is_told_so() -> None:
    class Scores:
        def score(self, context: Context, candidates: Sequence[Utterance]) -> list[float]:
            return [0.0] * len(candidates)

    for name in NAMES:
        with pytest.raises(ConfigError, match=r"gives no words of a vocabulary(.|\n)*hf:FOLDER"):
            compose_attack(Scores(), Toy(), AttackSettings(method=name))
        with pytest.raises(ConfigError, match="may make a wrong one of it"):
            compose_attack(Sum({}), Toy(), AttackSettings(method=name, goal="demote"))
