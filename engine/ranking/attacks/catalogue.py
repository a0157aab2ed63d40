"""Registry of attack methods, composition of an attack from its settings, and conformance checks of methods."""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from parley.engine.perturb.lexicon.built_in import open_lexicon
from parley.engine.perturb.replies.language import English, ReplyLanguage
from parley.engine.ranking.attacks.attack import AttackMethod, RankAttack
from parley.engine.ranking.attacks.cases import AttackOutcome
from parley.engine.ranking.attacks.settings import POLICY, AttackSettings
from parley.engine.ranking.metrics.searched import BASELINE, GASLITE, RANDOM_STEPS, RANDOM_WORDS
from parley.envs.core.conformance import Kind, expect, same_alone
from parley.envs.core.errors import ConfigError
from parley.envs.core.registry import Registry, nearest
from parley.envs.core.storage.copies import fetched_model
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import CandidateGroup, CandidateKind, Context

if TYPE_CHECKING:
    from parley.engine.perturb.lexicon.tagger import NGrams
    from parley.engine.perturb.replies.shapes import RuleResources
    from parley.engine.ranking.attacks.cases import Constraint, Requirement, Vectors
    from parley.engine.ranking.attacks.editing import AttackRule, EditorSteps
    from parley.policies.ranking.ranker import Ranker


UNLIMITED = 1_000_000
"""A budget of queries that edits end before."""
rank_attacks = Registry("method of attacks on rankers", "parley.rank_attacks")
"""Classes that are called without arguments, the beam with its width, gaslite and random-steps with their sizes."""
rank_attacks.register(
    "greedy", "words by what erasing them does, each by its best edit", "parley.engine.ranking.attacks.attack:ImportanceGreedy"
)
rank_attacks.register("beam", "all edits of the best few drafts", "parley.engine.ranking.attacks.attack:EditBeam")
rank_attacks.register(BASELINE, "random edits, the baseline", "parley.engine.ranking.attacks.attack:RandomEdits")
rank_attacks.register("gradient", "what a ranker's own slopes point to", "parley.engine.ranking.attacks.attack:SlopeGreedy")
rank_attacks.register(
    GASLITE,
    "words of a bi-encoder's vocabulary behind the reply, by averaged slopes (Ben-Tov & Sharif 2024)",
    "parley.engine.ranking.attacks.attack:Gaslite",
)
rank_attacks.register(
    RANDOM_STEPS,
    "the steps of gaslite with random words in the place of those that slopes point to, its control",
    "parley.engine.ranking.attacks.attack:RandomSteps",
)
rank_attacks.register(
    RANDOM_WORDS,
    "random words of a bi-encoder's vocabulary behind the reply, the control of random-steps",
    "parley.engine.ranking.attacks.attack:RandomWords",
)


def attack_names(chosen: str) -> tuple[str, ...]:
    """Return the distinct methods of a comma-separated list.

    Args:
        chosen: separated by commas.

    Raises:
        ConfigError: none is named, or one is unknown, with the nearest name.
    """
    names = tuple(dict.fromkeys(name for part in chosen.split(",") if (name := part.strip())))
    fix = f"methods: {', '.join(rank_attacks)}, {POLICY}RUN, or path/file.py:Name"
    if not names:
        raise ConfigError("no method of attacks is named", got=repr(chosen), fix=fix)
    for name in names:
        if name not in rank_attacks and ".py:" not in name and not name.startswith(POLICY):
            raise ConfigError(f"no method of attacks on rankers is called {name!r}{nearest(name, rank_attacks)}", fix=fix)
    return names


