"""Hugging Face models from folders and files, read without running their code, and two kinds of victims of a trigger search.

The optional extra `hugging-face` installs the packages of loading; this module imports none of them at the top.

`HuggingFaceByText` is a causal model beside one with other tokens: it reads as text the input searched in the other's tokens.
So does the released code of Zou et al. 2023, where models have different tokenizers: a candidate is a string to each of them.

`HuggingFaceSeq2Seq` is a model of an encoder and a decoder; causal ones are in `victims.py`.

Shapes: B or R inputs, N searched positions, P positions around them, T tokens of a reply, V tokens, E embedding.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from parley.envs.core.errors import CheckpointError, ConfigError, ParleyError, how_to_install, sync
from parley.envs.core.storage.copies import fetched_file, fetched_model
from parley.envs.core.storage.uris import HUGGING_FACE
from parley.policies.chat.addresses import GGUF
from parley.policies.chat.model import Chat
from parley.policies.chat.settings import WeightSettings
from parley.policies.chat.templates import options_of, prints_date, say_once, use_options
from parley.policies.core.layers import multiply_fast
from parley.policies.core.responder import model_inside
from parley.policies.hugging_face.gguf import (
    ADAPTER,
    BASE_DIGEST,
    base_of,
    in_precision,
    is_adapter_alone,
    plain_folder,
    tell_of_adapter,
    tokenizer_folder,
    weights_digest,
    with_adapter,
    without_adapter,
)
from parley.policies.hugging_face.tokens import ANY, InputRules, load_tokenizer, marks_around, name_end, require_finite
from parley.policies.hugging_face.tokens import longest_input as longest_input
from parley.policies.hugging_face.victims import HuggingFaceCausal, HuggingFaceVictim


class HuggingFaceByText(HuggingFaceCausal):
    """A model that reads inputs in another model's tokens, as text typed into its own prompt.

    Args:
        victim: the model.
        other: the model in whose tokens words are searched; with the same request.
    """

    def __init__(self, victim: HuggingFaceCausal, other: HuggingFaceCausal) -> None:
        vars(self).update(vars(victim))
        self._other, self.searchable_V = other, other.searchable_V.to(victim.searchable_V.device)

    def behind(self, prompt: str) -> Self:
        copied = super().behind(prompt)
        copied._other = self._other.behind(prompt)
        return copied

    def slot_texts(self, ids: Sequence[int]) -> list[str]:
        return self._other.slot_texts(ids)

    def allows(self, words_RN: Tensor) -> Tensor:
        """Return all inputs (R,) as allowed: the other model's rules decide, and any text is read as it is."""
        return torch.ones(len(words_RN), dtype=torch.bool, device=words_RN.device)

    def reads(self, words_RN: Tensor) -> list[list[int]]:
        """Return the tokens of the whole prompt with each input typed into it, of different lengths."""
        return self._typed(words_RN.tolist())

    def _read(self, ids: Sequence[int]) -> list[int]:
        return self.typed(ids)


_SAMPLE = "a"


