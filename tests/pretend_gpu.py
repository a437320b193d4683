"""A device that computes on the CPU but keeps its tensors apart, as a GPU does.

Numbers are those of the CPU, so whole trainings can be compared with it. What a GPU refuses is refused here too: an operation
on tensors of two devices (a CPU tensor of one element is allowed, as on a GPU), and reading a tensor as an array before
`.cpu()`. Autocast lowers products and convolutions and widens norms and softmax, as for CUDA.

Torch's own fake tensors on a CUDA device cannot take its place. In a build without CUDA (torch 2.13, CPU) they can be made,
added and convolved, and mixed devices are found, but `.to("cuda")`, `copy_`, `nonzero` and indexing, even by an integer,
raise "PyTorch is not linked with support for cuda devices", with and without gradients: `FakeTensorMode` replaces the device
guard only in builds with CUDA. So no system's forward pass, validation or evaluation runs on them. The first operation on a
weight that needs a gradient ends the process (SIGABRT). And they have no values for code that looks at some, such as the
boxes that RoIAlign samples.
"""

# pyright: reportPrivateUsage=false
# Torch has no public way to add a device written in Python.

from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import (
    _DummyBackendModule,
    _setup_privateuseone_for_python_backend,
)

NAME = "pretend"
aten = torch.ops.aten
ACROSS_DEVICES = {aten._to_copy.default, aten.copy_.default}
LOWERED = ("conv2d", "conv3d", "linear", "matmul", "bmm", "mm", "addmm", "baddbmm")
WIDENED = ("layer_norm", "group_norm", "softmax.int", "exp", "sum", "sum.dim_IntList")
IN_FLOAT = {aten.convolution.default, aten.convolution_backward.default, aten.mm.default, aten.bmm.default,
            aten.addmm.default, aten.baddbmm.default}  # fmt: skip
"""Computed in float32 and rounded: a CPU lacks some of these in float16."""


class _Module(_DummyBackendModule):
    def get_amp_supported_dtype(self):
        return [torch.float16, torch.bfloat16]

    def get_rng_state(self, device=None):  # noqa: ARG002 - what torch calls
        return torch.empty(0, dtype=torch.uint8)  # chance is the CPU's

    def set_rng_state(self, state, device=None):
        pass


_setup_privateuseone_for_python_backend(NAME, backend_module=_Module())
GPU = torch.device(NAME, 0)


class PretendTensor(torch.Tensor):
    """A tensor of the pretend device; `held` has its numbers."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # pyright: ignore[reportAssignmentType] - how torch disables it

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=GPU,
        )

    def __init__(self, held):
        self.held = held

    def __repr__(self, *, tensor_contents=None):
        return f"PretendTensor({self.held})"

    def __reduce_ex__(self, protocol):
        return self.held.detach().__reduce_ex__(protocol)  # a file is read back onto the CPU

    def tolist(self):
        return self.held.tolist()

    @classmethod
    def __torch_dispatch__(cls, function, _types, args=(), kwargs=None):
        return _computed(function, args, kwargs or {})


class _Pretending(TorchDispatchMode):
    def __torch_dispatch__(self, function, _types, args=(), kwargs=None):
        return _computed(function, args, kwargs or {})


def _computed(function, args, kwargs):
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    own = [tensor for tensor in tensors if isinstance(tensor, PretendTensor)]
    device = kwargs.get("device")
    if own and function not in ACROSS_DEVICES:
        foreign = [tensor for tensor in tensors if not isinstance(tensor, PretendTensor) and tensor.ndim > 0]
        if foreign:
            raise RuntimeError(
                f"{function}: all tensors must be on one device; {len(foreign)} are on the CPU"
            )
    if device is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    is_here = torch.device(device).type == NAME if device is not None else bool(own)
    widens = function in IN_FLOAT and any(tensor.dtype == torch.float16 for tensor in own)
    held = tree_map(lambda leaf: _held(leaf, widens=widens), (args, kwargs))
    result = function(*held[0], **held[1])
    if not is_here or function is aten.copy_.default:
        return args[0] if function is aten.copy_.default else result
    wrappers = {id(tensor.held): tensor for tensor in own}
    return tree_map(lambda leaf: _wrapped(leaf, wrappers, narrows=widens), result)


def _held(leaf, *, widens):
    if not isinstance(leaf, PretendTensor):
        return leaf
    return leaf.held.float() if widens and leaf.held.dtype == torch.float16 else leaf.held


def _wrapped(leaf, wrappers, *, narrows):
    if not isinstance(leaf, torch.Tensor):
        return leaf
    if narrows:
        return PretendTensor(leaf.half())
    return wrappers[id(leaf)] if id(leaf) in wrappers else PretendTensor(leaf)


_others = torch.library.Library("_", "IMPL")
_others.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
_library = torch.library.Library("aten", "IMPL")


def _register(name, *, widens):
    packet, _, overload = name.partition(".")
    operation = getattr(getattr(aten, packet), overload or "default")
    here = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)  # pyright: ignore[reportAttributeAccessIssue] - missing in the stub

    def kernel(*args, **kwargs):
        dtype = torch.float32 if widens else torch.get_autocast_dtype(NAME)
        with torch._C._ExcludeDispatchKeyGuard(here):
            args, kwargs = tree_map(lambda leaf: _cast(leaf, dtype), (args, kwargs))
            return operation(*args, **kwargs)

    _library.impl(name, kernel, "AutocastPrivateUse1")


def _cast(leaf, dtype):
    is_cast = isinstance(leaf, PretendTensor) and leaf.dtype in (torch.float16, torch.bfloat16, torch.float32)
    return leaf.to(dtype) if is_cast else leaf


for _name in LOWERED:
    _register(_name, widens=False)
for _name in WIDENED:
    _register(_name, widens=True)


@contextmanager
def pretending():
    """Let tensors be made on the device while the context lasts."""
    before = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(
        True
    )  # torch.tensor copies its numbers to the device where it can be seen
    try:
        with torch.autograd.set_multithreading_enabled(False), _Pretending():
            yield GPU
    finally:
        torch._C._set_only_lift_cpu_tensors(before)
