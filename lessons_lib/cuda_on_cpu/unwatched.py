"""Refuses code that checked mode could not watch, by name and at the learner's line.

Checked mode sees the accesses that the compiler announces (README.md). So no code may stop the
compiler from announcing them, replace the functions that it calls, or reach memory in another
way. A macro can build a name from pieces, and names in comments and strings are not code. So
the search is in the preprocessor's output, and then in the library's symbols.
"""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from lessons_lib.cuda.compiler_errors import CompileError
from lessons_lib.cuda_on_cpu.code_text import CodeText, mask
from lessons_lib.cuda_on_cpu.source_lines import look_up

_HEADERS = Path(__file__).resolve().parent
# Headers of the runtime that a learner's text may include. The others are internal.
_OPEN_TO_ALL = {"intrinsics.h", "launch.h", "language.h", "numbers.h"}
_OWN_NAME = re.compile(r"\b(?:cuda_on_cpu|CUDA_ON_CPU|CUDA_SHARED|CUDA_DYNAMIC_SHARED)\w*")
_HIDING = (  # identifiers, and why they are refused
    (
        re.compile(
            r"(?:__)?(?:no_sanitize(?:_thread|_coverage)?|disable_sanitizer_instrumentation)(?:__)?"
        ),
        (
            "tells the compiler not to announce what this code reads and writes. "
            "Checked mode has to see each access: leave it out"
        ),
    ),
    (
        re.compile(r"__tsan_\w*|__sanitizer_\w*|__wrap_mem\w*"),
        (
            "belongs to checked mode, which is called by that name before each access; "
            "give yours another name"
        ),
    ),
    (
        re.compile(r"asm|__asm|__asm__"),
        (
            "hides what it reads and writes. "
            "Put a GPU's instructions between #ifdef __CUDACC__ and #else, and C++ after that"
        ),
    ),
)
# An empty assembly instruction. It only tells the compiler which values it must keep.
_NO_INSTRUCTION = re.compile(
    r'\b(?:__)?asm(?:__)?\s*(?:(?:__)?volatile(?:__)?\s*)?\(\s*""\s*[:)]'
)
_PRAGMA = re.compile(
    r"#\s*pragma\s+(GCC\s+(?:optimize|target|push_options|pop_options|reset_options|system_header)"
    r"|clang\s+(?:optimize|attribute)|redefine_extname|weak)\b"
)
_OPTIMIZE = re.compile(r"(?:__)?(?:optimize|optnone)(?:__)?")
_UNWATCHED = {
    "mempcpy",
    "memccpy",
    "bcopy",
    "bzero",
    "explicit_bzero",
    "strcpy",
    "strncpy",
    "stpcpy",
    "stpncpy",
    "strcat",
    "strncat",
    "swab",
    "qsort",
    "wmemcpy",
    "wmempcpy",
    "wmemmove",
    "wmemset",
    "dlsym",
    "dlopen",
}
_OF_EVERY_LIBRARY = {"_init", "_fini", "__bss_start", "_edata", "_end"}
# memcpy becomes a call of this (language.h)
_OURS_TO_CALL = {"cuda_on_cpu_memcpy", "cuda_on_cpu_memmove", "cuda_on_cpu_memset"}


def refuse_own_names(code: CodeText) -> None:
    """Raises CompileError if a learner's text uses a name that only our runtime has."""
    if name := _OWN_NAME.search(code.bare):
        raise code.error(
            name.start(),
            f"{name[0]} is a name of the CPU stand-in; CUDA has none like it, "
            "so choose another",
        )
    if line := re.search(r"^[ \t]*#[ \t]*(?:line\b|\d)", code.bare, re.MULTILINE):
        raise code.error(
            line.start(),
            "a line of another number would be shown in errors; leave this directive out",
        )


def refuse_text(preprocessed: str, texts: dict[str, str]) -> None:
    """Raises CompileError for code that hides accesses from the watch.

    preprocessed: the output of the preprocessor.
    texts: the learner's texts by name.
    """
    lines = list(_own_lines(preprocessed))
    for refuse in (_refuse_headers, _refuse_pragmas, _refuse_names, _refuse_attributes):
        refuse(lines, texts)


def refuse_symbols(library: Path, runtime: Path, texts: dict[str, str]) -> None:
    """Raises CompileError if the library defines a symbol that only the runtime may define.

    Also raises it if the library calls a function that nothing watches.
    """
    own = {
        name for name, (kind, _) in _symbols(runtime).items() if kind in "TDBR"
    } - _OF_EVERY_LIBRARY
    for name, (kind, address) in sorted(
        _symbols(library).items(), key=lambda symbol: symbol[1][1]
    ):
        plain = re.split(r"[(@]", name)[0]  # without parameters and the C library's version
        if kind == "U" and plain.startswith("cuda_on_cpu_") and plain not in _OURS_TO_CALL:
            raise _error(
                _using(plain, texts),
                texts,
                f"{plain} is a name of the CPU stand-in; CUDA has none like it",
            )
        if kind == "U" and plain in _UNWATCHED:
            raise _error(
                _using(plain, texts),
                texts,
                f"{plain} reaches memory in a way that checked mode does not see, "
                "and no kernel can call it on a GPU. memcpy, memmove and memset are watched",
            )
        if kind not in "UwVvWu" and name in own:
            (line,) = look_up(str(library), [address + 1], texts)
            raise _error(
                _Line(line.source, line.number, "") if line else None,
                texts,
                f"{plain} is a name that CUDA, or the CPU stand-in, has itself; "
                "give yours another one",
            )