class HuggingFaceSeq2Seq(HuggingFaceVictim):
    """An encoder and a decoder, such as T5, BART or BlenderBot; the whole source is searched.

    What the tokenizer puts around a text stands around the input (T5: an end; BART: a beginning and an end). What it puts
    before the text of a reply is given to the decoder and not scored.
    """

    def __init__(self, model: Any, tokenizer: Any, length: int, *, end: bool = True, rules: InputRules = ANY) -> None:
        super().__init__(model, tokenizer, length, end=end, rules=rules)
        self._before, self._after = marks_around(tokenizer, text=_SAMPLE)
        start = model.config.decoder_start_token_id
        if start is None:
            raise ConfigError(
                "the model does not say which token its replies begin after",
                where=tokenizer.name_or_path or None,
                fix="set decoder_start_token_id in its config.json",
            )
        self._begin = [start, *marks_around(tokenizer, text_target=_SAMPLE)[0]]

    @property
    def num_before_reply(self) -> int:
        return len(self._begin)

    def reply_logits(self, embedded_BNE: Tensor, replies_BT: Tensor) -> Tensor:
        """Return logits (B, T, V) of each token of the replies given those before it, differentiable in the embeddings."""
        source = [self._embedded(self._before, embedded_BNE), embedded_BNE, self._embedded(self._after, embedded_BNE)]
        begin_BP = replies_BT.new_tensor(self._begin).expand(len(replies_BT), -1)
        decoded = self.model(
            inputs_embeds=torch.cat(source, dim=1),
            decoder_input_ids=torch.cat([begin_BP, replies_BT[:, :-1]], dim=1),
            use_cache=False,
        )
        logits_BTV: Tensor = decoded.logits[:, len(self._begin) - 1 :]
        return logits_BTV

    def _read(self, ids: Sequence[int]) -> list[int]:
        return [*self._before, *ids, *self._after]

    def _read_texts(self, texts: Sequence[str]) -> list[int]:
        read: list[int] = self.tokenizer(texts[0]).input_ids
        return read

    def _typed(self, rows: Sequence[Sequence[int]]) -> list[list[int]]:
        return [self._read_texts(self.slot_texts(ids)) for ids in rows]

    def steps(self, read: Sequence[int]) -> Callable[[list[int]], Tensor]:
        source_1N = torch.tensor([read], device=self.embedding_VE.device)
        cached = {"encoder_outputs": self.model.get_encoder()(input_ids=source_1N), "past": None}

        def step(reply: list[int]) -> Tensor:
            given = torch.tensor([reply[-1:] or self._begin], device=source_1N.device)
            output = self.model(
                encoder_outputs=cached["encoder_outputs"],
                decoder_input_ids=given,
                past_key_values=cached["past"],
                use_cache=True,
            )
            cached["past"] = output.past_key_values
            logits_V: Tensor = output.logits[0, -1].float()
            return logits_V

        return step


EXTRA = "hugging-face"
"""The optional extra of this package."""
GGUF_EXTRA = "gguf"
"""The optional extra that reads files of llama.cpp and spreads models over GPUs."""
WEIGHTS = WeightSettings()
"""Default weights: in float32, on one device."""
_MAGIC = b"GGUF"
_HEADS = {
    "AutoModelForCausalLM": ("ForCausalLM", "LMHead", "ForConditionalGeneration"),
    "AutoModelForSequenceClassification": ("ForSequenceClassification",),
}
"""Ends of the names of architectures that a class reads; others would get a head of random weights."""
_COMPOSITES = {
    "AutoModelForImageTextToText": "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING",
    "AutoModelForMultimodalLM": "MODEL_FOR_MULTIMODAL_LM_MAPPING",
}
"""Classes of models that read more than text, with their lists of kinds; texts go through the language part alone."""


def load_hugging_face(
    name: str | Path,
    length: int,
    *,
    template: str | Chat | None = None,
    prompt: str | None = None,
    end: bool = True,
    rules: InputRules = ANY,
    weights: WeightSettings = WEIGHTS,
    device: str = "cpu",
) -> HuggingFaceSeq2Seq | HuggingFaceCausal:
    """Return a model as the victim of a search; see `read_model`.

    Args:
        name: of the model.
        length: N, tokens of an input.
        template: of a causal model, see there.
        prompt: of a causal model, see there.
        end: whether a reply ends behind a target.
        rules: rules of allowed inputs.
        weights: their precision, and over which devices they are spread.
        device: torch device, where they are not spread.

    Raises:
        ConfigError: as of `read_model`, or a template is given for an encoder and decoder.
        CheckpointError: as of `read_model`.
    """
    tokenizer, model = read_model(name, weights, device)
    if not model.config.is_encoder_decoder:
        return HuggingFaceCausal(model, tokenizer, length, template, prompt=prompt, end=end, rules=rules)
    if template is not None or prompt is not None:
        fix = "leave the template out, and take targets without prompts"
        raise ConfigError("only a causal model takes a template", where=name, fix=fix)
    return HuggingFaceSeq2Seq(model, tokenizer, length, end=end, rules=rules)