def compose_attack(
    ranker: Ranker,
    language: ReplyLanguage,
    settings: AttackSettings | None = None,
    *,
    vocabulary: Container[str] | None = None,
    ngrams: NGrams | None = None,
    vectors: Vectors | None = None,
    num_side_by_side: int = 64,
) -> RankAttack:
    """Compose the attack of some settings.

    Args:
        ranker: any.
        language: tags words and knows synonyms.
        settings: those of `AttackSettings` when None.
        vocabulary: words that may enter; all when None.
        ngrams: trigrams of a training split, for `max_perplexity_ratio`.
        vectors: of texts, for `min_cosine`.
        num_side_by_side: examples that share batches.

    Raises:
        ConfigError: no method is called so, it does not suit the ranker or the goal, or a limit is set and there is nothing to
            judge it by.
    """
    from parley.engine.ranking.attacks.attack import EditBeam, Gaslite, RandomSteps
    from parley.engine.ranking.attacks.cases import BY_NAME, CloseInMeaning, Fluent, KeptTags, KnownWords
    from parley.envs.ranking.edit_game import RankGoal

    settings = AttackSettings() if settings is None else settings
    constraints: list[Constraint] = []
    if settings.max_perplexity_ratio is not None:
        if ngrams is None:
            raise _unjudged("max_perplexity_ratio", "ngrams, trigrams of a training split")
        constraints.append(Fluent(ngrams, settings.max_perplexity_ratio))
    if settings.min_cosine is not None:
        if vectors is None:
            raise _unjudged("min_cosine", "vectors of texts")
        constraints.append(CloseInMeaning(vectors, settings.min_cosine))
    kind: Any = policy_of if settings.method.startswith(POLICY) else rank_attacks.get(settings.method)
    sizes = settings.gaslite
    known_arguments = {
        EditBeam: (settings.beams,),
        Gaslite: (sizes.num_positions, sizes.num_candidates, sizes.num_gradients),
        RandomSteps: (sizes.num_positions, sizes.num_candidates),
        policy_of: (settings.method,),
    }
    method = kind(*known_arguments.get(kind, ()))
    if not hasattr(method, "steps"):
        fix = "name a class with a method steps (engine/ranking/attacks/attack.py), which is called without arguments"
        raise ConfigError("this is no method of attacks", where=settings.method, got=repr(method), fix=fix)
    edits, moves = settings.edits, [BY_NAME[name] for name in settings.moves] or None
    if getattr(method, "appends", False):
        # Any word may come behind the reply, of whatever tag, and none of the reply's own changes.
        edits, moves = sizes.num_words, []
        if settings.goal != "promote":
            what, fix = "words behind a right reply may make a wrong one of it", "take --goal promote, or another method"
            raise ConfigError(what, where=settings.method, got=f"--goal {settings.goal}", fix=fix)
    else:
        constraints = [*([] if vocabulary is None else [KnownWords(vocabulary)]), *constraints]
        constraints += [KeptTags(language)] if settings.keep_tags else []
    return RankAttack(
        ranker,
        language,
        goal=RankGoal(settings.goal, settings.rank, settings.target),
        method=method,
        moves=moves,
        constraints=constraints,
        edits=edits,
        budget=settings.budget,
        num_side_by_side=num_side_by_side,
    )


def need_of(name: str) -> Requirement | None:
    """Return the access to rankers that a method needs beside scores; None if scores are enough.

    Args:
        name: of the method, as `attack_names` gives it.
    """
    return None if name.startswith(POLICY) else getattr(rank_attacks.get(name), "needs", None)


def policy_of(name: str) -> EditorSteps:
    """Load a trained editing policy as a method.

    Args:
        name: editor:RUN, a run or checkpoint, by folder or URI.

    Raises:
        CheckpointError: nothing is there, it is damaged, or no editing policy.
    """
    from parley.engine.ranking.attacks.editing import EditorSteps
    from parley.envs.core.config import from_dict
    from parley.envs.ranking.edit_game import EditRules
    from parley.policies.ranking.editor import FORMAT

    folder = fetched_model(name.removeprefix(POLICY))
    return EditorSteps(FORMAT.load(folder), from_dict(EditRules, FORMAT.provenance(folder)["game"]))


def policy_rule(name: str, resources: RuleResources) -> AttackRule:
    """Load a trained editing policy as a rule that edits wrong replies, with the ranker of its training.

    Args:
        name: editor:RUN.
        resources: the language, and training contexts for a ranker that is fitted.

    Raises:
        CheckpointError: as `policy_of`; or the ranker is not there any more.
    """
    from parley.engine.ranking.attacks.editing import AttackRule
    from parley.policies.ranking.editor import FORMAT
    from parley.policies.ranking.rankers import load_ranker

    method = policy_of(name)
    model = FORMAT.provenance(fetched_model(name.removeprefix(POLICY)))["model"]
    ranker = load_ranker(model, resources.contexts.get("training"))
    edits = method.rules.edits
    return AttackRule(name, RankAttack(ranker, resources.language, method=method, edits=edits, budget=UNLIMITED))


