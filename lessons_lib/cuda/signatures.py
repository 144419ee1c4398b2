"""Finds the functions in CUDA texts that Python may call: `extern "C" int name(…)`.

Python reads the C++ declarations. So nothing is declared twice, and each call is checked.
"""

import ctypes
import re
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch

from lessons_lib.cuda.compiler_errors import CompileError
from lessons_lib.cuda_on_cpu.code_text import CodeText, one_line, split_at_commas

# Element types of tensors: the C++ name and the dtype. _SAME has other C++ names for them.
DTYPES = {
    "float": torch.float32,
    "double": torch.float64,
    "__half": torch.float16,
    "__nv_bfloat16": torch.bfloat16,
    "bool": torch.bool,
    "unsigned char": torch.uint8,
    "signed char": torch.int8,
    "short": torch.int16,
    "int": torch.int32,
    "long long": torch.int64,
    "unsigned short": torch.uint16,
    "unsigned": torch.uint32,
    "unsigned long long": torch.uint64,
    "void": None,  # any dtype
}
SCALARS: dict[str, "type[ctypes._SimpleCData[Any]]"] = {
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "bool": ctypes.c_bool,
    "unsigned char": ctypes.c_uint8,
    "signed char": ctypes.c_int8,
    "short": ctypes.c_int16,
    "int": ctypes.c_int32,
    "long long": ctypes.c_int64,
    "unsigned short": ctypes.c_uint16,
    "unsigned": ctypes.c_uint32,
    "unsigned long long": ctypes.c_uint64,
}
STREAM = "cudaStream_t"
_SAME = {
    "half": "__half",
    "nv_bfloat16": "__nv_bfloat16",
    "int8_t": "signed char",
    "uint8_t": "unsigned char",
    "char": "signed char",
    "int16_t": "short",
    "uint16_t": "unsigned short",
    "short int": "short",
    "unsigned short int": "unsigned short",
    "int32_t": "int",
    "uint32_t": "unsigned",
    "signed": "int",
    "signed int": "int",
    "unsigned int": "unsigned",
    "int64_t": "long long",
    "ptrdiff_t": "long long",
    "long": "long long",
    "long int": "long long",
    "long long int": "long long",
    "uint64_t": "unsigned long long",
    "size_t": "unsigned long long",
    "unsigned long": "unsigned long long",
    "unsigned long int": "unsigned long long",
    "unsigned long long int": "unsigned long long",
}
_UNDERSTOOD = (
    "pointers to float, double, __half, __nv_bfloat16, bool, int, int64_t, uint8_t, … "
    "and void; int, unsigned, int64_t, size_t, float, double and bool; cudaStream_t; "
    "and structs of these by value"
)
_FUNCTION = re.compile(r"\b(?:int|cudaError_t)\s+(?P<name>[A-Za-z_]\w*)\s*\(")
_EXTERN_C = re.compile(r'\bextern\s*"C"\s*(?P<block>\{)?')
_STRUCT = re.compile(
    r"\bstruct\s+(?:alignas\s*\([^()]*\)\s*)?(?P<name>[A-Za-z_]\w*)\s*(?:final\s*)?\{"
)
_ALIAS = re.compile(r"\busing\s+(\w+)\s*=\s*([^;{}]+);|\btypedef\s+([^;{}()]+?)\s*\b(\w+)\s*;")
_DECLARATOR = re.compile(
    r"(?P<type>.*?)(?P<stars>[\s*&]*)\b(?P<name>[A-Za-z_]\w*)\s*\Z", re.DOTALL
)


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function, or a field of a struct.

    type: the C++ type without const: a key of DTYPES or SCALARS, `cudaStream_t`, or a struct.
    pointer: whether it is a pointer to `type`.
    const: whether the memory that it points to must not change.
    fields: the fields of a struct that is passed by value, else empty.
    """

    name: str
    type: str
    pointer: bool = False
    const: bool = False
    fields: tuple["Parameter", ...] = ()

    @property
    def ctype(self):
        """The type for ctypes: an address for pointers and streams, else a Structure."""
        if self.pointer or self.type == STREAM:
            return ctypes.c_void_p
        return _structure(self) if self.fields else SCALARS[self.type]

    def __str__(self):
        return (
            f"{'const ' if self.const else ''}{self.type}{'*' if self.pointer else ''} "
            f"{self.name}"
        )


@cache
def _structure(parameter: Parameter):
    return type(
        parameter.type,
        (ctypes.Structure,),
        {"_fields_": [(field.name, field.ctype) for field in parameter.fields]},
    )


@dataclass(frozen=True)
class Function:
    """A function that Python may call. Its parameters are in the order of the text."""

    name: str
    parameters: tuple[Parameter, ...]

    @cached_property
    def arguments(self) -> tuple[Parameter, ...]:
        """A caller's arguments: parameters and fields of structs, without the stream."""
        flat = [
            part for parameter in self.parameters for part in parameter.fields or (parameter,)
        ]
        return tuple(parameter for parameter in flat if parameter.type != STREAM)

    @cached_property
    def ctypes(self) -> tuple:
        """The ctypes type of each of `parameters`."""
        return tuple(parameter.ctype for parameter in self.parameters)

    @cached_property
    def by_position(self) -> tuple[str, ...]:
        """The names of arguments that may be positional: all except fields of a struct."""
        return tuple(
            parameter.name
            for parameter in self.parameters
            if not parameter.fields and parameter.type != STREAM
        )

    def __str__(self):
        return f"{self.name}({', '.join(map(str, self.arguments))})"


