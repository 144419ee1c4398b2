"""Exercise 1.4: the C++ errors as Python exceptions."""

import builtins
import itertools
import random
import re
import types

from lessons_exercises.lesson_01.e1_2_reference_counts import without_comments
from lessons_lib.checks import Exercise, Mistake, Text
from lessons_lib.inline import build_cpp, read_kernel
from paged_attention import block_manager as errors
from paged_attention.block_manager import PythonBlockManager

NAMES = (
    "PoolSizeError",
    "OutOfBlocksError",
    "BlockIndexError",
    "DoubleFreeError",
    "BlockNotAllocatedError",
)
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


def _module(**translations):
    """A stand-in for the compiled module.

    `translations`: C++ error name to the Python class that it becomes.
    """
    classes = {name: translations.get(name, getattr(errors, name)) for name in NAMES}

    class BlockManager(PythonBlockManager):
        def __getattribute__(self, name):
            value = super().__getattribute__(name)
            return (
                _translating(value, classes)
                if callable(value) and not name.startswith("_")
                else value
            )

    def make(num_blocks):
        return _translating(BlockManager, classes)(num_blocks)

    offered = {
        name: cls
        for name, cls in classes.items()
        if cls.__module__ != "builtins" and cls.__name__ == name
    }
    return types.SimpleNamespace(BlockManager=make, **offered)


def _translating(function, classes):
    def call(*arguments):
        try:
            return function(*arguments)
        except tuple(getattr(errors, name) for name in NAMES) as error:
            name = next(
                base.__name__ for base in type(error).__mro__ if base.__name__ in NAMES
            )
            raise classes[name](*error.args) from None

    return call


def _without_base(name):
    return type(name, (Exception,), {})


def _based_on(name, base):
    return type(name, (getattr(builtins, base),), {})


BASES = dict(
    zip(
        NAMES,
        ("ValueError", "MemoryError", "IndexError", "RuntimeError", "RuntimeError"),
        strict=True,
    )
)
# What pybind11 makes of the C++ types that the errors derive from.
UNREGISTERED = dict(
    zip(NAMES, (ValueError, RuntimeError, IndexError, RuntimeError, RuntimeError), strict=True)
)


def _forgotten():
    """Every choice of one to four errors that are not registered.

    The last error alone is not among them.
    """
    for count in range(1, len(NAMES)):
        for missing in itertools.combinations(NAMES, count):
            if missing != NAMES[-1:]:
                yield _module(**{name: UNREGISTERED[name] for name in missing})


def _other_bases():
    """One error with another base, and two that have changed places.

    A full pool as RuntimeError has a name of its own.
    """
    for name, base in itertools.product(NAMES, sorted(set(BASES.values()))):
        if base != BASES[name] and (name, base) != ("OutOfBlocksError", "RuntimeError"):
            yield _module(**{name: _based_on(name, base)})
    for one, other in itertools.combinations(NAMES, 2):
        if BASES[one] != BASES[other]:
            yield _module(
                **{one: _based_on(one, BASES[other]), other: _based_on(other, BASES[one])}
            )


def recognise(source: str) -> str | None:
    """A line in which the C++ type and the Python name are not the same word.

    Or one in which a standard type has our name.
    """
    lines = re.findall(
        r'register(?:_local)?_exception<\s*([\w:]+)\s*>\s*\(\s*\w+\s*,\s*"(\w*)"',
        without_comments(source),
    )
    if any(cpp in NAMES and cpp != python for cpp, python in lines):
        return "names-differ"
    # The cases may not show it: no other error derives from std::invalid_argument.
    return (
        "base-class-swallows"
        if any(cpp.startswith("std::") and python in NAMES for cpp, python in lines)
        else None
    )


def _line(name):
    return f'py::register_local_exception<{name}>(module, "{name}", PyExc_{BASES[name]});'


_TRANSLATOR = (
    """py::register_local_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    }"""
    + "".join(
        f"""
    catch (const {name}& error) {{ PyErr_SetString(PyExc_{base}, error.what()); }}"""
        for name, base in BASES.items()
    )
    + """
  });"""
)

_EXHAUSTED_AS_RUNTIME_ERROR = type("OutOfBlocksError", (RuntimeError,), {})

