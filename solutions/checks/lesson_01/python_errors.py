"""Exercise 1.4: the C++ errors as Python exceptions."""

import random
import types

from lessons_lib import block_manager as errors
from lessons_lib.block_manager import PythonBlockManager
from lessons_lib.checks import Exercise, Mistake, Text
from lessons_lib.inline import build_cpp, read_kernel

NAMES = ("PoolSizeError", "OutOfBlocksError", "BlockIndexError", "DoubleFreeError", "BlockNotAllocatedError")
# What raises each error, with a number in it that the text of the error names.
CALLS = {
    "PoolSizeError": lambda module, number: module.BlockManager(number),
    "OutOfBlocksError": lambda module, number: _allocate_one_more(module.BlockManager(number), number),
    "BlockIndexError": lambda module, number: module.BlockManager(4).get_ref_count(number),
    "DoubleFreeError": lambda module, number: module.BlockManager(4).free(number),
    "BlockNotAllocatedError": lambda module, number: module.BlockManager(4).increase_ref_count(number),
    "TypeError": lambda module, number: module.BlockManager(str(number)),
}
WORDS = {
    "PoolSizeError": "BlockManager({number})",
    "OutOfBlocksError": "BlockManager({number}), and allocate() once more than there are blocks",
    "BlockIndexError": "BlockManager(4), get_ref_count({number})",
    "DoubleFreeError": "BlockManager(4), free({number})",
    "BlockNotAllocatedError": "BlockManager(4), increase_ref_count({number})",
    "TypeError": 'BlockManager("{number}")',
}
CASES = [("PoolSizeError", -3), ("OutOfBlocksError", 1), ("BlockIndexError", 17), ("DoubleFreeError", 2),
         ("BlockNotAllocatedError", 2), ("TypeError", 4)]


def hidden(seed):
    chance = random.Random(seed)
    numbers = {"PoolSizeError": range(-90, -3), "OutOfBlocksError": range(2, 90), "BlockIndexError": range(18, 90),
               "DoubleFreeError": (0, 1, 3), "BlockNotAllocatedError": (0, 1, 3), "TypeError": range(5, 90)}
    return [(name, number) for name in chance.sample([*numbers], len(numbers)) for number in chance.sample(numbers[name], 2)]


def _allocate_one_more(manager, num_blocks):
    for _ in range(num_blocks + 1):
        manager.allocate()


def build(binding):
    files = ("block_errors.h", "free_list.h", "block_manager.h")
    return build_cpp(*(read_kernel(file) for file in files), binding, names=(*files, "your code"))


def observe(module, case):
    """The exception that reaches Python: its name, its natural type, its text, and whether the module offers it."""
    name, number = case
    try:
        CALLS[name](module, number)
    except Exception as error:
        natural = next(base for base in type(error).__mro__ if base.__module__ == "builtins").__name__
        if name == "TypeError":
            return Text(f"a {natural}")
        offered = "" if isinstance(error, getattr(module, name, ())) else f"; and there is no module.{name}"
        return Text(f"{type(error).__name__} (a {natural}): {error}{offered}")
    return Text("no error")


def _module(**translations):
    """A stand-in for the compiled module; `translations`: C++ error name to the Python class that it becomes."""
    classes = {name: translations.get(name, getattr(errors, name)) for name in NAMES}

    class BlockManager(PythonBlockManager):
        def __getattribute__(self, name):
            value = super().__getattribute__(name)
            return _translating(value, classes) if callable(value) and not name.startswith("_") else value

    def make(num_blocks):
        return _translating(BlockManager, classes)(num_blocks)

    offered = {name: cls for name, cls in classes.items() if cls.__module__ != "builtins" and cls.__name__ == name}
    return types.SimpleNamespace(BlockManager=make, **offered)


def _translating(function, classes):
    def call(*arguments):
        try:
            return function(*arguments)
        except tuple(getattr(errors, name) for name in NAMES) as error:
            name = next(base.__name__ for base in type(error).__mro__ if base.__name__ in NAMES)
            raise classes[name](*error.args) from None
    return call


def _without_base(name):
    return type(name, (Exception,), {})


_EXHAUSTED_AS_RUNTIME_ERROR = type("OutOfBlocksError", (RuntimeError,), {})

EXERCISE = Exercise(
    id="1.4",
    title="errors reach Python",
    answer_name="binding",
    language="c++",
    reference=_module(),
    prepare=build,
    cases=lambda: CASES,
    hidden=hidden,
    observe=observe,
    describe=lambda case: WORDS[case[0]].format(number=case[1]),
    mistakes=(
        Mistake("nothing-registered",
                "No error has a class of its own yet. pybind11 turns the standard C++ errors into the nearest Python one, "
                "so a full pool and a double free look the same to the caller.",
                _module(PoolSizeError=ValueError, OutOfBlocksError=RuntimeError, BlockIndexError=IndexError,
                        DoubleFreeError=RuntimeError, BlockNotAllocatedError=RuntimeError),
                tuple((f"py::register_local_exception<{name}>(module, \"{name}\", PyExc_{base}Error);", "")
                      for name, base in zip(NAMES, ("Value", "Memory", "Index", "Runtime", "Runtime"), strict=True))),
        Mistake("no-natural-base",
                "Your exceptions derive from plain Exception. A caller who writes `except MemoryError` or "
                "`except IndexError`, as Python programmers do, misses them. The third argument names the base class.",
                _module(**{name: _without_base(name) for name in NAMES}),
                tuple((f', PyExc_{base}Error);', ");") for base in ("Value", "Memory", "Index"))
                + (('"DoubleFreeError", PyExc_RuntimeError);', '"DoubleFreeError");'),
                   ('"BlockNotAllocatedError", PyExc_RuntimeError);', '"BlockNotAllocatedError");'))),
        Mistake("exhausted-is-no-memory-error",
                "A full pool reaches Python as a RuntimeError. The pool is memory, and it has run out: MemoryError.",
                _module(OutOfBlocksError=_EXHAUSTED_AS_RUNTIME_ERROR), (("PyExc_MemoryError", "PyExc_RuntimeError"),)),
        Mistake("one-error-forgotten",
                "BlockNotAllocatedError is not registered, so it arrives as a plain RuntimeError.",
                _module(BlockNotAllocatedError=RuntimeError),
                (('py::register_local_exception<BlockNotAllocatedError>(module, "BlockNotAllocatedError", '
                  'PyExc_RuntimeError);', ""),)),
        Mistake("base-class-swallows",
                "One of your lines registers a base class (std::logic_error, say), which catches every error derived "
                "from it. pybind11 asks the translator that was registered last first. Register the five types "
                "themselves.",
                _module(PoolSizeError=errors.DoubleFreeError, BlockIndexError=errors.DoubleFreeError),
                (("<DoubleFreeError>", "<std::logic_error>"),)),
    ),
    hints=(
        "Each error takes one line: `py::register_local_exception<CppType>(module, \"PythonName\", base);`.",
        "The bases are CPython's own objects, named PyExc_ValueError, PyExc_MemoryError, PyExc_IndexError and "
        "PyExc_RuntimeError. The table above says which one belongs to which error.",
    ),
)
