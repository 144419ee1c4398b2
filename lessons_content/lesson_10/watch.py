"""Runs an answer as on a GPU.

Nothing may be read on the host. Of equal numbers, a sort may put any one first. Tensors of two
devices do not go together.
"""

import torch
from torch import Tensor

from lessons_content.exercises.second_device import SecondDevice, tensors_in
from lessons_lib.checks import Raised, raised
from paged_attention.engine.fast.graph import GraphError, Recorder, ToPython

# By their names: PyTorch's operations cannot be sent to the process that grades.
CONDITIONS = ("aten.is_nonzero.default", "aten.equal.default")
ONE_NUMBER = ("aten.item.default", "aten._local_scalar_dense.default")


COMPARISONS = {"ge", "gt", "le", "lt", "eq", "ne"}


class Elsewhere(SecondDevice):
    """Within this, PyTorch has a second device, and an answer's tensors can be there."""

    of_one_device = SecondDevice.of_one_device | {
        *(COMPARISONS | {f"__{name}__" for name in COMPARISONS}),
        *("__truediv__", "__rtruediv__", "div", "true_divide", "where", "masked_fill"),
        *("gather", "take_along_dim", "searchsorted", "scatter"),
        *("minimum", "maximum", "logical_and"),
    }


class HostRead(Raised):
    """The result of an answer that reads on the host.

    kind: what it reads: "text", "copy", "condition", "choice" (how many a mask chooses) or
        "number".
    names: the arguments that the number was computed from.
    """

    kind = ""
    names: tuple[str, ...] = ()


class Watch(Recorder):
    """Within this, an answer may not read on the host.

    read: its first attempt, or None.
    draws: whether it has asked PyTorch for random numbers.
    """

    def __init__(self, **arguments: Tensor):
        super().__init__()
        self.read: HostRead | None = None
        self.draws = False
        self._to_python = _WatchToPython(self)
        self._names = tuple(arguments)
        self._origins: dict[int, frozenset[str]] = {}  # of the numbers in a tensor's memory
        self._alive: list[Tensor] = []  # so that no memory is used twice
        for name, tensor in arguments.items():
            self._keep(tensor, frozenset([name]))

    def __enter__(self):
        self._to_python.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        return self._to_python.__exit__(*error)

    def run(self, call, may_draw: bool = False):
        """What `call()` returns. An attempt to read ends it, and has the learner's line.

        may_draw: whether an error does not count once PyTorch has drawn numbers.
        """
        try:
            with self:
                return call()
        except Exception as error:
            if self.read is None and not (may_draw and self.draws):
                raise
            if self.read is not None:
                self.read.where = raised(error).where
            return None

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        named, origin = named or {}, self.origin([arguments, named])
        self.draws = self.draws or torch.Tag.nondeterministic_seeded in function.tags
        try:
            if str(function) in UNSTABLE and not named.get("stable"):
                result = UNSTABLE[str(function)](*arguments, **named)
            else:
                result = super().__torch_dispatch__(function, types, arguments, named)
        except GraphError:
            self.note(_kind(function, arguments), origin)
            raise
        for tensor in tensors_in(result):
            self._keep(tensor, origin)
        return result

    def origin(self, values) -> frozenset[str]:
        """The arguments that these tensors were computed from."""
        known = [self._origins.get(_memory(tensor), ()) for tensor in tensors_in(values)]
        return frozenset().union(*known)

    def note(self, kind: str, origin: frozenset[str]):
        if self.read is None:
            names = tuple(name for name in self._names if name in origin)
            of = f" that comes from {', '.join(names)}" if names else ""
            self.read = HostRead(f"a {kind}{of} is read on the host")
            self.read.kind, self.read.names = kind, names

    def _keep(self, tensor: Tensor, origin: frozenset[str]):
        self._origins[_memory(tensor)] = origin
        self._alive.append(tensor)


class _WatchToPython(ToPython):
    def __init__(self, watch: Watch):
        super().__init__()
        self.watch = watch

    def __torch_function__(self, function, types, arguments=(), named=None):
        try:
            return super().__torch_function__(function, types, arguments, named)
        except GraphError:
            prints = function.__name__ in ("__repr__", "__format__")
            self.watch.note("text" if prints else "copy", self.watch.origin(arguments))
            raise


def _memory(tensor: Tensor) -> int:
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # it is a part of others, within vmap
        return 0


def _kind(function, arguments: tuple) -> str:
    if str(function) in CONDITIONS:
        return "condition"
    if str(function) in ONE_NUMBER:
        return "condition" if arguments[0].dtype == torch.bool else "number"
    return "choice"


def _sort(tensor: Tensor, dim=-1, descending=False, stable=None):
    """As PyTorch's sort, which need not be stable. Of equal numbers, odd places come first."""
    size = tensor.shape[dim]
    mixed = torch.cat([torch.arange(1, size, 2), torch.arange(0, size, 2)])
    values, places = tensor.index_select(dim, mixed).sort(
        dim=dim, descending=descending, stable=True
    )
    return values, mixed[places]


def _topk(tensor: Tensor, k, dim=-1, largest=True, sorted=True):
    return tuple(part.narrow(dim, 0, k) for part in _sort(tensor, dim, largest))


UNSTABLE = {
    "aten.sort.default": _sort,
    "aten.sort.stable": _sort,
    "aten.topk.default": _topk,
}
