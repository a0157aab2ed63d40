"""Perturbations of dialogue contexts (Niu & Bansal 2018), with their rules, lexicons and a paraphraser.

Start with `strategy.py` for what a strategy is, `catalogue.py` for which there are; `replies/` has rules on replies. Everything
is a pure function of tokenised turns and a seed; nothing here knows of Ray or of run folders.

    from parley.engine.perturb import perturb_text, perturb_texts
"""

from parley.envs.core.errors import public

__all__, __getattr__ = public(
    __name__,
    {
        "Expectation": "strategy",
        "OnUtterances": "strategy",
        "PerturbSettings": "strategy",
        "perturb_by_strategy": "catalogue",
        "perturb_text": "catalogue",
        "perturb_texts": "catalogue",
    },
)
