"""What a Hugging Face folder ranks with: a cross-encoder, or a bi-encoder in the layout of sentence-transformers.

That layout is read here, with transformers alone: `modules.json` lists a transformer, a pooling and perhaps a normalisation,
each with a folder and a configuration of its own; `config_sentence_transformers.json` says how vectors are compared and what is
put before texts. A list of one transformer is a cross-encoder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from envs.core.errors import CheckpointError
from policies.hugging_face import read_config, read_pretrained
from policies.ranking.encoders import POOLING, BiEncoder, CrossEncoder
from policies.stored import model_inside, reading

_MODULES, _COMPARISON = "modules.json", "config_sentence_transformers.json"
_KNOWN = ("Transformer", "Pooling", "Normalize")
_CAUSAL = ("ForCausalLM", "LMHeadModel")
_REPLY_PROMPTS = ("document", "passage", "corpus")
_OLD_MODES = {"cls_token": "cls", "max_tokens": "max", "mean_tokens": "mean"}
_OLD = "pooling_mode_"


class _Module(NamedTuple):
    kind: str
    folder: Path


def load_hugging_face_ranker(folder: Path, device: str = "cpu") -> CrossEncoder | BiEncoder:
    """The ranker of a folder; nothing is downloaded, no code in it is run, weights are safetensors.

    Args:
        folder: as `save_pretrained`, or sentence-transformers, wrote it.
        device: torch device.

    Raises:
        ConfigError: transformers is not installed.
        CheckpointError: there is no such folder, or it holds no ranker, one that wants code of its own to be run, one whose
            parts are not known here, or not all weights.
    """
    modules = _modules(folder)
    transformer = next((module.folder for module in modules if module.kind == "Transformer"), folder)
    if any(module.kind == "Pooling" for module in modules):
        return _bi_encoder(folder, modules, transformer, device)
    architectures = read_config(transformer).architectures or ["none"]
    # Another model would get a head of random weights.
    if not architectures[0].endswith("ForSequenceClassification"):
        raise CheckpointError(
            "the folder holds no ranker",
            where=folder,
            got=f"architecture {architectures[0]}, and no pooling in a {_MODULES}",
            fix="name a cross-encoder (...ForSequenceClassification) or a folder that sentence-transformers wrote",
        )
    tokenizer, model = read_pretrained(transformer, lambda config: "AutoModelForSequenceClassification")
    return CrossEncoder(model.to(device), tokenizer)


def is_causal(folder: Path) -> bool:
    """Whether a folder holds a causal model of language, which ranks by how likely it finds replies."""
    folder = model_inside(folder)
    if (folder / _MODULES).is_file() or not (folder / "config.json").is_file():
        return False
    with reading(folder):
        return any(name.endswith(_CAUSAL) for name in _json(folder / "config.json").get("architectures") or [])


def _bi_encoder(folder: Path, modules: list[_Module], transformer: Path, device: str) -> BiEncoder:
    pooling = next(module.folder for module in modules if module.kind == "Pooling")
    with reading(folder):
        modes = _modes(_json(pooling / "config.json"))
        settings, reads = _json(folder / _COMPARISON), _json(transformer / "sentence_bert_config.json")
        comparison, prompts = settings.get("similarity_fn_name") or "cosine", settings.get("prompts") or {}
        default = prompts.get(settings.get("default_prompt_name"), "")
        before_reply = next((prompts[name] for name in _REPLY_PROMPTS if name in prompts), default)
        longest = reads.get("max_seq_length")
    if unknown := {*modes} - {*POOLING} or ({comparison} - {"cosine", "dot"}):
        raise CheckpointError(
            "the bi-encoder does with vectors what is not known here",
            where=folder,
            got=", ".join(sorted(unknown)),
            fix=f"name one that pools by {', '.join(POOLING)} and compares by cosine or dot",
        )
    cosine = comparison == "cosine" or any(module.kind == "Normalize" for module in modules)
    tokenizer, model = read_pretrained(transformer, lambda config: "AutoModel")
    return BiEncoder(model.to(device), tokenizer, modes, cosine, longest, (prompts.get("query", default), before_reply))


def _modules(folder: Path) -> list[_Module]:
    """What `modules.json` lists; nothing where there is none."""
    with reading(folder):
        listed: list[dict[str, str]] = (
            json.loads((folder / _MODULES).read_text(encoding="utf-8")) if (folder / _MODULES).is_file() else []
        )
        # Older and newer versions put the same classes into other packages.
        modules = [_Module(entry["type"].rpartition(".")[2], folder / entry["path"]) for entry in listed]
    unknown = [module.kind for module in modules if module.kind not in _KNOWN]
    if unknown or any(not module.folder.resolve().is_relative_to(folder.resolve()) for module in modules):
        raise CheckpointError(
            "the folder's modules are not known here",
            where=folder / _MODULES,
            got=", ".join(unknown) or "a path out of the folder",
            fix=f"name a model that is made of {', '.join(_KNOWN)}",
        )
    return modules


def _modes(config: dict[str, Any]) -> list[str]:
    """How a pooling pools; older versions have one switch for each way, newer ones name them."""
    named = config.get("pooling_mode")
    if named is not None:
        return [named] if isinstance(named, str) else list(named)
    switched = [name.removeprefix(_OLD) for name, value in config.items() if name.startswith(_OLD) and value]
    # The library's order, whatever the file's.
    return sorted((_OLD_MODES.get(name, name) for name in switched), key=[*POOLING, *switched].index) or ["mean"]


def _json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
