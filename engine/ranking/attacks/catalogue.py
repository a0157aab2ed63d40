"""Attacks by their settings: methods by name, and the composition that settings stand for."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Any

from parley.engine.ranking.attacks.settings import POLICY, AttackSettings
from parley.engine.ranking.metrics.searched import BASELINE, GASLITE, RANDOM_STEPS, RANDOM_WORDS
from parley.envs.core.errors import ConfigError
from parley.envs.core.registry import Registry, nearest
from parley.envs.core.storage.copies import fetched_model

if TYPE_CHECKING:
    from parley.engine.perturb.lexicon.ngrams import NGrams
    from parley.engine.perturb.replies.language import ReplyLanguage
    from parley.engine.perturb.replies.resources import RuleResources
    from parley.engine.ranking.attacks.attack import RankAttack
    from parley.engine.ranking.attacks.constraints import Constraint, Vectors
    from parley.engine.ranking.attacks.editing import AttackRule, EditorSteps
    from parley.engine.ranking.attacks.model_access import Need
    from parley.policies.ranking.ranker import Ranker

UNLIMITED = 1_000_000
"""A budget of queries that edits end before."""
rank_attacks = Registry("method of attacks on rankers", "parley.rank_attacks")
"""Classes that are called without arguments, the beam with its width, gaslite and random-steps with their sizes."""
rank_attacks.register(
    "greedy", "words by what erasing them does, each by its best edit", "parley.engine.ranking.attacks.methods:ImportanceGreedy"
)
rank_attacks.register("beam", "all edits of the best few drafts", "parley.engine.ranking.attacks.methods:EditBeam")
rank_attacks.register(BASELINE, "random edits, the baseline", "parley.engine.ranking.attacks.methods:RandomEdits")
rank_attacks.register("gradient", "what a ranker's own slopes point to", "parley.engine.ranking.attacks.methods:SlopeGreedy")
rank_attacks.register(
    GASLITE,
    "words of a bi-encoder's vocabulary behind the reply, by averaged slopes (Ben-Tov & Sharif 2024)",
    "parley.engine.ranking.attacks.gaslite:Gaslite",
)
rank_attacks.register(
    RANDOM_STEPS,
    "the steps of gaslite with random words in the place of those that slopes point to, its control",
    "parley.engine.ranking.attacks.gaslite:RandomSteps",
)
rank_attacks.register(
    RANDOM_WORDS,
    "random words of a bi-encoder's vocabulary behind the reply, the control of random-steps",
    "parley.engine.ranking.attacks.gaslite:RandomWords",
)


def attack_names(chosen: str) -> tuple[str, ...]:
    """The methods that a list names, each once.

    Args:
        chosen: separated by commas.

    Raises:
        ConfigError: none is named, or one is unknown, with the nearest name.
    """
    found = tuple(dict.fromkeys(name for part in chosen.split(",") if (name := part.strip())))
    fix = f"methods: {', '.join(rank_attacks)}, {POLICY}RUN, or path/file.py:Name"
    if not found:
        raise ConfigError("no method of attacks is named", got=repr(chosen), fix=fix)
    for name in found:
        if name not in rank_attacks and ".py:" not in name and not name.startswith(POLICY):
            raise ConfigError(f"no method of attacks on rankers is called {name!r}{nearest(name, rank_attacks)}", fix=fix)
    return found


def compose_attack(
    ranker: Ranker,
    language: ReplyLanguage,
    settings: AttackSettings | None = None,
    *,
    known: Container[str] | None = None,
    ngrams: NGrams | None = None,
    vectors: Vectors | None = None,
    num_side_by_side: int = 64,
) -> RankAttack:
    """The attack that settings describe.

    Args:
        ranker: any.
        language: tags words and knows synonyms.
        settings: those of `AttackSettings` when None.
        known: words that may enter; all when None.
        ngrams: trigrams of a training split, for `max_perplexity_ratio`.
        vectors: of texts, for `min_cosine`.
        num_side_by_side: examples that share batches.

    Raises:
        ConfigError: no method is called so, it does not suit the ranker or the goal, or a limit is set and there is nothing to
            judge it by.
    """
    from parley.engine.ranking.attacks.attack import RankAttack
    from parley.engine.ranking.attacks.constraints import CloseInMeaning, Fluent, KeptTags, KnownWords
    from parley.engine.ranking.attacks.gaslite import Gaslite, RandomSteps
    from parley.engine.ranking.attacks.goals import RankGoal
    from parley.engine.ranking.attacks.methods import EditBeam
    from parley.engine.ranking.attacks.moves import BY_NAME

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
        fix = "name a class with a method steps (engine/ranking/attacks/methods.py), which is called without arguments"
        raise ConfigError("this is no method of attacks", where=settings.method, got=repr(method), fix=fix)
    edits, moves = settings.edits, [BY_NAME[name] for name in settings.moves] or None
    if getattr(method, "appends", False):
        # Any word may come behind the reply, of whatever tag, and none of the reply's own changes.
        edits, moves = sizes.num_words, []
        if settings.goal != "promote":
            what, fix = "words behind a right reply may make a wrong one of it", "take --goal promote, or another method"
            raise ConfigError(what, where=settings.method, got=f"--goal {settings.goal}", fix=fix)
    else:
        constraints = [*([] if known is None else [KnownWords(known)]), *constraints]
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


def need_of(name: str) -> Need | None:
    """What a method needs of rankers beside scores; None where scores are enough.

    Args:
        name: of the method, as `attack_names` gives it.
    """
    return None if name.startswith(POLICY) else getattr(rank_attacks.get(name), "needs", None)


def policy_of(name: str) -> EditorSteps:
    """The trained editing policy that a name stands for, as a method.

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
    """What a trained editing policy makes of wrong replies, at the ranker that it was trained against.

    Args:
        name: editor:RUN.
        resources: the language, and training contexts for a ranker that is fitted.

    Raises:
        CheckpointError: as `policy_of`; or the ranker is not there any more.
    """
    from parley.engine.ranking.attacks.attack import RankAttack
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
