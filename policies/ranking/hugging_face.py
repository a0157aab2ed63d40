"""What a Hugging Face folder ranks with: a cross-encoder, or a bi-encoder in the layout of sentence-transformers.

That layout is read here, with transformers alone: `modules.json` lists a transformer and what stands behind it
(`sentence_modules.py`), each with a folder and a configuration of its own; `config_sentence_transformers.json` says how vectors
are compared and what is put before texts. A list of one transformer is a cross-encoder. What a folder asks for is done as
sentence-transformers 6.2 does it, or the folder is refused by the name of what is not known.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from parley.envs.core.errors import CheckpointError
from parley.policies.core.stored import model_inside, reading
from parley.policies.hugging_face.models import read_config, read_pretrained
from parley.policies.ranking.encoders import BiEncoder, CrossEncoder
from parley.policies.ranking.sentence_modules import (
    Pooling,
    StaticWords,
    activation_named,
    read_module,
    read_settings,
    read_weights,
)

_MODULES, _SETTINGS = "modules.json", "config_sentence_transformers.json"
_LIBRARY = "sentence_transformers."
_BEHIND = ("Pooling", "Dense", "Normalize", "LayerNorm", "WeightedLayerPooling", "Dropout")
_TRANSFORMER, _STATIC = "Transformer", "StaticEmbedding"
_CAUSAL = ("ForCausalLM", "LMHeadModel")
_OTHER_PROMPTS = ("passage", "corpus")
"""Names of prompts that the library documents for documents, and that it never takes."""
_ENCODERS = {"t5": "T5EncoderModel", "mt5": "MT5EncoderModel", "umt5": "UMT5EncoderModel"}
"""Models with a decoder whose encoder alone is read."""
_TRANSFORMER_SETTINGS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
_HARMLESS = {"max_seq_length", "do_lower_case", "transformer_task", "modality_config", "module_output_name", "unpad_inputs"}
"""Settings of a transformer that are read, or change no result."""
_HARMLESS_ARGUMENTS = {
    *("attn_implementation", "torch_dtype", "dtype", "use_safetensors", "trust_remote_code", "padding_side", "use_fast"),
    *("low_cpu_mem_usage", "device_map"),
}
_ARGUMENTS = ("model_args", "model_kwargs", "tokenizer_args", "processor_kwargs", "config_args", "config_kwargs")
logger = logging.getLogger(__name__)
_IDENTITY, _SIGMOID = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Sigmoid"


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
    with reading(folder):
        settings = read_settings(folder / _SETTINGS)
    if any(module.kind in (_STATIC, "Pooling") for module in modules):
        return _bi_encoder(folder, modules, settings, device)
    transformer = modules[0].folder if modules else folder
    architectures = read_config(transformer).architectures or ["none"]
    # Another model would get a head of random weights.
    if not architectures[0].endswith("ForSequenceClassification"):
        raise CheckpointError(
            "the folder holds no ranker",
            where=folder,
            got=f"architecture {architectures[0]}, and no pooling in a {_MODULES}",
            fix="name a cross-encoder (...ForSequenceClassification) or a folder that sentence-transformers wrote",
        )
    if len(modules) > 1:
        _refuse(folder / _MODULES, ", ".join(module.kind for module in modules), "a cross-encoder of one transformer")
    return _cross_encoder(folder, transformer, settings, is_listed=bool(modules), device=device)


def is_causal(folder: Path) -> bool:
    """Whether a folder holds a causal model of language, which ranks by how likely it finds replies."""
    folder = model_inside(folder)
    if (folder / _MODULES).is_file() or not (folder / "config.json").is_file():
        return False
    with reading(folder):
        return any(name.endswith(_CAUSAL) for name in read_settings(folder / "config.json").get("architectures") or [])


def _cross_encoder(
    folder: Path, transformer: Path, settings: Mapping[str, Any], *, is_listed: bool, device: str
) -> CrossEncoder:
    _require_model_type(folder, settings, "CrossEncoder")
    reads = _transformer_settings(transformer, "sequence-classification")
    tokenizer, model = read_pretrained(transformer, lambda config: "AutoModelForSequenceClassification")
    _lower_case(tokenizer, reads, transformer)
    # The library reads a template where nothing is said, and where the folder says so.
    modalities = reads.get("modality_config", {} if is_listed else {"message": {}})
    template = bool(tokenizer.chat_template) and "message" in modalities
    labels = model.config.num_labels
    old = getattr(model.config, "sentence_transformers", None) or {}
    name = settings.get("activation_fn") or old.get("activation_fn")
    name = name or getattr(model.config, "sbert_ce_default_activation_function", None)
    if labels == 2 and name not in (None, _IDENTITY):
        _refuse(folder, f"{labels} logits behind {name}", "two logits as they are, or one behind an activation")
    return CrossEncoder(
        model.to(device),
        tokenizer,
        activation=activation_named(name or (_SIGMOID if labels == 1 else _IDENTITY), folder),
        longest=reads.get("max_seq_length"),
        prompt=(settings.get("prompts") or {}).get(settings.get("default_prompt_name")) or "",
        by_template=template,
    )


def _bi_encoder(folder: Path, modules: Sequence[_Module], settings: Mapping[str, Any], device: str) -> BiEncoder:
    _require_model_type(folder, settings, "SentenceTransformer")
    first, *behind = modules
    with reading(folder):
        stages = [stage for module in behind if (stage := read_module(module.kind, module.folder)) is not None]
    comparison, prompts = settings.get("similarity_fn_name") or "cosine", settings.get("prompts") or {}
    if comparison not in ("cosine", "dot"):
        _refuse(folder, comparison, "a comparison by cosine or dot")
    if first.kind == _STATIC:
        with reading(folder):
            tokenizer, model, reads = _static_tokenizer(first.folder), StaticWords(read_weights(first.folder)), {}
        stages = [Pooling(), *stages]
    else:
        reads = _transformer_settings(first.folder, "feature-extraction")
        tokenizer, model = read_pretrained(first.folder, lambda config: _ENCODERS.get(config.model_type, "AutoModel"))
        if model.config.is_encoder_decoder and model.config.model_type not in _ENCODERS:
            _refuse(first.folder, model.config.model_type, f"an encoder, or the encoder of {', '.join(_ENCODERS)}")
        _lower_case(tokenizer, reads, first.folder)
    default = prompts.get(settings.get("default_prompt_name")) or ""
    # Queries and documents have prompts of their own, empty ones where the folder names none.
    if unused := [name for name in _OTHER_PROMPTS if prompts.get(name) and not prompts.get("document")]:
        what = "%s: no prompt stands before replies, as in encode_document of sentence-transformers 6.2; call %r document"
        logger.warning(what, folder, unused[0])
    return BiEncoder(
        model.eval().to(device),
        tokenizer,
        stages,
        cosine=comparison == "cosine",
        longest=reads.get("max_seq_length"),
        prompts=(prompts.get("query") or "", prompts.get("document") or ""),
        default_prompt=default,
        truncate=settings.get("truncate_dim"),
    )


def _modules(folder: Path) -> list[_Module]:
    """What `modules.json` lists; nothing where there is none."""
    with reading(folder):
        path = folder / _MODULES
        listed: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
        # Older and newer versions put the same classes into other packages of the library.
        types, paths = [str(entry["type"]) for entry in listed], [folder / entry["path"] for entry in listed]
    if any(not path.resolve().is_relative_to(folder.resolve()) for path in paths):
        _refuse(folder / _MODULES, "a path out of the folder", "paths below it")
    kinds = [name.rpartition(".")[2] if name.startswith(_LIBRARY) else name for name in types]
    unknown = [kind for kind in kinds[:1] if kind not in (_TRANSFORMER, _STATIC)]
    unknown += [kind for kind in kinds[1:] if kind not in _BEHIND]
    unknown += [f"{kind} with {entry['kwargs']}" for kind, entry in zip(kinds, listed, strict=True) if entry.get("kwargs")]
    if unknown:
        _refuse(folder / _MODULES, ", ".join(unknown), f"{_TRANSFORMER} or {_STATIC}, and then {', '.join(_BEHIND)}")
    return [_Module(kind, path) for kind, path in zip(kinds, paths, strict=True)]


def _require_model_type(folder: Path, settings: Mapping[str, Any], wanted: str) -> None:
    if (kind := settings.get("model_type") or wanted) != wanted:
        _refuse(folder / _SETTINGS, kind, f"a {wanted} of sentence-transformers")


def _transformer_settings(folder: Path, task: str) -> dict[str, Any]:
    """Return what sentence-transformers keeps beside a transformer, where nothing in it is unknown here."""
    names = [f"sentence_{kind}_config.json" for kind in _TRANSFORMER_SETTINGS]
    with reading(folder):
        settings = next(filter(None, (read_settings(folder / name) for name in names)), {})
    given = {name: value for name, value in settings.items() if value not in (None, False, "", [], {})}
    unknown = [name for name in given if name not in _HARMLESS and name not in _ARGUMENTS]
    unknown += [f"{name}.{key}" for name in _ARGUMENTS for key in {*given.get(name, {})} - _HARMLESS_ARGUMENTS]
    unknown += [f"modality {name}" for name in given.get("modality_config", {}) if name not in ("text", "message")]
    if task == "feature-extraction" and "message" in given.get("modality_config", {}):
        unknown.append("modality message (texts in a chat template)")
    if given.get("transformer_task", task) != task:
        unknown.append(f"task {given['transformer_task']}")
    if unknown:
        _refuse(folder, ", ".join(sorted(unknown)), f"a transformer with the settings {', '.join(sorted(_HARMLESS))}")
    return settings


def _lower_case(tokenizer: Any, reads: Mapping[str, Any], folder: Path) -> None:
    """Lower-case texts before a tokenizer reads them, where the folder says so."""
    if not reads.get("do_lower_case"):
        return
    from tokenizers.normalizers import Lowercase
    from tokenizers.normalizers import Sequence as Normalizers

    if not tokenizer.is_fast:
        _refuse(folder, "do_lower_case with a slow tokenizer", "a folder with a tokenizer.json")
    inner = tokenizer.backend_tokenizer
    inner.normalizer = Lowercase() if inner.normalizer is None else Normalizers([Lowercase(), inner.normalizer])


def _static_tokenizer(folder: Path) -> Any:
    """Return the tokenizer of word vectors, which puts no marks around a text."""
    from tokenizers import Tokenizer
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer.from_file(str(folder / "tokenizer.json"))
    longest = (inner.truncation or {}).get("max_length")
    inner.no_truncation()
    inner.no_padding()
    inner.post_processor = TemplateProcessing(single="$A")
    limit = {} if longest is None else {"model_max_length": longest}
    return PreTrainedTokenizerFast(tokenizer_object=inner, **limit)


def _refuse(where: Path, got: str, known: str) -> None:
    """Raise CheckpointError: a folder asks for what is not known here."""
    raise CheckpointError("the folder asks for what is not known here", where=where, got=got, fix=f"name a model of {known}")
