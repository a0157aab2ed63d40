"""One call that searches, on a model of one's own and on ours: what comes out, what it reads like, what it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import parley.engine.triggers
from parley.engine.triggers import (
    Beam,
    GibbsEnum,
    Relaxation,
    RelaxationSettings,
    SearchSettings,
    Seq2SeqVictim,
    Thresholds,
    TriggerObjective,
    TriggerSearch,
    search,
)
from parley.engine.triggers.catalogue import make_method, searches
from parley.engine.triggers.searches.batch import tasks_of
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.core.seeds import derive_seed
from parley.envs.corpora.pairs.vocabulary import EOS_ID, SPECIALS
from tests.engine.triggers.made_up import (
    END_ID,
    LENGTH,
    NUM_WORDS,
    OTHER_TARGET,
    SEARCHABLE,
    TARGET,
    bound,
    never,
    scorer,
    searched,
    tiny_input_model,
    tiny_victim,
)
from tests.policies.seq2seq.made_up import VOCABULARY, language_model, seq2seq

FEW = GibbsEnum(candidates=4, restarts=3, max_sweeps=4)
LIKELIHOOD = TriggerObjective(kind="likelihood")
WORDS = VOCABULARY.words[len(SPECIALS) :]


class GruVictim(torch.nn.Module):
    """A model of a user's own, as short as it gets: a GRU reads, another one speaks."""

    input_length = LENGTH

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(NUM_WORDS, 8)
        self.reads, self.speaks = (torch.nn.GRU(8, 8, batch_first=True) for _ in range(2))
        self.output = torch.nn.Linear(8, NUM_WORDS)
        self.searchable_V = torch.arange(NUM_WORDS) > END_ID

    @property
    def embedding_VE(self) -> torch.Tensor:
        return self.words.weight

    def reply_logits(self, embedded_BNE: torch.Tensor, replies_BT: torch.Tensor) -> torch.Tensor:
        begin_BT = torch.cat([torch.zeros_like(replies_BT[:, :1]), replies_BT[:, :-1]], 1)
        return self.output(self.speaks(self.words(begin_BT), self.reads(embedded_BNE)[1])[0])


def test_a_torch_model_of_ones_own_is_searched_in_one_call() -> None:
    torch.manual_seed(0)
    (found,) = search(GruVictim(), [[7, 9, END_ID]], method=FEW, objective=LIKELIHOOD)
    assert found.words is not None
    assert len(found.words) == LENGTH
    assert found.text is None, "it does not know what its words read"
    assert found.loss < min(restart.loss_by_sweep[0] for restart in found.restarts)
    assert len(found.reading.word_log_probability) == 3


def test_it_finds_what_the_method_finds_target_by_target_in_any_company() -> None:
    targets = [TARGET.tolist(), OTHER_TARGET.tolist()]
    both = search(tiny_victim(), targets, method=FEW, objective=LIKELIHOOD, seed=3)
    for target, found in zip(targets, both, strict=True):
        (alone,) = search(tiny_victim(), [target], method=FEW, objective=LIKELIHOOD, seed=3, batch_size=1)
        assert (alone.words, alone.loss, alone.hit) == (found.words, found.loss, found.hit)
        key = " ".join(map(str, target))
        todo = tasks_of({key: torch.tensor(target)}, 3, seed=3)
        direct = list(searched(bound(GibbsEnum, scorer(LIKELIHOOD), replace(FEW.settings, stop_on_hit=False)), todo, 4))
        assert found.loss == pytest.approx(min(outcome.loss for outcome in direct), abs=1e-6) or found.hit
        assert found.target == tuple(target)
    again = search(tiny_victim(), [targets[1], targets[0], targets[1]], method=FEW, objective=LIKELIHOOD, seed=3)
    assert [found.words for found in again] == [both[1].words, both[0].words, both[1].words]


def test_a_hit_comes_before_a_lower_loss_and_ends_the_restarts() -> None:
    lax = Thresholds(t_out=-50.0)
    (found,) = search(tiny_victim(), [TARGET.tolist()], method=FEW, hit="o-sample-min-k1", thresholds=lax)
    assert found.hit
    assert [restart.stopped for restart in found.restarts] == ["satisfied"]


