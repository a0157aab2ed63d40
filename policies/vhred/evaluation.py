"""How much the latent variable of a VHRED is used. What it predicts is measured by `policies/core/fitting/evaluation.py`."""

from __future__ import annotations

import numpy as np
import torch

from parley.policies.core.fitting.batches import in_order
from parley.policies.vhred.batches import DialogueExamples
from parley.policies.vhred.model import VHRED

_ROWS = 256


@torch.no_grad()
def divergences(model: VHRED, examples: DialogueExamples) -> np.ndarray:
    """KL(posterior || prior) of each reply (n,) in nats, shortest replies first; dropout is off while it runs."""
    was_training = model.training
    model.eval()
    device = model.output.weight.device
    found = [model.divergences(batch.to(device)).double().cpu().numpy() for batch in in_order(examples, _ROWS)]
    model.train(was_training)
    return np.concatenate(found)
