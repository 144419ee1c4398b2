"""The tensors of a decode step, watched, for 10.2."""

import torch
from torch import Tensor

from lessons_content.exercises.errors import retold
from lessons_content.exercises.naming_words import Alike
from lessons_content.exercises.second_device import SECOND, SecondDevice
from lessons_content.lesson_10.watch import HostRead, Watch
from lessons_lib.checks import Raised
from paged_attention.engine.fast.graph import capture
from paged_attention.engine.fast.state import PADDING, StepState

READ = ("tokens", "positions", "context_lens", "slots", "block_table")  # by a recorded step
OTHERS = ("table", "lengths", "last_tokens", "rows")


class Replaced(Alike):
    """The result of an answer that has put another tensor in a tensor's place.

    The numbers in it do not count, since a recorded step does not know it.

    name: of the tensor.
    when: after which call.
    """

    name = when = ""


class Cut(Replaced):
    """The result of an answer that has put a part of a tensor in the tensor's place."""


class OnTwoDevices(Alike, Raised):
    """The result of an answer that computes with tensors of two devices."""


class OutOfBounds(Alike, Raised):
    """The result of an answer that looks where a tensor or a list has nothing."""


class OfTwoSizes(Alike, Raised):
    """The result of an answer that writes a number of things into another number of places."""


class ReadOnHost(Alike, HostRead):
    """The result of an answer that reads on the host, whichever tensor it reads."""


# The operations of PyTorch have different words for the same error.
ALIKE = {
    "on the same device": OnTwoDevices,
    "out of bounds": OutOfBounds,
    "out of range": OutOfBounds,
    "must match": OfTwoSizes,
    "number of sizes provided": OfTwoSizes,
    "shape mismatch": OfTwoSizes,
}


class Changed(Alike):
    """What an answer has changed, in words. Whichever it is, it is the same mistake."""


class BareState(StepState):
    """A state without kernels, since they take seconds to build."""

    def __init__(self, table: Tensor, block_size: int):
        self.table, self.block_size = table, block_size
        self.last_tokens = torch.arange(70, 71 + len(table))
        self.lengths = torch.full((len(table),), 2, dtype=torch.int32)
        self.rows = torch.full((len(table),), PADDING, dtype=torch.int32)
        self.tokens = torch.zeros(len(table), dtype=torch.int64)
        self.positions = torch.zeros_like(self.tokens)
        self.slots = torch.full_like(self.tokens, PADDING)
        self.context_lens = torch.zeros_like(self.lengths)
        self.block_table = torch.zeros_like(table)


BareState.__name__ = BareState.__qualname__ = "StepState"  # as messages name it


class RecordedStep:
    """A step that copies the tensors of a state. Like a CUDA graph, it knows their memory."""

    def __init__(self, state: StepState):
        self.state = state
        # further names of the same memory, since `tensor.data = …` gives a tensor other memory
        self.known = {name: getattr(state, name).detach() for name in (*READ, *OTHERS)}
        step = capture(lambda: [self.known[name] + 0 for name in READ], torch.device("cpu"))
        self._replay = step.replay

    def sees(self) -> dict[str, Tensor]:
        return {name: tensor.clone() for name, tensor in zip(READ, self._replay())}

    def others(self) -> dict[str, list]:
        return {name: self.known[name].tolist() for name in OTHERS}

    def replaced(self, when: str) -> Replaced | None:
        """A tensor of the state that is not the one that it was."""
        for name, known in self.known.items():
            now = getattr(self.state, name, None)
            if not isinstance(now, Tensor) or now.data_ptr() != known.data_ptr():
                words = f"{when}self.{name} is another tensor"
                if name in READ:
                    seen = self.sees()[name].tolist()
                    words += f", and the recorded step still sees {name} {seen}"
                result = Replaced(words)
            elif now.shape != known.shape or now.dtype != known.dtype:
                result = Cut(f"{when}self.{name} has the shape {list(now.shape)}")
            else:
                continue
            result.name, result.when = name, when
            return result
        return None


class _Elsewhere(SecondDevice):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is Tensor.pin_memory:  # a way to the device, which needs a GPU
            return args[0]
        return super().__torch_function__(function, types, args, kwargs)


def on_a_device(answer, table: Tensor, block_size: int, *given) -> Raised | None:
    """The error of an answer if the tensors are not on the CPU, or its read on the host."""
    state = BareState(table, block_size)
    with _Elsewhere():
        for name in (*READ, *OTHERS):
            setattr(state, name, getattr(state, name).to(SECOND))
        error = error_of(answer, state, *given)
    return error or _read_by(answer, BareState(table, block_size), *given)


def _read_by(answer, state: StepState, *given) -> ReadOnHost | None:
    watch = Watch(**{name: getattr(state, name) for name in (*READ, *OTHERS)})
    watch.run(lambda: answer(state, *given))
    if watch.read is None:
        return None
    found = ReadOnHost(watch.read)
    found.where = watch.read.where
    return found


def error_of(answer, *given) -> Raised | None:
    """An error of a kind that PyTorch has several words for. Others are raised."""
    try:
        answer(*given)
    except (IndexError, RuntimeError) as error:
        kinds = [kind for words, kind in ALIKE.items() if words in str(error)]
        if not kinds:
            raise
        return retold(error, kind=kinds[0])
    return None
