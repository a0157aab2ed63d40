"""Attacks on rankers of candidate replies under a budget of queries. Pure algorithms, without Ray.

    from parley.engine.ranking import AttackSettings, compose_attack

Start with `attack.py` for what an attack is composed of and how many examples share batches. Then `goals.py` for what is
wanted, `drafts.py` and `moves.py` for how a reply is edited, `constraints.py` for what is checked before a query, `methods.py`
and `gaslite.py` for the order in which edits are tried, and `outcomes.py` for what is read off.
"""

from parley.envs.core.errors import public

__all__, __getattr__ = public(
    __name__,
    {
        "AttackOutcome": "attacks.cases",
        "AttackSettings": "attacks.settings",
        "EditorModule": "rl",
        "EditBeam": "attacks.attack",
        "FixedRule": "attacks.attack",
        "Gaslite": "attacks.attack",
        "ImportanceGreedy": "attacks.attack",
        "RandomEdits": "attacks.attack",
        "RandomSteps": "attacks.attack",
        "RandomWords": "attacks.attack",
        "RankAttack": "attacks.attack",
        "RankGoal": "attacks.goals",
        "SlopeGreedy": "attacks.attack",
        "compose_attack": "attacks.catalogue",
        "success_curve": "attacks.cases",
        "transferred": "attacks.cases",
    },
)
