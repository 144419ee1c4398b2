"""Measures how many bytes of tensors PyTorch allocates during a call."""

from collections.abc import Callable

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class _NewBytes(TorchDispatchMode):
    """Adds up the sizes of the tensors that operations return, except views of inputs."""

    def __init__(self):
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        given = {
            _place(leaf)
            for leaf in tree_leaves((args, kwargs))
            if hasattr(leaf, "untyped_storage")
        }
        self.total += sum(
            leaf.numel() * leaf.itemsize
            for leaf in tree_leaves(result)
            if hasattr(leaf, "untyped_storage") and _place(leaf) not in given
        )
        return result


def _place(tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def new_bytes(function: Callable[[], object]) -> int:
    """Calls `function()`.

    Returns the bytes of all tensors that it made, the freed ones too.
    """
    with _NewBytes() as meter:
        function()
    return meter.total
