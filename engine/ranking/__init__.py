"""Attacks on rankers of candidate replies under a budget of queries. Pure algorithms, without Ray.

    from parley.engine.ranking import AttackSettings, compose_attack

Start with `attack.py` for what an attack is composed of and how many examples share batches. Then `goals.py` for what is
wanted, `drafts.py` and `moves.py` for how a reply is edited, `constraints.py` for what is checked before a query, `methods.py`
and `gaslite.py` for the order in which edits are tried, and `outcomes.py` for what is read off.
"""

from parley.envs.core.lazy import public

__all__, __getattr__ = public(
    __name__,
    {
        "AttackOutcome": "attacks.outcomes",
        "AttackSettings": "attacks.settings",
        "EditorModule": "rl.editing",
        "EditBeam": "attacks.methods",
        "FixedRule": "attacks.methods",
        "Gaslite": "attacks.gaslite",
        "ImportanceGreedy": "attacks.methods",
        "RandomEdits": "attacks.methods",
        "RandomSteps": "attacks.gaslite",
        "RandomWords": "attacks.gaslite",
        "RankAttack": "attacks.attack",
        "RankGoal": "attacks.goals",
        "SlopeGreedy": "attacks.methods",
        "compose_attack": "attacks.catalogue",
        "success_curve": "attacks.outcomes",
        "transferred": "attacks.outcomes",
    },
)