def read_model(name: str | Path, weights: WeightSettings = WEIGHTS, device: str = "cpu") -> tuple[Any, Any]:
    """Return the tokenizer and the model with a language-modelling head; see `read_placed`.

    Args:
        name: "hf:FOLDER", "gguf:FILE", or a folder; each may be a URI.
        weights: their precision, and over which devices they are spread.
        device: torch device, where they are not spread.
    """
    return read_placed(
        name, lambda config: "AutoModelForSeq2SeqLM" if config.is_encoder_decoder else "AutoModelForCausalLM", weights, device
    )


def read_placed(name: str | Path, kind: Callable[[Any], str], weights: WeightSettings, device: str) -> tuple[Any, Any]:
    """Return the tokenizer and the model of a folder of `save_pretrained` or of a file of llama.cpp, on its device.

    Args:
        name: "hf:FOLDER", "gguf:FILE", or a folder; each may be a URI.
        kind: as of `read_pretrained`.
        weights: their precision, and over which devices they are spread.
        device: torch device, where they are not spread.

    Raises:
        ConfigError: a package is missing, or there is no such device.
        CheckpointError: there is no model that it can read, not all of its weights, or some are no finite numbers.
        StorageError: the cache has no room for weights that are stored in another precision.
    """
    options: dict[str, Any] = {"dtype": weights.dtype if weights.dtype == "auto" else getattr(torch, weights.dtype)}
    if weights.device_map:
        require_package("accelerate", str(name))
        options["device_map"] = weights.device_map
    folder = model_inside(folder_of(name))
    base = base_of(folder)
    tell_of_adapter(base)
    if device == "cpu" and not weights.device_map and weights.dtype != "auto":
        base = _mapped(base, kind, weights.dtype, options)
    tokenizer, model = read_pretrained(base, kind, tokenizer_folder(folder, base), **options)
    if is_adapter_alone(folder):
        model = with_adapter(model, folder)
    # The name of the model in errors, some of which know its tokenizer only.
    tokenizer.name_or_path = model.name_or_path = str(name)
    use_options(tokenizer, weights.date, weights.template_variables)
    if prints_date(tokenizer):
        say_once(tokenizer, f"the chat template prints the date: {options_of(tokenizer).day}, for the whole run (setting date)")
    name_end(tokenizer, model)
    require_finite(model, name)
    return tokenizer, model if weights.device_map else _moved(model, device, name)


def read_tokenizer(name: str, weights: WeightSettings = WEIGHTS) -> Any:
    """Return the tokenizer alone of "hf:FOLDER" or "gguf:FILE"; its template has the date and variables of the settings.

    Raises:
        ConfigError: a package is missing.
        CheckpointError: there is no tokenizer.
    """
    _, folder, source = _source(folder_of(name))
    with _readable(folder), without_progress_bars():
        tokenizer = load_tokenizer(folder, **source)
        _require_words(tokenizer, folder)
    tokenizer.name_or_path = name
    use_options(tokenizer, weights.date, weights.template_variables)
    return tokenizer


def is_encoder_decoder(name: str | Path) -> bool:
    """Return whether a model has an encoder, by its configuration alone; see `read_placed`."""
    return bool(read_config(base_of(model_inside(folder_of(name)))).is_encoder_decoder)


def read_config(folder: Path) -> Any:
    """Return the configuration alone; arguments and errors as of `read_pretrained`."""
    transformers, folder, source = _source(folder)
    with _readable(folder), without_progress_bars():
        return transformers.AutoConfig.from_pretrained(folder, **source)


def folder_of(name: str | Path) -> Path:
    """Return the folder of a model; for a file of llama.cpp that of its numbers in the cache (`policies/hugging_face/gguf.py`).

    Raises:
        CheckpointError: there is no such file of llama.cpp, or transformers cannot read it.
        ConfigError: a package that reads it is not installed.
        StorageError: the cache has no room for its numbers.
    """
    if not str(name).startswith(GGUF):
        return fetched_model(name if isinstance(name, Path) else name.removeprefix(HUGGING_FACE))
    file = _gguf(str(name))
    fix = "name a file of a causal model that transformers knows, or serve it by llama.cpp: openai:URL#MODEL"
    with _readable(file, fix), without_progress_bars():
        return plain_folder(file)