def test_our_own_networks_are_searched_by_text_and_their_inputs_read() -> None:
    victim = Seq2SeqVictim(seq2seq(), language_model())
    hit, thresholds = "io-sample-avg-k2", Thresholds(t_out=-0.5, t_in=-0.5)
    seen: list[int] = []
    (found,) = search(victim, [f"{WORDS[0]} {WORDS[1]}"], method=FEW, hit=hit, thresholds=thresholds, on_step=seen.append)
    assert found.text is not None
    assert len(found.text.split()) == victim.input_length
    assert found.reading.input_log_probability is not None
    assert seen == sorted(seen)
    assert sum(restart.candidates for restart in found.restarts) == seen[-1]
    with pytest.raises(DataError, match="zebra"):
        search(victim, ["zebra"], method=FEW)


def test_a_continuous_input_is_searched_for_by_the_same_call() -> None:
    method = Relaxation(restarts=2, relaxation=RelaxationSettings(rounds=1, steps=3))
    (found,) = search(tiny_victim(), [TARGET.tolist()], method=method)
    assert found.words is not None
    assert set(found.words) <= set(SEARCHABLE)
    assert all(restart.projected is not None for restart in found.restarts)
    assert [restart.visits for restart in found.restarts] == [3, 3]


def test_a_composed_search_shows_its_whole_tree() -> None:
    parts = {"hit": "o-sample-min-k2", "thresholds": Thresholds(t_out=-2.5)}
    shown = repr(TriggerSearch(tiny_victim(), Beam(beams=3), input_model=tiny_input_model(), batch_size=7, **parts))
    for part in (
        "method: Beam(candidates=100, max_candidates=0, max_sweeps=50, restarts=10, stop_on_hit=True, beams=3)",
        "victim: TinyVictim",
        "objective: TriggerObjective(kind='sample', t_out=-3.19",
        "hit: o-sample-min-k2, Thresholds(t_out=-2.5, t_in=None)",
        "words: 7 of 12 words at 4 positions",
        "input: judged by TinyInputModel",
        "scorer: PlainScorer",
        "batch_size: 7",
    ):
        assert f"  {part}" in shown
    own = repr(TriggerSearch(Seq2SeqVictim(seq2seq())))
    assert "scorer: LstmScorer" in own
    assert "input: free" in own


@pytest.mark.parametrize("name", list(searches))
def test_a_method_shows_the_settings_that_it_reads_and_takes_no_others(name: str) -> None:
    method = make_method(name)
    assert repr(method).startswith(f"{type(method).__name__}({type(method).uses[0]}=")
    assert set(type(method).uses) <= {*vars(SearchSettings())}
    (other,) = [each for each in ("beams", "words_per_position") if each not in type(method).uses][:1]
    with pytest.raises(ConfigError, match=f"has no setting '{other}'"):
        type(method)(**{other: 2})


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "a class for a method": ({"method": GibbsEnum}, r"method is no Method(.|\n)*the class GibbsEnum(.|\n)*GibbsEnum\("),
    "a name for a method": ({"method": "beam"}, r"method is no Method(.|\n)*str 'beam'"),
    "an objective of another kind": ({"objective": 3}, r"objective is no TriggerObjective(.|\n)*int 3"),
    "a hit of another kind": ({"hit": 3}, "hit is no HitType"),
    "thresholds of another kind": ({"thresholds": -3.0}, "thresholds is no Thresholds"),
    "an unknown hit": ({"hit": "o-greddy"}, "did you mean 'o-greedy'"),
    "a hit without its threshold": ({"hit": "o-sample-min-k1"}, r"thresholds=Thresholds\(t_out"),
    "no searches at once": ({"batch_size": 0}, "batch_size"),
    "a seed that is none": ({"seed": -1}, "seed is no seed"),
    "one target alone": ({"targets": "you fool"}, "put a single target into a list"),
    "a text for a victim without words": ({"targets": ["you fool"]}, "does not know which words a text is"),
    "ids for a list of them": ({"targets": [7, 9]}, r"neither a text nor word ids(.|\n)*int 7"),
    "ids of no word": ({"targets": [[7, 99, -1]]}, r"ids of no word(.|\n)*99, -1(.|\n)*0 to 11"),
    "an empty target": ({"targets": [[]]}, "a target is empty"),
    "a victim that is none": ({"victim": 3}, "the victim lacks embedding_VE, searchable_V, input_length, reply_logits"),
    "a victim's class": ({"victim": Seq2SeqVictim}, "the class Seq2SeqVictim"),
    "nobody to judge": ({"objective": TriggerObjective(lm_weight=1.0, t_in=-3.0)}, "no model judges the inputs"),
    "no words to judge": (
        {"method": Relaxation(), "input_model": tiny_input_model(), "objective": TriggerObjective(lm_weight=1.0)},
        "a continuous input has no words to judge",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named(mistake: str) -> None:
    changes, message = MISTAKES[mistake]
    with pytest.raises(ConfigError, match=message):
        search(**{"victim": tiny_victim(), "targets": [TARGET.tolist()], **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"candidats": 3}, "has no setting 'candidats', did you mean 'candidates'"),
        ({"candidates": "many"}, "candidates"),
        ({"restarts": 0}, "restarts"),
    ],
)
def test_a_wrong_setting_of_a_method_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GibbsEnum(**changes)