def functions(sources: dict[str, str]) -> dict[str, Function]:
    """Each function with C linkage that returns int or cudaError_t, by name.

    sources: name to text.
    Raises CompileError if Python cannot pass a parameter.
    Raises CompileError if there is no such function.
    """
    codes = [CodeText(text, name) for name, text in sources.items()]
    types = _Types(codes)
    found = {}
    for code in codes:
        for position, name in _declared(code):
            function = Function(name, tuple(_parameters(code, position, name, types)))
            _check_names(code, position, function)
            found[name] = function
    if not found:
        raise CompileError(
            "No source has a function that Python can call. "
            'A launcher begins with  extern "C" int name(  and returns cudaGetLastError().'
        )
    return found


def _declared(code: CodeText):
    """(position of the opening parenthesis, name) of each function with C linkage."""
    for linkage in _EXTERN_C.finditer(code.plain):
        if code.bare[linkage.start()] != "e":
            continue  # this match is in a string
        if not linkage["block"]:
            end = code.find_outside_brackets(
                linkage.end(), lambda position: code.bare[position] in "({;"
            )
            if (
                end
                and code.bare[end] == "("
                and (function := _FUNCTION.search(code.bare, linkage.end(), end + 1))
            ):
                yield end, function["name"]
            continue
        start = linkage.end()
        for function in _FUNCTION.finditer(code.bare, start):
            inside = code.enclosing_braces(function.start())
            before = re.split(r"[;{}]", code.bare[start : function.start()])[-1]
            if (
                inside
                and inside[-1] == start - 1
                and not re.search(r"\b(static|return|else)\b|[=(]", before)
            ):
                yield function.end() - 1, function["name"]


def _parameters(code: CodeText, opening: int, function: str, types: "_Types"):
    end = code.find_outside_brackets(opening + 1, lambda position: code.bare[position] == ")")
    if end is None:
        raise code.error(opening, f"the parameters of {function} have no closing parenthesis")
    text = code.plain[opening + 1 : end]
    if text.strip() in ("", "void"):
        return
    start = opening + 1
    for part in split_at_commas(text):
        position = start + len(part) - len(part.lstrip())
        yield types.parameter(code, position, one_line(part), f"{function}: ")
        start += len(part) + 1


def _check_names(code, position, function: Function):
    names = [parameter.name for parameter in function.arguments]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise code.error(
            position,
            f"{function.name} has two parameters or fields called {twice[0]}; "
            "a call could not tell them apart",
        )


