"""One copy of a base, and the adapters of several players on it.

A base of a process holds named low-rank adapters beside its frozen weights (peft), of which one is active at a time. So an
attacker, a defender and all that they met cost one copy of the base and some MB each. `AdaptedChatModel` is the base with one
adapter as a chat model. It switches its adapter on before each reading, and what it has read is its own: keys and values of one
adapter are those of no other.

Which adapter is active is read off the layers and not remembered: peft 0.21.2 leaves hooks in the layers when it refuses a
call that names an adapter for each row, so no call here does.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from torch import nn

from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.core.storage.copies import fetched_model
from parley.envs.core.storage.uris import HUGGING_FACE
from parley.policies.chat.addresses import weights_of
from parley.policies.chat.local import ChatPrompt, LocalChatModel, load_local
from parley.policies.chat.model import Answer, Chat, ChatDecoding, ReplyScore
from parley.policies.chat.predictor import adapt_in_one_pass, adapted, require_peft
from parley.policies.chat.settings import ChatModelSettings, LoraSettings
from parley.policies.core.responder import model_inside
from parley.policies.hugging_face.caches import KeptReadings
from parley.policies.hugging_face.gguf import base_of, is_adapter_alone, read_adapter, require_own_base, weights_digest
from parley.policies.hugging_face.models import folder_of, write_adapter

_numbers = itertools.count()


class SharedBase:
    """A frozen causal model with named adapters.

    Args:
        plain: the model without adapters.
        folder: of its weights.
    """

    def __init__(self, plain: LocalChatModel, folder: Path) -> None:
        self.name, self.model, self.tokenizer, self.folder = plain.name, plain.model, plain.tokenizer, folder
        self.answers_depend_on = plain.answers_depend_on
        self._peft: Any = None
        self._removed: list[str] = []

    def add(self, start: str, settings: LoraSettings, seed: int) -> str:
        """Add an adapter, and return its name.

        Args:
            start: address of an adapter on this base; empty for a fresh one, which changes nothing yet.
            settings: of a fresh one.
            seed: of its first weights.

        Raises:
            CheckpointError: there is no adapter at the address, or it was trained on another base.
            ConfigError: the base has no layers of those names.
        """
        name, model = f"adapter-{next(_numbers)}", self.model if self._peft is None else self._peft
        if start:
            folder = model_inside(fetched_model(weights_of(start)))
            base = require_own_base(folder)
            if base.resolve() != self.folder.resolve() and weights_digest(base) != weights_digest(self.folder):
                got, fix = f"{base}, and the base here is {self.folder}", "name the base that it was trained on"
                raise CheckpointError("the adapter was trained on another base", where=folder, got=got, fix=fix)
            self._peft = read_adapter(model, folder, name)
            adapt_in_one_pass(self._peft)
        else:
            self._peft = adapted(model, settings, seed, adapter_name=name)
        self._peft.set_adapter(name)
        while self._removed:
            self._peft.delete_adapter(self._removed.pop())
        self.model.eval()
        return name

    def remove(self, name: str) -> None:
        """Forget an adapter and its weights when the next one is added; until then nobody may be in the midst of a reading."""
        self._removed.append(name)

    def forget(self) -> None:
        """Forget what its players have read."""
        KeptReadings.forget(self.model)

    def weights(self, name: str) -> dict[str, nn.Parameter]:
        """Return the weights of an adapter by their names in the model."""
        mark = f".{name}."
        return {key.replace(mark, "."): value for key, value in self.model.named_parameters() if mark in key}

    @contextmanager
    def using(self, name: str) -> Iterator[None]:
        """Read with one adapter within a block, or with none if the name is empty; its weights alone have gradients.

        Raises:
            CheckpointError: a layer still reads with another one.
        """
        from peft.tuners.tuners_utils import BaseTunerLayer

        layers, wanted = [layer for layer in self.model.modules() if isinstance(layer, BaseTunerLayer)], [name] if name else []

        def others() -> list[list[str]]:
            active = ([] if layer.disable_adapters else list(layer.active_adapters) for layer in layers)
            return [adapters for adapters in active if adapters != wanted]

        # peft goes through all weights to switch, so one that is on stays on.
        if others() and name:
            self._peft.base_model.enable_adapter_layers()
            self._peft.set_adapter(name)
        elif others():
            self._peft.base_model.disable_adapter_layers()
        if active := others():
            got = f"{active[0]}, wanted {name or 'none'}"
            raise CheckpointError("a layer of the base reads with another adapter", where=self.name, got=got)
        yield

    def write(self, name: str, folder: Path) -> None:
        """Store an adapter alone, beside the digest of the base.

        Raises:
            CheckpointError: the disk refuses.
        """
        write_adapter(self._peft, self.tokenizer, self.folder, folder, name)


class AdaptedChatModel(LocalChatModel):
    """A shared base with one adapter, as a chat model.

    Args:
        name: its address.
        base: the base.
        adapter: name of the adapter in it; empty for the base alone.
        batch_size: chats that are read at once.
        parts_thinking: as of `LocalChatModel`.
    """

    def __init__(self, name: str, base: SharedBase, adapter: str, batch_size: int = 1, *, parts_thinking: bool = True) -> None:
        super().__init__(name, base.model, base.tokenizer, batch_size, parts_thinking=parts_thinking)
        self.base, self.adapter, self.answers_depend_on = base, adapter, base.answers_depend_on

    def _answered(self, questions: Sequence[tuple[ChatPrompt, int]], decoding: ChatDecoding) -> list[Answer]:
        with self.base.using(self.adapter):
            return super()._answered(questions, decoding)

    def score(self, chats: Sequence[Chat], replies: Sequence[str]) -> list[ReplyScore]:
        """See `ScoringChatModel`; all of it is read with the adapter, what several chats begin with too."""
        with self.base.using(self.adapter):
            return super().score(chats, replies)


_bases: dict[tuple[Path, ChatModelSettings], SharedBase] = {}


def shared_base(base: str, settings: ChatModelSettings) -> SharedBase:
    """Return the base of an address; all players of a process share it.

    Args:
        base: hf:FOLDER or gguf:FILE, with a chat template.
        settings: of loading it.

    Raises:
        ConfigError: it is an adapter, has no chat template, or a package is missing.
        CheckpointError: there is no such model.
    """
    require_peft()
    folder = model_inside(folder_of(base)).resolve()
    if is_adapter_alone(folder):
        raise ConfigError("an adapter is no base", where=base, fix="name the base that it was trained on")
    if (folder, settings) not in _bases:
        _bases[folder, settings] = SharedBase(load_local(f"{HUGGING_FACE}{folder}", settings), folder)
    shared = _bases[folder, settings]
    if not shared.tokenizer.chat_template:
        fix = "name a model that was tuned to chat, or write a chat_template into its tokenizer_config.json"
        raise ConfigError("the base has no chat template, so it knows no seats", where=base, fix=fix)
    return shared


@cache
def load_adapted(name: str, settings: ChatModelSettings) -> AdaptedChatModel:
    """Return the adapter of an address (`is_adapter`) as a chat model on the base that it shares with others; it is kept.

    Raises:
        CheckpointError: as `SharedBase.add`.
    """
    base = shared_base(f"{HUGGING_FACE}{base_of(model_inside(fetched_model(weights_of(name))))}", settings)
    adapter = base.add(name, LoraSettings(), 0)
    return AdaptedChatModel(name, base, adapter, settings.batch_size, parts_thinking=settings.thinking == "part")


def is_adapter(name: str) -> bool:
    """Return whether an address hf:FOLDER names a folder or a run with an adapter alone."""
    return is_adapter_alone(model_inside(fetched_model(weights_of(name))))
