"""Fixed rules that attack candidate replies (li2019): seven of the paper and four of ours.

Start with `shapes.py`, which holds the protocol of a rule, and `catalogue.py`, which lists all rules. A rule is a pure
function of groups and seeds; it uses the tags, lexicons, draws and edits of `engine/perturb`.

    from parley.engine.perturb.replies import build_rules
"""

from parley.envs.core.errors import public

__all__, __getattr__ = public(
    __name__, {"Attacked": "shapes", "ReplySettings": "settings", "Rule": "shapes", "build_rules": "catalogue"}
)