def _unjudged(name: str, what: str) -> ConfigError:
    return ConfigError(f"there is nothing to judge {name} by", where=name, fix=f"give {what}, or leave {name} out")


_EDITS = 2
_CONTEXT: Context = (("my", "screen", "is", "black"), ("did", "you", "turn", "the", "machine", "on", "?"))
_RIGHT: Utterance = ("the", "machine", "is", "on", "but", "my", "screen", "is", "black")
_WRONG: tuple[Utterance, ...] = (
    ("you", "can", "install", "the", "package"),
    ("thanks",),
    ("a", "big", "dog", "ran", "home"),
    (),
)
_GROUPS = [
    CandidateGroup(
        f"test-{number}", _CONTEXT, (_RIGHT, words), (True, False), (CandidateKind.POSITIVE, CandidateKind.RANDOM), (True, True)
    )
    for number, words in enumerate(_WRONG)
]
_GLUED = "##s"
_VOCABULARY = (*sorted({word for turn in _CONTEXT for word in turn}), "dog", "home", _GLUED)
_SEEDS = range(len(_GROUPS))


class _Shared:
    """A ranker that counts shared words and gives slopes; each word is one token, except the glued one."""

    def score(self, context: Context, candidates: Sequence[Utterance]) -> list[float]:
        context_words = set().union(*context)
        return [float(sum(word in context_words for word in reply)) for reply in candidates]

    def slopes(self, context: Context, reply: Utterance, words: Sequence[str]) -> np.ndarray:
        here, there = ([self.score(context, [(word,)])[0] for word in of] for of in (reply, words))
        return np.subtract.outer(np.array(there), np.array(here)).T.reshape(len(reply), len(words))

    def vocabulary(self) -> Sequence[str]:
        return _VOCABULARY

    def reads(self, reply: Utterance, words: Utterance) -> bool:
        return words[0] != _GLUED


@cache
def _language() -> ReplyLanguage:
    return English(open_lexicon("built-in"))


def _make(named: Any) -> AttackMethod:
    method: AttackMethod = named() if callable(named) else named
    return method


def _run(
    method: AttackMethod, groups: Sequence[CandidateGroup], seeds: Sequence[int], budget: int = 200
) -> list[AttackOutcome]:
    return RankAttack(_Shared(), _language(), method=method, edits=_EDITS, budget=budget).run(groups, seeds)


def _ends_with_an_allowed_reply(method: AttackMethod) -> None:
    """End within the budget, with a reply whose edits are allowed."""
    for group, outcome in zip(_GROUPS, _run(method, _GROUPS, _SEEDS), strict=True):
        expect(outcome.was_tried, "an attack on each group", f"{outcome.status}: {outcome.reason}")
        expect(outcome.cost <= _EDITS, f"at most {_EDITS} words changed", f"{outcome.cost} in {outcome.words!r}")
        twice = outcome.cost > 0 and outcome.words in group.candidates
        expect(not twice, "a reply that is no other candidate", repr(outcome.words))


def _asks_the_same_whatever_its_budget(method: AttackMethod) -> None:
    """Ask the same queries under a smaller budget, cut short, and the same in a second run."""
    whole, again, cut = (_run(method, _GROUPS, _SEEDS, budget) for budget in (200, 200, 5))
    expect(whole == again, "the same outcome twice", "another one the second time")
    for large, small in zip(whole, cut, strict=True):
        kept = tuple(point for point in large.trace if point.queries <= 5)
        expect(small.trace == kept, "the trace of the larger budget, cut", f"{small.trace} and {large.trace}")


def _is_the_same_alone(method: AttackMethod) -> None:
    """Find the same for an example whatever other examples are attacked beside it."""
    alone = [_run(method, [group], [seed])[0] for group, seed in zip(_GROUPS, _SEEDS, strict=True)]
    same_alone(_run(method, _GROUPS, _SEEDS), alone, "what is found")


RANK_ATTACK = Kind(
    "method of attacks on rankers",
    "parley.engine.ranking.attacks.attack.AttackMethod",
    ("steps",),
    _make,
    (_ends_with_an_allowed_reply, _asks_the_same_whatever_its_budget, _is_the_same_alone),
)
