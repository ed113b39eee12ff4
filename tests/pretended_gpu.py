"""A GPU simulated on the CPU: its tensors report ``cuda:0``, and operations that mix them with host tensors fail.

For C++ they are CPU tensors, so autograd and optimizers work. Python code that requests a CUDA tensor gets one of them,
and takes the same branches as on a GPU. Kernels, real graphs and memory are not simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate.state import AcceleratorState
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
from torch.utils._pytree import tree_leaves

from d2sd.nets.dtypes import quick_bfloat16
from d2sd.nets.passes import CapturedPass, PassRecorder

GPU, HOST = torch.device("cuda", 0), torch.device("cpu")
MEMORY = 4 * 2**30
aten = torch.ops.aten
# Operations whose indices may be on the host.
INDEXING = (aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default)
TO_GPU = {torch.Tensor.cuda: GPU, torch.Tensor.cpu: HOST}


class OnGpu(torch.Tensor):
    """A tensor on the pretended GPU. ``held``: the CPU tensor with its values."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> OnGpu:
        return torch.Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), storage_offset=held.storage_offset(), dtype=held.dtype, device=HOST
        )

    def __init__(self, held: torch.Tensor):
        self.held = held

    __torch_function__ = torch._C._disabled_torch_function_impl
    device, is_cuda, is_cpu = property(lambda _: GPU), property(lambda _: True), property(lambda _: False)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return on_gpu(function, args, kwargs or {})

    def tolist(self):
        return self.held.tolist()

    def numpy(self):
        raise TypeError("a tensor of the GPU has no values on the host")

    def untyped_storage(self):  # identifies shared weights when they are saved
        return self.held.untyped_storage()


def mapped(change: Callable[[torch.Tensor], torch.Tensor], tree: Any) -> Any:
    """Applies ``change`` to every tensor in an operation's arguments or results; faster than ``tree_map``."""
    if isinstance(tree, torch.Tensor):
        return change(tree)
    if type(tree) in (list, tuple):
        return type(tree)(mapped(change, part) for part in tree)
    return {name: mapped(change, part) for name, part in tree.items()} if type(tree) is dict else tree


def held(tree: Any) -> Any:
    return mapped(lambda t: t.held if isinstance(t, OnGpu) else t, tree)


def on_gpu(function, args, kwargs):
    tensors: list[torch.Tensor] = []
    mapped(lambda t: tensors.append(t) or t, (args, kwargs))
    host = [t for t in tensors if not isinstance(t, OnGpu)]
    if function is not aten.copy_.default and not (function in INDEXING and isinstance(args[0], OnGpu)):
        assert not any(t.ndim for t in host), f"{function} of tensors of the GPU and of the host"
    if function is aten.bmm.dtype:  # the CPU lacks this operation
        one, other, dtype = held(args)
        return OnGpu(one.to(dtype) @ other.to(dtype))
    made = function(*held(args), **held(kwargs))
    if function is aten.copy_.default and not isinstance(args[0], OnGpu):
        return made
    known = {id(t.held): t for t in tensors if isinstance(t, OnGpu)}
    return mapped(lambda t: known[id(t)] if id(t) in known else OnGpu(t), made)


class Move(torch.autograd.Function):
    """Copies a tensor to the other device."""

    @staticmethod
    def forward(ctx, x):
        return other(x)

    @staticmethod
    def backward(ctx, gradient):
        return other(gradient)


def other(x: torch.Tensor) -> torch.Tensor:
    return x.held.detach().clone() if isinstance(x, OnGpu) else OnGpu(x.detach().clone())


def is_gpu(device: Any) -> bool:
    return device is not None and torch.device(device).type == "cuda"


def moved(x: torch.Tensor, *args: Any, device: Any = None, **kwargs: Any) -> torch.Tensor:
    """``x.to(…)``."""
    kwargs.pop("non_blocking", None)
    for given in args:
        device = given if isinstance(given, (str, torch.device)) else getattr(given, "device", device)
    dtypes = [getattr(given, "dtype", given) for given in args if isinstance(given, (torch.dtype, torch.Tensor))]
    if device is not None and is_gpu(device) != isinstance(x, OnGpu):
        assert not isinstance(_get_current_dispatch_mode(), Tape), "a graph copies nothing between the devices"
        x = Move.apply(x)
    return torch.Tensor.to(x, *dtypes, **kwargs) if dtypes or kwargs else x