EXERCISE = Exercise(
    id="1.4",
    title="errors reach Python",
    answer_name="binding",
    language="c++",
    reference=_module(),
    prepare=build,
    cases=lambda: CASES,
    size=lambda case: 1,  # each makes one call too many
    hidden=hidden,
    observe=observe,
    describe=lambda case: WORDS[case[0]].format(number=case[1]),
    recognise=recognise,
    mistakes=(
        Mistake(
            "nothing-registered",
            "No error has its own class yet. pybind11 turns the standard C++ errors into "
            "the nearest Python one. So a full pool and a double free look the same "
            "to the caller.",
            _module(
                PoolSizeError=ValueError,
                OutOfBlocksError=RuntimeError,
                BlockIndexError=IndexError,
                DoubleFreeError=RuntimeError,
                BlockNotAllocatedError=RuntimeError,
            ),
            tuple(
                (
                    (
                        f'py::register_local_exception<{name}>(module, "{name}", '
                        f"PyExc_{base}Error);"
                    ),
                    "",
                )
                for name, base in zip(
                    NAMES, ("Value", "Memory", "Index", "Runtime", "Runtime"), strict=True
                )
            ),
        ),
        Mistake(
            "no-classes-of-their-own",
            "Your errors arrive as Python's own ValueError, MemoryError, "
            "IndexError and RuntimeError. Those are only the bases. "
            "Each error has its own class, and the module offers it.",
            _module(**{name: getattr(builtins, base) for name, base in BASES.items()}),
            tuple(
                (_line(name), "" if number else _TRANSLATOR)
                for number, name in enumerate(NAMES)
            ),
        ),
        Mistake(
            "no-natural-base",
            "Your exceptions derive from plain Exception. "
            "A caller who writes `except MemoryError` or `except IndexError`, "
            "as Python programmers do, misses them. The third argument names the base class.",
            _module(**{name: _without_base(name) for name in NAMES}),
            tuple((f", PyExc_{base}Error);", ");") for base in ("Value", "Memory", "Index"))
            + (
                ('"DoubleFreeError", PyExc_RuntimeError);', '"DoubleFreeError");'),
                (
                    '"BlockNotAllocatedError", PyExc_RuntimeError);',
                    '"BlockNotAllocatedError");',
                ),
            ),
        ),
        Mistake(
            "exhausted-is-no-memory-error",
            "A full pool reaches Python as a RuntimeError. The pool is memory, "
            "and it has run out. That is a MemoryError.",
            _module(OutOfBlocksError=_EXHAUSTED_AS_RUNTIME_ERROR),
            (("PyExc_MemoryError", "PyExc_RuntimeError"),),
        ),
        Mistake(
            "one-error-forgotten",
            "Not every error of the table is registered. "
            "An error without its own line arrives as the nearest type that pybind11 knows. "
            "The module then has no class of that name.",
            _module(BlockNotAllocatedError=RuntimeError),
            (
                (
                    (
                        "py::register_local_exception<BlockNotAllocatedError>(module, "
                        '"BlockNotAllocatedError", PyExc_RuntimeError);'
                    ),
                    "",
                ),
            ),
            also=tuple(_forgotten()),
        ),
        Mistake(
            "another-base",
            "An error derives from another Python type than the table says. "
            "A caller who writes `except` with the type in the table misses it.",
            _module(BlockIndexError=_based_on("BlockIndexError", "ValueError")),
            (("PyExc_IndexError", "PyExc_ValueError"),),
            also=tuple(_other_bases()),
        ),
        Mistake(
            "names-differ",
            "In one of your lines the C++ type and the Python name are different words. "
            "Each error keeps its name.",
            None,
            (('"BlockNotAllocatedError"', '"BlockNotAllocated"'),),
        ),
        Mistake(
            "base-class-swallows",
            "One of your lines registers a base class, such as std::logic_error. "
            "A base class catches every error derived from it. "
            "pybind11 asks the last registered translator first. "
            "Register the five types themselves.",
            _module(
                PoolSizeError=errors.DoubleFreeError, BlockIndexError=errors.DoubleFreeError
            ),
            (("<DoubleFreeError>", "<std::logic_error>"),),
        ),
    ),
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