def require_package(package: str, name: str) -> None:
    """Check that a package of the extra `gguf` is installed; `name` is the model that needs it.

    Raises:
        ConfigError: it is not.
    """
    if find_spec(package) is None:
        fix = how_to_install(GGUF_EXTRA)
        raise ConfigError(f"this needs the package {package}, which is not installed", where=name, fix=fix)


def write_pretrained(
    model: Any, tokenizer: Any, folder: Path, documents: Mapping[str, str] | None = None, **options: Any
) -> None:
    """Write model and tokenizer aside, then move them into place.

    Args:
        model: of transformers, or adapters of peft.
        tokenizer: of the model.
        folder: the place.
        documents: further files, by name.
        options: of `save_pretrained` of the model.

    Raises:
        CheckpointError: the disk refuses.
    """

    def write(aside: Path) -> None:
        with without_progress_bars():
            model.save_pretrained(aside, **options)
        _order_layers(aside)
        tokenizer.save_pretrained(aside)
        for name, text in (documents or {}).items():
            (aside / name).write_text(text, encoding="utf-8")

    write_aside(folder, write)


def write_aside(folder: Path, write: Callable[[Path], None]) -> None:
    """Write a folder aside, then move it into place.

    Args:
        folder: to write; an older one goes.
        write: writes the files into a folder that may not be there.

    Raises:
        CheckpointError: the disk refuses.
    """
    aside = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    try:
        shutil.rmtree(aside, ignore_errors=True)
        write(aside)
        for part in aside.rglob("*"):
            sync(part)
        shutil.rmtree(folder, ignore_errors=True)
        aside.rename(folder)
        sync(folder.parent)
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        fix = "free disk space or choose another folder"
        raise CheckpointError("the model cannot be written", where=folder, got=str(error), fix=fix) from None


def write_adapter(model: Any, tokenizer: Any, base: str | Path, folder: Path, adapter_name: str = "default") -> None:
    """Write adapters alone, with the folder and the digest of their base.

    Args:
        model: the base with its adapters.
        tokenizer: of the base.
        base: name of the base, as of `read_placed`; no adapter itself.
        folder: the place.
        adapter_name: peft's name of the adapters.

    Raises:
        CheckpointError: the disk refuses.
    """
    at = model_inside(folder_of(base)).absolute()
    model.peft_config[adapter_name].base_model_name_or_path = str(at)

    def write(aside: Path) -> None:
        with without_progress_bars():
            # With "auto" peft looks for the base on a hub.
            model.save_pretrained(aside, selected_adapters=[adapter_name], save_embedding_layers=False)
        if (inside := aside / adapter_name).is_dir():
            # peft gives all adapters but the default one a folder of their own.
            for part in inside.iterdir():
                part.rename(aside / part.name)
            inside.rmdir()
        _order_layers(aside)
        tokenizer.save_pretrained(aside)
        (aside / BASE_DIGEST).write_text(json.dumps({"digest": weights_digest(at)}), encoding="utf-8")

    write_aside(folder, write)


def _order_layers(folder: Path) -> None:
    """Write an adapter's layers in one order: peft's is that of Python's hashes, so one made again had another digest."""
    if (path := folder / ADAPTER).is_file():
        settings = json.loads(path.read_text(encoding="utf-8"))
        settings["target_modules"] = sorted(settings["target_modules"])
        path.write_text(json.dumps(settings, indent=2, sort_keys=True), encoding="utf-8")


def require_config(folder: Path) -> None:
    """Check that `save_pretrained` wrote a folder.

    Raises:
        CheckpointError: it is none, or there is no such folder.
    """
    if not (folder / "config.json").is_file():
        got = None if folder.is_dir() else "there is no such folder"
        fix = "name a folder that save_pretrained wrote"
        if is_adapter_alone(folder):
            got, fix = "an adapter of peft alone", "add it to its base (merge_and_unload), and save_pretrained the whole model"
        raise CheckpointError("a Hugging Face model needs a config.json and there is none", where=folder, got=got, fix=fix)