class _Types:
    """The structs in the texts, and aliases for types."""

    def __init__(self, codes):
        self.aliases = dict(_SAME)
        self.structs = {}
        self.being_read = []
        for code in codes:
            for match in _ALIAS.finditer(code.bare):
                new, old = (match[1], match[2]) if match[1] else (match[4], match[3])
                self.aliases.setdefault(new, one_line(old))
            for match in _STRUCT.finditer(code.bare):
                self.structs[match["name"]] = (code, match.end())

    def parameter(self, code, position, text: str, owner: str) -> Parameter:
        """`const float* __restrict__ a` as a Parameter. Errors name its `owner`."""
        if "=" in text:
            raise code.error(
                position,
                f"{owner}a default value, `{text}`, is not known to Python; leave it out",
            )
        parts = _DECLARATOR.match(re.sub(r"\b(?:__restrict__|__restrict|struct)\b", " ", text))
        if (
            not parts
            or not parts["type"].strip()
            or parts["name"] in {*SCALARS, *DTYPES, *_SAME, "const", "*"}
        ):
            raise code.error(
                position,
                f"{owner}the parameter `{text}` needs a type and a name (arrays: "
                "pass a pointer)",
            )
        # A const after the star fixes the pointer; a const before it fixes the memory.
        pointed, *behind = re.split(r"([*&])", parts["type"] + parts["stars"])
        stars = "".join(behind[0::2])
        const = re.search(r"\bconst\b", pointed) is not None
        name = self._plain(re.sub(r"\b(?:const|volatile)\b", " ", pointed))
        if stars == "*" and name in DTYPES:
            return Parameter(parts["name"], name, pointer=True, const=const)
        if stars == "" and name == STREAM or stars == "*" and name == "CUstream_st":
            return Parameter(parts["name"], STREAM)
        if stars == "" and name in SCALARS:
            return Parameter(parts["name"], name)
        if stars == "" and name in self.structs:
            return Parameter(parts["name"], name, fields=self._fields(code, position, name))
        raise code.error(
            position,
            f"{owner}Python cannot pass the parameter `{text}`. "
            f"What it can pass: {_UNDERSTOOD}",
        )

    def _plain(self, name: str) -> str:
        name = one_line(name).removeprefix("::").removeprefix("std::").strip()
        for _ in range(8):  # an alias may name an alias; a cycle would not compile
            if name not in self.aliases:
                break
            name = one_line(self.aliases[name]).removeprefix("std::")
        return name

    def _fields(self, code, position, struct: str) -> tuple[Parameter, ...]:
        if struct in self.being_read:
            raise code.error(position, f"the struct {struct} holds itself")
        code, start = self.structs[struct]
        end = code.find_outside_brackets(start, lambda at: code.bare[at] == "}", stop="")
        if end is None:
            raise code.error(start - 1, f"the struct {struct} has no closing brace")
        self.being_read.append(struct)
        fields = [
            field
            for at, text in _statements(code.plain, start, end)
            for field in self._field(code, at, text, struct)
        ]
        self.being_read.pop()
        if not fields:
            raise code.error(
                start - 1, f"the struct {struct} has no fields, so it needs not be passed"
            )
        return tuple(fields)

    def _field(self, code, position, text, struct):
        """The fields in one declaration. Both `int a, b;` and `float *a, *b;` have two."""
        if (
            "(" in text
            or "{" in text
            or text.startswith(("using ", "typedef ", "static "))
            or ":" in text.replace("::", "")
        ):
            raise code.error(
                position,
                f"the struct {struct} is passed from Python, so it has fields only, "
                f"not `{text}`",
            )
        first, *others = split_at_commas(text)
        parts = _DECLARATOR.match(first)
        kind = parts["type"].split("*")[0] if parts else ""
        for declarator in (first, *(f"{kind} {other}" for other in others)):
            field = self.parameter(code, position, one_line(declarator), f"struct {struct}: ")
            if field.fields or field.type == STREAM:
                raise code.error(
                    position,
                    f"the struct {struct} has the field {field.name}, "
                    "which is no pointer and no number; pass it as a parameter of its own",
                )
            yield field


def _statements(text: str, start: int, end: int):
    """The position and the text of each statement between `start` and `end`."""
    for part in text[start:end].split(";"):
        if part.strip():
            yield start + len(part) - len(part.lstrip()), one_line(part)
        start += len(part) + 1