class Functions(TorchFunctionMode):
    """Redirects functions that create tensors on a device or move them to one."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function is torch.Tensor.to:
            return moved(*args, **kwargs)
        if function in TO_GPU:
            return moved(args[0], TO_GPU[function])
        if function is torch.pca_lowrank and isinstance(args[0], OnGpu):  # draws numbers on its argument's device
            return tuple(map(OnGpu, function(args[0].held, *args[1:], **kwargs)))
        if is_gpu(kwargs.get("device")):
            made = function(*args, **{**kwargs, "device": HOST})
            return made if isinstance(made, OnGpu) else OnGpu(made)
        return function(*args, **kwargs)


class Tape(TorchDispatchMode):
    """Records operations with their inputs and outputs. Fails if the host reads a value."""

    def __init__(self):
        super().__init__()
        self.operations = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert function is not aten._local_scalar_dense.default, "the host reads a value"
        made = function(*args, **(kwargs or {}))
        self.operations.append((function, args, kwargs or {}, made))
        return made


class Frozen:
    """Simulates a CUDA graph: operations on fixed storage, with the host's numbers as they were at capture."""

    def __init__(self, function, own):
        with Tape() as tape:
            self.outputs = function(*own)
        self.operations = tape.operations

    def replay(self):
        for function, args, kwargs, made in self.operations:
            for own, new in zip(tree_leaves(made), tree_leaves(function(*args, **kwargs)), strict=True):
                if (
                    isinstance(own, torch.Tensor) and held(own).data_ptr() != held(new).data_ptr()
                ):  # neither a view nor in place
                    own.copy_(new)


def capture(self: PassRecorder, function, inputs) -> CapturedPass:
    """Replaces ``PassRecorder.capture``."""
    own = tuple(tensor.clone() for tensor in inputs)
    for _ in range(2):  # warm-up, as before a real capture
        function(*own)
    graph = Frozen(function, own)
    return CapturedPass(graph, own, graph.outputs)


PROPERTIES = SimpleNamespace(name="pretended", major=9, minor=0, total_memory=MEMORY, multi_processor_count=1)


def forget() -> None:
    """Clears cached facts about the machine."""
    AcceleratorState._reset_state(reset_partial_state=True)
    quick_bfloat16.cache_clear()


@contextmanager
def one_gpu() -> Iterator[None]:
    """Context in which torch reports one GPU."""
    answers = {
        "is_available": True, "_lazy_init": None, "current_device": 0, "device_count": 1, "set_device": None, "synchronize": None,
        "empty_cache": None, "mem_get_info": (MEMORY, MEMORY), "get_device_name": "pretended", "get_device_capability": (9, 0),
        "get_device_properties": PROPERTIES, "is_bf16_supported": True, "manual_seed": None, "manual_seed_all": None,
        "is_current_stream_capturing": False,
    }  # fmt: skip
    autocast = torch.autocast.__init__

    def enter(self):  # tensors made in inference mode cannot be wrapped
        self._inference_mode_context = torch.set_grad_enabled(not self.mode)
        self._inference_mode_context.__enter__()

    before = torch.__future__.get_swap_module_params_on_conversion()
    with pytest.MonkeyPatch.context() as patch, Functions():
        for name, answer in answers.items():
            patch.setattr(torch.cuda, name, lambda *_, answer=answer, **__: answer)
        # Optimizers ask the accelerator for its stream, which needs a driver in torch's CUDA build.
        patch.setattr(torch.accelerator, "is_available", lambda: False)
        patch.setattr(
            torch.autocast, "__init__", lambda own, device_type, *args, **kw: autocast(own, "cpu", *args, **kw)
        )
        patch.setattr(torch.inference_mode, "__enter__", enter)
        patch.setattr(PassRecorder, "capture", capture)
        torch.__future__.set_swap_module_params_on_conversion(True)
        forget()
        try:
            yield
        finally:
            torch.__future__.set_swap_module_params_on_conversion(before)
            forget()
