"""Attacks on rankers of candidate replies under a budget of queries. Pure algorithms, without Ray.

    from parley.engine.ranking import AttackSettings, compose_attack

Start with `attacks/attack.py`: the parts of an attack, its goal, and the methods that order its edits. Then read
`attacks/cases.py`: drafts, moves, constraints, and the results of attacks.
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
        "RankGoal": "attacks.attack",
        "SlopeGreedy": "attacks.attack",
        "compose_attack": "attacks.catalogue",
        "success_curve": "attacks.cases",
        "transferred": "attacks.cases",
    },
)
