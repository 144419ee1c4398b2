"""Exercise 1.4: the C++ errors as Python exceptions."""

import random
import re
import types
from collections.abc import Iterator

from lessons_exercises.mistakes import Bank
from lessons_lib.checks import Exercise, Text
from lessons_lib.inline import build_cpp, read_kernel
from paged_attention import block_manager as errors
from paged_attention.block_manager import PythonBlockManager

# The Python type that each error derives from.
BASES = {
    "PoolSizeError": "ValueError",
    "OutOfBlocksError": "MemoryError",
    "BlockIndexError": "IndexError",
    "DoubleFreeError": "RuntimeError",
    "BlockNotAllocatedError": "RuntimeError",
}
# What raises each error, with a number in it that the text of the error names.
CALLS = {
    "PoolSizeError": lambda module, number: module.BlockManager(number),
    "OutOfBlocksError": lambda module, number: _allocate_one_more(
        module.BlockManager(number), number
    ),
    "BlockIndexError": lambda module, number: module.BlockManager(4).get_ref_count(number),
    "DoubleFreeError": lambda module, number: module.BlockManager(4).free(number),
    "BlockNotAllocatedError": (
        lambda module, number: module.BlockManager(4).increase_ref_count(number)
    ),
    "TypeError": lambda module, number: module.BlockManager(str(number)),
}
WORDS = {
    "PoolSizeError": "BlockManager({number})",
    "OutOfBlocksError": (
        "BlockManager({number}), and allocate() once more than there are blocks"
    ),
    "BlockIndexError": "BlockManager(4), get_ref_count({number})",
    "DoubleFreeError": "BlockManager(4), free({number})",
    "BlockNotAllocatedError": "BlockManager(4), increase_ref_count({number})",
    "TypeError": 'BlockManager("{number}")',
}
CASES = [
    ("PoolSizeError", -3),
    ("OutOfBlocksError", 1),
    ("BlockIndexError", 17),
    ("DoubleFreeError", 2),
    ("BlockNotAllocatedError", 2),
    ("TypeError", 4),
]


def hidden(seed):
    chance = random.Random(seed)
    numbers = {
        "PoolSizeError": range(-90, -3),
        "OutOfBlocksError": range(2, 90),
        "BlockIndexError": range(18, 90),
        "DoubleFreeError": (0, 1, 3),
        "BlockNotAllocatedError": (0, 1, 3),
        "TypeError": range(5, 90),
    }
    return [
        (name, number)
        for name in chance.sample([*numbers], len(numbers))
        for number in chance.sample(numbers[name], 2)
    ]


def _allocate_one_more(manager, num_blocks):
    for _ in range(num_blocks + 1):
        manager.allocate()


def build(binding):
    files = ("block_errors.h", "free_list.h", "block_manager.h")
    return build_cpp(
        *(read_kernel(file) for file in files), binding, names=(*files, "your code")
    )


def observe(module, case):
    """The exception that reaches Python: its name, its natural type and its text.

    It also says whether the module offers it.
    """
    name, number = case
    try:
        CALLS[name](module, number)
    except Exception as error:
        natural = next(
            base for base in type(error).__mro__ if base.__module__ == "builtins"
        ).__name__
        if name == "TypeError":
            return Text(f"a {natural}")
        offered = (
            ""
            if isinstance(error, getattr(module, name, ()))
            else f"; and there is no module.{name}"
        )
        return Text(f"{type(error).__name__} (a {natural}): {error}{offered}")
    return Text("no error")


def recognise(source: str) -> str | None:
    """A line in which the C++ type and the Python name are not the same word.

    Or one in which a standard type has our name.
    """
    lines = re.findall(
        r'register(?:_local)?_exception<\s*([\w:]+)\s*>\s*\(\s*\w+\s*,\s*"(\w*)"',
        without_comments(source),
    )
    if any(cpp in BASES and cpp != python for cpp, python in lines):
        return "names-differ"
    # The cases may not show it: no other error derives from std::invalid_argument.
    return (
        "base-class-swallows"
        if any(cpp.startswith("std::") and python in BASES for cpp, python in lines)
        else None
    )


def name_from_text(source: str) -> str | None:
    """Errors that are not there, or that have another base than in the table.

    Each choice of them gives something else, and there are too many choices to build them all.
    """
    text = without_comments(source)
    named = {name for name in BASES if re.search(rf"\b{name}\b", text)}
    if named and named != set(BASES):
        return "one-error-forgotten"
    others = {(name, base) for name, base in _names_with_bases(text) if base != BASES[name]}
    if others == {(name, "Exception") for name in BASES}:
        return "no-natural-base"
    if others == {("OutOfBlocksError", "RuntimeError")}:
        return "exhausted-is-no-memory-error"
    return "another-base" if others else None


def _names_with_bases(text: str) -> Iterator[tuple[str, str]]:
    """What statements with one of our errors and one of Python's say."""
    for statement in text.split(";"):
        names = {name for name in BASES if re.search(rf"\b{name}\b", statement)}
        bases = set(re.findall(r"\bPyExc_(\w+)", statement))
        if len(names) == len(bases) == 1:
            yield names.pop(), bases.pop()


def without_comments(source: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.DOTALL)


EXERCISE = Exercise(
    id="1.4",
    title="errors reach Python",
    answer_name="binding",
    language="c++",
    reference=types.SimpleNamespace(
        BlockManager=PythonBlockManager, **{name: getattr(errors, name) for name in BASES}
    ),
    prepare=build,
    cases=lambda: CASES,
    size=lambda case: 1,  # each makes one call too many
    hidden=hidden,
    observe=observe,
    describe=lambda case: WORDS[case[0]].format(number=case[1]),
    recognise=recognise,
    name_from_text=name_from_text,
    mistakes=Bank("1.4", "binding", __file__, globals(), build),
    hints=(
        (
            "Each error takes one line: "
            '`py::register_local_exception<CppType>(module, "PythonName", base);`.'
        ),
        (
            "The bases are CPython's own objects, named PyExc_ValueError, PyExc_MemoryError, "
            "PyExc_IndexError and PyExc_RuntimeError. "
            "The table above says which one belongs to which error."
        ),
    ),
)