@dataclass(frozen=True)
class _Line:
    """A line of the preprocessor's output that is not from one of our headers or the system's.

    opens: the header that is included there, or "".
    """

    source: str
    number: int
    text: str
    opens: str = ""


def _own_lines(preprocessed: str):
    """Each line that is from no header, with its original place."""
    source, number, own = "", 0, False
    for text in preprocessed.split("\n"):
        marker = re.match(r'# (\d+) "((?:[^"\\]|\\.)*)"([ \d]*)', text)
        if not marker:
            if own and text.strip():
                yield _Line(source, number, text)
            number += 1
            continue
        entered, flags = marker[2], marker[3].split()
        ours = not entered.startswith("<") and _HEADERS in Path(entered).resolve().parents
        if own and ours and "1" in flags:
            yield _Line(source, number, "", str(Path(entered).resolve().relative_to(_HEADERS)))
        own = not ours and "3" not in flags and not entered.startswith("<")
        source, number = entered, int(marker[1])


def _refuse_headers(lines: list[_Line], texts):
    for line in lines:
        if (
            line.opens
            and not line.opens.startswith("include/")
            and line.opens not in _OPEN_TO_ALL
        ):
            raise _error(
                line,
                texts,
                f"{line.opens} is a part of the CPU stand-in; "
                "a kernel needs CUDA's own headers only",
            )


def _refuse_pragmas(lines: list[_Line], texts):
    for line in lines:
        if pragma := _PRAGMA.match(line.text.lstrip()):
            raise _error(
                line,
                texts,
                f"#pragma {' '.join(pragma[1].split())} changes how the compiler "
                "announces accesses; leave it out",
            )


def _refuse_names(lines: list[_Line], texts):
    code = mask("\n".join(_NO_INSTRUCTION.sub("(", line.text) for line in lines))
    for line, words in zip(lines, code.split("\n"), strict=True):
        for name in re.findall(r"[A-Za-z_]\w*", words):
            for pattern, reason in _HIDING:
                if pattern.fullmatch(name):
                    raise _error(line, texts, f"{name} {reason}")


def _refuse_attributes(lines: list[_Line], texts):
    """Refuses attributes that change optimization. Otherwise `optimize` is a normal name."""
    code = CodeText("\n".join(line.text for line in lines), "")
    for attribute in re.finditer(r"\b__attribute(?:__)?\s*(?=\()|\[(?=\[)", code.bare):
        end = code.find_outside_brackets(
            attribute.end() + 1, lambda position: code.bare[position] in ")]", stop=""
        )
        for name in re.finditer(r"[A-Za-z_]\w*", code.bare[attribute.end() : end or 0]):
            if _OPTIMIZE.fullmatch(name[0]):
                line = lines[code.bare.count("\n", 0, attribute.end() + name.start())]
                raise _error(
                    line,
                    texts,
                    f"{name[0]} changes how the compiler announces accesses; "
                    "leave the attribute out",
                )


def _using(name: str, texts: dict[str, str]) -> "_Line | None":
    """The first line that contains this name; None if only a macro makes it."""
    for source, text in texts.items():
        for number, words in enumerate(mask(text).split("\n"), 1):
            if re.search(rf"\b{re.escape(name)}\b", words):
                return _Line(source, number, words)
    return None


def _symbols(library: Path) -> dict[str, tuple[str, int]]:
    """The kind and the address of each symbol, as nm prints them. Empty if there is no nm."""
    try:
        listed = subprocess.run(
            ["nm", "-C", library], capture_output=True, text=True, errors="replace"
        ).stdout
    except OSError:
        return {}
    found = re.findall(r"^([0-9a-f]*) +([A-Za-z]) (.+)$", listed, re.MULTILINE)
    prefix = "_" if sys.platform == "darwin" else ""
    return {
        name.removeprefix(prefix): (kind, int(address or "0", 16))
        for address, kind, name in found
    }


def _error(line: _Line | None, texts: dict[str, str], reason: str) -> CompileError:
    if line is None or line.source not in texts:
        where = f"{line.source}, line {line.number}: " if line else ""
        return CompileError(f"{where}{reason}.", reason=reason)
    learners = texts[line.source].split("\n")
    excerpt = (
        learners[line.number - 1].replace("\t", " ") if line.number <= len(learners) else ""
    )
    return CompileError(
        f"{line.source}, line {line.number}: {reason}.\n    {excerpt}",
        line.source,
        line.number,
        reason,
    )
