"""Perturbations of dialogue contexts (Niu & Bansal 2018), and what they lean on: rules, lexicons, a paraphraser.

Start with `strategy.py` for what a strategy is, `catalogue.py` for which there are. Everything is a pure function of tokenised
turns and a seed; nothing here knows of Ray or of run folders.

    from engine.perturb import perturb_text, perturb_texts
"""

from engine.perturb.augment import perturb_text, perturb_texts

__all__ = ["perturb_text", "perturb_texts"]