def test_a_scorer_in_the_place_of_settings_is_named() -> None:
    with pytest.raises(ConfigError, match="GibbsEnum takes settings of a search"):
        GibbsEnum(scorer(LIKELIHOOD))  # type: ignore[arg-type]  # the mistake


def test_a_class_that_is_no_method_is_named() -> None:
    with pytest.raises(ConfigError, match="is no method of search"):
        make_method(f"{__file__}:GruVictim")


def test_a_method_that_is_bound_leaves_the_one_it_came_from_alone() -> None:
    method = GibbsEnum(SearchSettings(candidates=5), restarts=2)
    assert (method.settings.candidates, method.settings.restarts) == (5, 2)
    ready = bound(lambda settings: method, scorer(LIKELIHOOD), method.settings)
    assert ready.goal.satisfied is never
    with pytest.raises(AssertionError, match="bound to a goal"):
        _ = method.goal


def test_every_public_name_is_there() -> None:
    assert {"GibbsEnum", "search", "TriggerSearch"} <= set(dir(parley.engine.triggers))
    for name in parley.engine.triggers.__all__:
        assert getattr(parley.engine.triggers, name).__module__.startswith("parley.engine.triggers")
    with pytest.raises(AttributeError, match="Gibs"):
        _ = parley.engine.triggers.Gibs


@pytest.mark.parametrize("hit", ["io-sample-min-k1", "o-sample-min-k1"])
def test_searches_for_likely_inputs_start_from_the_language_model(hit: str) -> None:
    victim = Seq2SeqVictim(seq2seq(), language_model())
    composed = TriggerSearch(victim, FEW, hit=hit, thresholds=Thresholds(t_out=-3.0, t_in=-3.0))
    todo = [*tasks_of({"one": victim.target(WORDS[0]), "two": victim.target(WORDS[1])}, 2, seed=3)]
    assert isinstance(composed.method, GibbsEnum)
    begun = torch.stack([state.best.words for state in composed.method.start(todo)])
    likely = victim.likely_inputs([derive_seed(task.seed, "input", task.key, task.restart) for task in todo])
    assert torch.equal(begun, likely) == hit.startswith("io")


def test_a_target_that_is_longer_than_replies_is_refused_and_not_hit() -> None:
    victim = Seq2SeqVictim(seq2seq())
    longest = victim.longest_reply
    for too_long in (" ".join(WORDS[:longest]), [*victim.target(WORDS[0])[:1].tolist() * longest, EOS_ID]):
        message = rf"longer than the model's replies(.|\n)*{longest + 1} words(.|\n)*{longest} at most"
        with pytest.raises(DataError, match=message):
            search(victim, [too_long], method=FEW)  # type: ignore[list-item]  # texts or ids
    (found,) = search(victim, [" ".join(WORDS[: longest - 1])], method=FEW)
    assert len(found.reading.likeliest) == longest
