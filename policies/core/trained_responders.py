"""Response models that Parley trained, by the run or checkpoint that holds one (see `policies/core/responder.py`)."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from parley.envs.core.errors import CheckpointError
from parley.envs.core.registry import Registry
from parley.envs.core.storage.copies import fetched_model
from parley.policies.core.responder import Responder
from parley.policies.core.stored import stored_kind

kinds = Registry("kind of response model", "parley.responders")
"""By the kind of their checkpoints; each is a function from a run or checkpoint folder to a responder."""
kinds.register("seq2seq", "parley train seq2seq", "parley.policies.seq2seq.responder:load_responder")
kinds.register("vhred", "parley train vhred", "parley.policies.vhred.responder:load_vhred")


def load_trained(name: str | Path) -> Responder:
    """The response model of a run or checkpoint, on the CPU and in evaluation mode.

    Args:
        name: its folder or URI.

    Raises:
        CheckpointError: nothing is there, it is damaged, or models of its kind do not answer.
    """
    folder = fetched_model(name)
    kind = stored_kind(folder)
    if kind not in kinds:
        raise CheckpointError(
            "models of this kind do not answer",
            where=folder,
            got=f"kind {kind!r}",
            fix=f"name a model of {' or '.join(map(kinds.summary, kinds))}, or path/file.py:Name",
        )
    return cast("Responder", kinds.get(kind)(folder))
