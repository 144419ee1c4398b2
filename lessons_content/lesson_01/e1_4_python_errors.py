"""Exercise 1.4: errors reach Python.

Each error takes one line: `py::register_local_exception<CppType>(module, "PythonName",
base);`.

The bases are CPython's own objects, named PyExc_ValueError, PyExc_MemoryError,
PyExc_IndexError and PyExc_RuntimeError. The table above says which one belongs to which error.
"""

import re
import types
from collections.abc import Iterator

from lessons_content.exercises.kit import Text, exercise
from lessons_content.lesson_01.native import without_comments
from lessons_lib.cuda.inline import build_cpp, read_kernel
from paged_attention.pool import block_manager as errors
from paged_attention.pool.block_manager import PythonBlockManager

# The method of a manager of 4 blocks that raises an error.
METHODS = {
    "BlockIndexError": "get_ref_count",
    "DoubleFreeError": "free",
    "BlockNotAllocatedError": "increase_ref_count",
}
# What raises each error, with a number in it that the text of the error names.
WORDS = {
    "PoolSizeError": "BlockManager({})",
    "OutOfBlocksError": "BlockManager({}), and allocate() once more than there are blocks",
    "TypeError": 'BlockManager("{}")',
} | {name: f"BlockManager(4), {method}({{}})" for name, method in METHODS.items()}
# For each: the Python type that it derives from, and the number in the visible case and those
# in the hidden ones.
ERRORS = {
    "PoolSizeError": ("ValueError", -3, range(-90, -3)),
    "OutOfBlocksError": ("MemoryError", 1, range(2, 90)),
    "BlockIndexError": ("IndexError", 17, range(18, 90)),
    "DoubleFreeError": ("RuntimeError", 2, (0, 1, 3)),
    "BlockNotAllocatedError": ("RuntimeError", 2, (0, 1, 3)),
    "TypeError": ("TypeError", 4, range(5, 90)),
}
BASES = {name: base for name, (base, *_) in ERRORS.items() if name != base}


def hidden(chance):
    for name in chance.sample([*ERRORS], len(ERRORS)):
        for number in chance.sample(ERRORS[name][-1], 2):
            yield name, number


def build(binding):
    files = ("block_errors.h", "free_list.h", "block_manager.h")
    return build_cpp(*map(read_kernel, files), binding, names=(*files, "your code"))


def _call(module, name, number):
    """Does what WORDS says of an error."""
    if name in METHODS:
        getattr(module.BlockManager(4), METHODS[name])(number)
    else:
        manager = module.BlockManager(str(number) if name == "TypeError" else number)
        for _ in range(number + 1 if name == "OutOfBlocksError" else 0):
            manager.allocate()


def observe(module, case):
    """The exception that reaches Python: its name, natural type and text; is it offered?"""
    name, number = case
    try:
        _call(module, name, number)
    except Exception as error:
        bases = (base for base in type(error).__mro__ if base.__module__ == "builtins")
        natural = next(bases).__name__
        if name == "TypeError":
            return Text(f"a {natural}")
        is_offered = isinstance(error, getattr(module, name, ()))
        offered = "" if is_offered else f"; and there is no module.{name}"
        return Text(f"{type(error).__name__}, from {natural}: {error}{offered}")
    return Text("no error")


REGISTERED = r'register(?:_local)?_exception<\s*([\w:]+)\s*>\s*\(\s*\w+\s*,\s*"(\w*)"'


def recognise(source: str) -> str | None:
    """Another word as the Python name of a C++ type, or a standard type with our name."""
    lines = re.findall(REGISTERED, without_comments(source))
    if any(cpp in BASES and cpp != python for cpp, python in lines):
        return "names-differ"
    # The cases may not show it: no other error derives from std::invalid_argument.
    swallows = any(cpp.startswith("std::") and python in BASES for cpp, python in lines)
    return "base-class-swallows" if swallows else None


def name_from_text(source: str) -> str | None:
    """Errors that are not there, or that have another base than in the table.

    Each choice of them gives something else, and there are too many choices to build them all.
    """
    text = without_comments(source)
    named = {name for name in BASES if re.search(rf"\b{name}\b", text)}
    if named and named != set(BASES):
        return "one-error-forgotten"
    others = {(name, base) for name, base in _names_with_bases(text) if base != BASES[name]}
    if {base for _, base in others} == {"Exception"}:
        return "no-natural-base"
    if others == {("OutOfBlocksError", "RuntimeError")}:
        return "exhausted-is-no-memory-error"
    return "another-base" if others else None


def _names_with_bases(text: str) -> Iterator[tuple[str, str]]:
    """What statements with one of our errors say about its base."""
    for statement in text.split(";"):
        names = {name for name in BASES if re.search(rf"\b{name}\b", statement)}
        bases = set(re.findall(r"\bPyExc_(\w+)", statement))
        if re.search(rf"{REGISTERED}\s*\)", statement):
            bases = {"Exception"}  # pybind11's own choice
        if len(names) == len(bases) == 1:
            yield names.pop(), bases.pop()


EXERCISE = exercise(
    globals(),
    answer_name="binding",
    language="c++",
    reference=types.SimpleNamespace(
        BlockManager=PythonBlockManager, **{name: getattr(errors, name) for name in BASES}
    ),
    prepare=build,
    cases=lambda: [(name, number) for name, (_, number, _) in ERRORS.items()],
    size=lambda case: 1,  # each makes one call too many
    describe=lambda case: WORDS[case[0]].format(case[1]),
)
