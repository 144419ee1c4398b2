"""Whether a result hangs on the last bits of one processor's arithmetic."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

# that each number of an operation may be off; about a hundred after all of an attention layer
ROUNDINGS = 16
# What processors, lengths of vectors and numbers of threads round in their own ways. In the
# products of two matrices even equal rows may come out differently.
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
FEW_BITS = 2.0**12  # times this, a number of few bits is whole


class Shaken(TorchDispatchMode):
    """Within this, all that goes into sums and products of matrices is off by up to ROUNDINGS
    roundings, each time in the same way, and so is what comes out of exponentials and their
    like. What goes into these is off already where it was computed.

    Numbers of a few bits stay, such as 0, 1 and 0.5: every processor computes with them
    exactly. Equal ones stay equal, except in products of matrices.

    way: -1 for the other way.
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
