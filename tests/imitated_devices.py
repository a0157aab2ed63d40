"""Devices that are not there: tensors lie in the memory of the CPU and know on which device they would be.

Inside of `imitated_devices` an operation on tensors of two devices is refused, as torch refuses it on real ones. Devices are
named as real ones are ("cuda:0"), so that code takes the paths that it takes there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

CPU = torch.device("cpu")
_NAME = "imitated_device"
_ANYWHERE = ("copy_", "__set__", "_has_compatible_shallow_copy_type")
"""What takes tensors of several devices."""
_LENGTHS = ("_pack_padded_sequence", "gru", "lstm")
"""What takes numbers of rows on the CPU, and gives them back there."""


def device_of(tensor: Tensor) -> torch.device:
    """Where a tensor would be."""
    found: torch.device = getattr(tensor, _NAME, CPU)
    return found


@contextmanager
def imitated_devices() -> Iterator[None]:
    """Lets any name of a device be one."""
    kept = {"get_rng_state": lambda device: torch.empty(0), "set_rng_state": lambda state, device: None}
    with _Imitation(), patch.multiple(torch.cuda, **kept):
        yield


class _Imitation(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if func in (torch.Tensor.device.__get__, torch.Tensor.is_cuda.__get__):
            at = device_of(args[0])
            return at if func == torch.Tensor.device.__get__ else at.type == "cuda"
        if func is torch.device:
            return func(*args, **kwargs)
        if name in ("to", "cpu"):
            return _moved(args[0], CPU if name == "cpu" else None, args[1:], kwargs)
        wanted = kwargs.pop("device", None)
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        at = torch.device(wanted) if wanted is not None else _shared(name, args, tensors)
        generators = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Generator)]
        if tensors and any(each.device != at for each in generators):
            raise RuntimeError(f"{name}: expected a generator of {at}, found {sorted(str(each.device) for each in generators)}")
        if name == "numpy" and at != CPU:
            raise TypeError(f"can't convert a tensor of {at} to numpy")
        found = func(*args, **kwargs)
        if name == "__set__" and tensors:
            _put(tensors[0], device_of(tensors[-1]))

        def put(each: Any) -> Any:
            if not isinstance(each, Tensor):
                return each
            return _put(each, CPU if name in _LENGTHS and each.dtype == torch.int64 else at)

        return tree_map(put, found)


def _shared(name: str, args: tuple[Any, ...], tensors: list[Tensor]) -> torch.device:
    """The one device of what is computed with; of tensors of the CPU numbers and indices go anywhere."""
    if not tensors:
        return CPU
    if name in ("__getitem__", "__setitem__"):
        used = [each for each in tree_leaves(args[1]) if isinstance(each, Tensor)]
        index = {device_of(each) for each in used} - {CPU}
        # What slices are set to is copied there from anywhere.
        tensors = [args[0], *(each for each in args[2:] if isinstance(each, Tensor) and used)]
    else:
        index = set()
    if name in _LENGTHS:
        tensors = [each for each in tensors if each.dtype != torch.int64]
    if name in _ANYWHERE:
        return device_of(tensors[0])
    found = index | {device_of(each) for each in tensors if each.dim() or device_of(each) != CPU}
    if len(found) > 1:
        raise RuntimeError(f"{name}: expected all tensors to be on the same device, found {sorted(map(str, found))}")
    return found.pop() if found else CPU


def _moved(tensor: Tensor, device: torch.device | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """What `tensor.to` gives: itself where nothing changes, else a copy."""
    left = []
    for each in (*args, kwargs.pop("device", None)):
        if isinstance(each, (str, torch.device)):
            device = torch.device(each)
        elif isinstance(each, Tensor):
            device = device_of(each)
            left.append(each.dtype)
        elif isinstance(each, torch.dtype):
            left.append(each)
    there = device_of(tensor) if device is None else device
    found = tensor.to(*left, **kwargs) if left or kwargs else tensor
    if found is tensor and there != device_of(tensor):
        found = tensor.clone()
    return found if found is tensor else _put(found, there)


def _put(tensor: Tensor, device: torch.device) -> Tensor:
    setattr(tensor, _NAME, device)
    return tensor