def read_pretrained(
    folder: Path, kind: Callable[[Any], str], tokenizer_at: Path | None = None, **options: Any
) -> tuple[Any, Any]:
    """Return the tokenizer and the model of a folder of `save_pretrained`; nothing is downloaded, no code in it is run.

    Args:
        folder: model and tokenizer, weights as safetensors, or a run that holds them as its checkpoint.
        kind: the name of the automatic class of transformers that the model is read by, from its configuration.
        tokenizer_at: folder of the tokenizer; the model's own when None.
        options: of the reader of the model, such as `dtype`.

    Raises:
        ConfigError: transformers is not installed.
        CheckpointError: the folder holds no model that it can read, none of that kind, no tokenizer, not all of its weights,
            some of other shapes, or pickled ones.
    """
    transformers, folder, source = _source(folder)
    _require_no_pickles(folder)
    with _readable(folder), without_progress_bars():
        # The configuration first: it tells that the model needs code of its own, its tokenizer does not.
        config = transformers.AutoConfig.from_pretrained(folder, **source)
        tokenizer = load_tokenizer(tokenizer_at or folder, **source)
        class_name = _class_of(config, kind, folder)
        _require_words(tokenizer, folder)
        # Other shapes are reported below, by name.
        source |= {"output_loading_info": True, "ignore_mismatched_sizes": True}
        with without_adapter(folder) as weights:
            model, read = getattr(transformers, class_name).from_pretrained(weights, **source, **options)
    if wrong := sorted(read["mismatched_keys"]):
        key, there, wanted = wrong[0]
        raise CheckpointError(
            "the weights have other shapes than the config.json says",
            where=folder,
            got=f"{key} is {tuple(there)}, and {tuple(wanted)} is said",
            fix="save the model and its configuration there anew with save_pretrained",
        )
    # transformers draws missing weights at random. Base models often lack their pooler, and nothing here reads it.
    if missing := sorted(key for key in read["missing_keys"] if not key.startswith("pooler.")):
        raise CheckpointError(
            "the folder does not hold all weights of its model",
            where=folder,
            got=f"no {', '.join(missing[:5])}",
            fix="save the whole model there with save_pretrained",
        )
    if isinstance(head := model.get_output_embeddings(), nn.Linear):
        head.register_forward_pre_hook(contiguous_inputs)
    multiply_fast(model)
    return tokenizer, model


