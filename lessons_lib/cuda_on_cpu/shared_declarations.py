"""Turns `__shared__ float tile[32], sum;` into macros of launch.h: one variable per block."""

import re
from collections.abc import Iterator

from lessons_lib.cuda_on_cpu.code_text import (
    CodeText,
    line_ends,
    one_line,
    outside_brackets,
    split_at_commas,
)

_ALIGNMENT = re.compile(r"\b(?:__align__|alignas)\s*(\((?:[^()]|\([^()]*\))*\))")
_QUALIFIERS_BEFORE = re.compile(
    r"(?:\b(?:extern|static|const|volatile)\b\s*|" + _ALIGNMENT.pattern + r"\s*)+\Z"
)
_DECLARATOR = re.compile(
    r"(?P<stars>[\s*&]*)(?P<name>[A-Za-z_]\w*)\s*(?P<dimensions>(?:\[.*\]\s*)?)\Z", re.DOTALL
)


def shared_declarations(code: CodeText) -> Iterator[tuple[int, int, str]]:
    """Each `__shared__` declaration as (start, end, replacement)."""
    for keyword in re.finditer(r"\b__shared__\b", code.bare):
        before = _QUALIFIERS_BEFORE.search(
            code.bare, max(0, keyword.start() - 300), keyword.start()
        )
        start = before.start() if before else keyword.start()
        semicolon = code.find_outside_brackets(
            keyword.end(), lambda position: code.bare[position] == ";"
        )
        if semicolon is None:
            raise code.error(
                keyword.start(), "this __shared__ declaration does not end with a semicolon"
            )
        if not _in_macro(code, start) and _at_namespace_scope(code, start):
            raise code.error(
                keyword.start(),
                "declare __shared__ variables inside the kernel or function that uses them",
            )
        words = (
            code.plain[start : keyword.start()] + " " + code.plain[keyword.end() : semicolon]
        )
        macros = _Declaration(code, keyword.start(), words).macros()
        yield start, semicolon + 1, macros + line_ends(code.text[start:semicolon])


def _in_macro(code: CodeText, position: int) -> bool:
    """Whether `position` is in a directive.

    All lines of one but the last end in a backslash.
    """
    return (
        re.search(r"^[ \t]*#(?:\\\n|[^\n])*\Z", code.bare[:position], re.MULTILINE) is not None
    )


def _at_namespace_scope(code: CodeText, position: int) -> bool:
    before = [
        code.plain[max(0, brace - 200) : brace] for brace in code.enclosing_braces(position)
    ]
    return all(
        re.search(r'(\bnamespace\b[\w\s:]*|\bextern\s*"C"\s*)\Z', text) for text in before
    )


class _Declaration:
    """One declaration.

    words: the declaration without `__shared__` and the semicolon.
    position: its place in the text, for errors.
    """

    def __init__(self, code: CodeText, position: int, words: str):
        self.code, self.position = code, position
        self.alignments = [match[1][1:-1].strip() for match in _ALIGNMENT.finditer(words)]
        words = one_line(_ALIGNMENT.sub(" ", words))
        self.external = re.search(r"\bextern\b", words) is not None
        self.words = re.sub(r"\b(?:extern|static)\b\s*", "", words)

    def macros(self) -> str:
        """One macro for each declared variable."""
        if len(self.alignments) > 1:
            raise self._error("this __shared__ declaration has more than one alignment")
        if re.search(r"\b(struct|union|class|enum)\b[^;]*\{", self.words):
            raise self._error(
                "give the type a name of its own before the __shared__ declaration"
            )
        if "{" in self.words or "=" in outside_brackets(self.words):
            raise self._error(
                "a __shared__ variable has no initial value; a thread has to write it"
            )
        first, *others = split_at_commas(self.words)
        kind, first = _type_and_declarator(first)
        return " ".join(self._macro(kind, declarator) for declarator in (first, *others))

    def _macro(self, kind: str, declarator: str) -> str:
        parts = _DECLARATOR.match(declarator)
        if not kind or not parts or "&" in parts["stars"]:
            raise self._error(
                "this __shared__ declaration cannot be read; "
                "the usual form is  __shared__ float name[64];"
            )
        kind = _macro_safe_type(kind + re.sub(r"\s", "", parts["stars"]))
        dimensions = _macro_safe_dimensions(parts["dimensions"])
        if self.external:
            if re.sub(r"\s", "", dimensions) != "[]":
                raise self._error(
                    "an extern __shared__ array has no length here, only name[]; "
                    "the launch gives it"
                )
            if self.alignments:
                return (
                    f"CUDA_DYNAMIC_SHARED_ALIGNED({self.alignments[0]}, {kind}, "
                    f"{parts['name']});"
                )
            return f"CUDA_DYNAMIC_SHARED({kind}, {parts['name']});"
        if re.search(r"\[\s*\]", dimensions):
            raise self._error(
                "a __shared__ array needs its length here; "
                "only an extern one gets it from the launch"
            )
        if self.alignments:
            return (
                f"CUDA_SHARED_ALIGNED({self.alignments[0]}, {kind}, {parts['name']}, "
                f"{dimensions});"
            )
        return f"CUDA_SHARED({kind}, {parts['name']}, {dimensions});"

    def _error(self, reason: str):
        return self.code.error(self.position, reason)


def _type_and_declarator(text: str) -> tuple[str, str]:
    """`unsigned long long counts[4]` as type and declarator.

    The declarator begins with the last name outside brackets, including its stars.
    """
    names = list(re.finditer(r"[A-Za-z_]\w*", outside_brackets(text)))
    if not names:
        return "", text
    kind = text[: names[-1].start()]
    without_stars = kind.rstrip("*& ")
    return without_stars, kind[len(without_stars) :] + text[names[-1].start() :]


def _macro_safe_type(kind: str) -> str:
    """The type in parentheses, because a macro would split `std::pair<int, int>` in two."""
    if "," not in kind:
        return kind
    volatile = "volatile " if re.search(r"\bvolatile\b", outside_brackets(kind)) else ""
    kind = re.sub(r"\A(?:(?:const|volatile)\s+)+", "", kind)
    return f"{volatile}typename cuda_on_cpu::argument<void({kind})>::type"


def _macro_safe_dimensions(dimensions: str) -> str:
    """`[(size<T, 4>())]` for `[size<T, 4>()]`, so that a macro does not split it."""
    return re.sub(r"\[([^\[\]]*,[^\[\]]*)\]", r"[(\1)]", dimensions).strip()
