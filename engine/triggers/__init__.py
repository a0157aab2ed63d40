"""Trigger search: inputs that make a dialogue model say a given sentence (He & Glass 2018). Pure algorithms, without Ray.

Start with `objective.py` for what is minimised and `hits.py` for what counts, then `scorer.py` for what a search asks of a
model, and `gibbs_enum.py` for the paper's search. `catalogue.py` lists the searches; one's own derives from `method.py`.
"""

from envs.core.lazy import public

__all__, __getattr__ = public(__name__, {"GibbsEnum": "gibbs_enum"})