def contiguous_inputs(_layer: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Give the head the last positions as one block: for a view of them torch 2.13 copies its weight once for each row."""
    return inputs[0].contiguous(), *inputs[1:]


def _class_of(config: Any, kind: Callable[[Any], str], folder: Path) -> str:
    """Return the class that reads a model, after a check of its kind by the configuration alone."""
    reader, names = _composite_class(kind(config), config, folder), config.architectures or []
    if (heads := _HEADS.get(kind(config))) and names and not any(head in name for name in names for head in heads):
        what = "a causal model of language" if heads[0] == "ForCausalLM" else "a classifier"
        got = f"architecture {', '.join(names)}"
        fix = f"name a folder whose config.json names an architecture with {heads[0]}"
        raise CheckpointError(f"this needs {what} and the folder holds another model", where=folder, got=got, fix=fix)
    return reader


def _composite_class(name: str, config: Any, folder: Path) -> str:
    """Return the class that reads a model of language: of one that reads pictures or sounds too, the class of the whole."""
    import transformers

    if name != "AutoModelForCausalLM" or type(config) in transformers.MODEL_FOR_CAUSAL_LM_MAPPING:
        return name
    for other, kinds in _COMPOSITES.items():
        if type(config) in getattr(transformers, kinds):
            return other
    got, fix = f"model_type {config.model_type}", "name a causal model, such as Llama, Qwen or GPT-2"
    raise CheckpointError("transformers knows no model of language of this kind", where=folder, got=got, fix=fix)


def _require_words(tokenizer: Any, folder: Path) -> None:
    """Check that there is a tokenizer: without its files transformers may make one of special tokens alone."""
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        fix = "save the model's tokenizer there with save_pretrained"
        raise CheckpointError("the folder holds no tokenizer with words", where=folder, fix=fix)


def _require_no_pickles(folder: Path) -> None:
    if any(folder.glob("*.bin")) and not any(folder.glob("*.safetensors")):
        raise CheckpointError(
            "the weights are pickled, and pickles are not read: they can run any code",
            where=folder,
            got=", ".join(sorted(path.name for path in folder.glob("*.bin"))[:3]),
            fix="where you trust them, read them with transformers' from_pretrained and save_pretrained them (safetensors)",
        )


def _mapped(folder: Path, kind: Callable[[Any], str], dtype: str, options: dict[str, Any]) -> Path:
    """Return the same model with weights in the precision of reading, so that processes share one copy."""
    config = read_config(folder)
    with _readable(folder), without_progress_bars():
        class_name = _class_of(config, kind, folder)
        return in_precision(model_inside(folder), dtype, class_name, lambda: read_pretrained(folder, kind, **options)[1])


def _moved(model: Any, device: str, name: str | Path) -> Any:
    try:
        return model.to(device)
    except (RuntimeError, AssertionError) as error:
        got, fix = _first_line(error), "device=cpu, or cuda where there is a GPU with room"
        raise ConfigError("the model cannot be moved to the device", where=f"{name} on {device}", got=got, fix=fix) from None


def _source(folder: Path) -> tuple[Any, Path, dict[str, Any]]:
    """Return the library, the folder, and options of reading: nothing is downloaded, and no code is run."""
    try:
        import transformers
    except ImportError:
        fix = how_to_install(EXTRA)
        raise ConfigError("Hugging Face models need the package transformers, which is not installed", fix=fix) from None
    folder = model_inside(folder)
    require_config(folder)
    # Explicit, or transformers asks the user at the terminal.
    # Other formats than safetensors are pickles, which can run anything.
    return transformers, folder, {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}


def _gguf(name: str) -> Path:
    """Return the checked file of llama.cpp of an address; raises as `folder_of`."""
    file = fetched_file(name.removeprefix(GGUF)).expanduser()
    if not file.is_file():
        raise CheckpointError("there is no such GGUF file", where=file, fix="name a file of weights as llama.cpp reads them")
    with file.open("rb") as opened:
        if (begins := opened.read(len(_MAGIC))) != _MAGIC:
            fix = "name a file that llama.cpp's convert_hf_to_gguf.py wrote, whole"
            raise CheckpointError("this is no GGUF file", where=file, got=f"it begins with {begins!r}", fix=fix)
    require_package("gguf", name)
    require_package("accelerate", name)
    return file


@contextmanager
def without_progress_bars() -> Iterator[None]:
    """Hide transformers' progress bars within a block; its own setting stays."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextmanager
def _readable(folder: Path, fix: str = "save model and tokenizer there with save_pretrained (safetensors)") -> Iterator[None]:
    """Turn transformers' errors over a folder or a file into errors with a fix."""
    try:
        yield
    except ParleyError:
        raise
    except ImportError as error:
        # Quantised weights (bitsandbytes, GPTQ, ...) are read by packages of their own.
        missing = "install what it names, or take the same model in plain weights"
        got = _first_line(error)
        raise ConfigError("a package that reads this model is not installed", where=str(folder), got=got, fix=missing) from None
    # Broken files raise errors of any kind.
    except Exception as error:
        if "trust_remote_code" in str(error):
            other_model = "take a model of a kind that transformers itself knows"
            raise CheckpointError(
                "the folder wants code of its own to be run, and none is", where=folder, fix=other_model
            ) from None
        if "out of memory" in str(error):
            got, fix = _first_line(error), "take a smaller model or dtype, another device, or a device_map"
            raise ConfigError("the model does not fit into the memory", where=str(folder), got=got, fix=fix) from None
        got = _first_line(error)
        raise CheckpointError("there is no Hugging Face model that can be read", where=folder, got=got, fix=fix) from None


def _first_line(error: Exception) -> str:
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return (f"{type(error).__name__}: {line}" if isinstance(error, LookupError) or not line else line)[:200]
