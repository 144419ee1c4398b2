"""Finds out whether a result depends on the last bits of one processor's arithmetic."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

# The error of each number in an operation; after an attention layer, about a hundred.
ROUNDINGS = 16
# Operations that round differently with another processor, vector length or number of threads.
# In products of two matrices even equal rows may differ.
PRODUCTS = {"addmm", "addmv", "baddbmm", "bmm", "dot", "linear", "matmul", "mm", "mv"}
SUMS = {"cumsum", "linalg_vector_norm", "logsumexp", "mean", "sum", "var"}
EXPONENTIALS = {
    "exp",
    "exp2",
    "log",
    "log2",
    "sigmoid",
    "silu",
    "tanh",
    "_log_softmax",
    "_softmax",
}
FUNCTIONS = EXPONENTIALS | {"cos", "pow", "rsqrt", "sin"}
FEW_BITS = 2.0**12  # a number of few bits times this is whole


class Shaken(TorchDispatchMode):
    """Within this, inputs of sums and matrix products, and results of exponentials and similar
    functions, are wrong by up to ROUNDINGS roundings, each time in the same way.

    Numbers of a few bits, such as 0, 1 and 0.5, stay: every processor computes with them
    exactly. Equal numbers stay equal, except in products of matrices.

    way: -1 for errors in the other direction.
    """

    def __init__(self, way: int = 1):
        super().__init__()
        self.roundings = way * ROUNDINGS

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        name = operation.overloadpacket.__name__
        if name in PRODUCTS | SUMS:
            args = tree_map_only(
                torch.Tensor, lambda given: self._moved(given, name in PRODUCTS), args
            )
        result = operation(*args, **(kwargs or {}))
        return self._moved(result, False) if name in FUNCTIONS else result

    def _moved(self, x: torch.Tensor, by_place: bool) -> torch.Tensor:
        if x.dtype not in (torch.float32, torch.float64) or x.device.type != "cpu":
            return x
        stays = (x * FEW_BITS == (x * FEW_BITS).round()) & (x.abs() < FEW_BITS)
        stays |= (x == x.round()) | ~x.isfinite()
        places = torch.arange(x.numel()).view(x.shape) if by_place else 0
        by = (x.double() * 1e9 + places).sin()  # anything from -1 to 1
        moved = x.double() * (1 + self.roundings * torch.finfo(x.dtype).eps / 2 * by)
        return torch.where(stays, x, moved.to(x.dtype))
