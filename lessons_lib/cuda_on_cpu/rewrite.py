"""Turns CUDA into C++. Only launches with `<<< >>>` and `__shared__` are not C++.

All other parts (`__global__`, `threadIdx`, `__syncthreads()`) are macros, variables or
functions in our headers. Rewritten code stays on its own line, so errors and reports have the
learner's line numbers.
"""

import re
from dataclasses import dataclass

from lessons_lib.cuda_on_cpu.code_text import CodeText, line_ends, one_line, split_at_commas
from lessons_lib.cuda_on_cpu.shared_declarations import shared_declarations
from lessons_lib.cuda_on_cpu.unwatched import refuse_own_names

_KERNEL_NAME = re.compile(
    r"(?:::\s*)?\b(?!(?:return|else|do)\b)[A-Za-z_]\w*(?:\s*(?:::|\.|->)\s*[A-Za-z_]\w*)*\s*\Z"
)
_CAST = re.compile(
    r"\A\s*(?:\(\s*(?:const\s+)?void\s*(?:const\s*)?\*\s*\)"
    r"|(?:reinterpret|static)_cast\s*<\s*(?:const\s+)?void\s*(?:const\s*)?\*\s*>)\s*&?\s*"
)


def rewrite(text: str, source: str = "your code") -> str:
    """`text` as C++ with the same lines.

    Raises CompileError, at the line in `source`, for code that cannot be read.
    """
    code = CodeText(text, source)
    refuse_own_names(code)
    replacements = [
        *_launches(code),
        *_launches_by_function(code),
        *shared_declarations(code),
        # This is not a macro, because the C++ library uses this name too.
        *(
            (keyword.start(), keyword.end(), "__attribute__((noinline))")
            for keyword in re.finditer(r"(?<!\()\b__noinline__\b", code.bare)
        ),
    ]
    for start, end, replacement in sorted(replacements, reverse=True):
        text = text[:start] + replacement + text[end:]
    return text


def kernels_launched(text: str) -> list[str]:
    """The kernels that `text` launches, in order and as written: `copy<float, 4>`."""
    code = CodeText(text, "")
    launches = [(launch.start, launch.kernel) for launch in _find_launches(code)]
    launches += [
        (start, one_line(kernel)) for start, _, _, kernel in _find_launches_by_function(code)
    ]
    return [kernel for _, kernel in sorted(launches)]


@dataclass(frozen=True)
class _Launch:
    """`kernel<<<configuration>>>`: its start, where `<<<` and `>>>` are, and its name."""

    start: int
    opening: int
    closing: int
    kernel: str


def _launches(code: CodeText):
    """Each launch as (start, end, replacement)."""
    for launch in _find_launches(code):
        name = launch.kernel.replace("\\", r"\\").replace('"', r"\"")
        ends = line_ends(code.text[launch.start : launch.opening])
        configuration = code.plain[launch.opening + 3 : launch.closing]
        yield (
            launch.start,
            launch.closing + 3,
            (
                f'cuda_on_cpu::launch(cuda_on_cpu::configure({ends}"{name}", '
                f"{configuration}), CUDA_KERNEL_ADDRESS({launch.kernel}), "
                f"[=](auto... arguments) {{ {launch.kernel}(arguments...); }})"
            ),
        )


def _launches_by_function(code: CodeText):
    """Each `cudaLaunchKernel((void*)kernel, …)` as (start, end, replacement).

    The end is the end of the kernel's name. CUDA takes any address there. But we need the
    kernel's own type, because it has the parameters' types.
    """
    for start, arguments, end, kernel in _find_launches_by_function(code):
        name = one_line(kernel).replace("\\", r"\\").replace('"', r"\"")
        ends = line_ends(code.text[start:arguments])
        yield (
            start,
            end,
            (
                f'cuda_on_cpu::launch_kernel({ends}"{name}", '
                f"{kernel}{line_ends(code.text[arguments:end])}"
            ),
        )


def _find_launches_by_function(code: CodeText):
    """For each: its start, its arguments' start, the end of the first argument, the kernel."""
    for call in re.finditer(r"\bcudaLaunchKernel\s*\(", code.bare):
        closing = code.find_outside_brackets(
            call.end(), lambda position: code.bare[position] == ")"
        )
        if closing is None:
            raise code.error(call.start(), "cudaLaunchKernel has no closing parenthesis")
        first = split_at_commas(code.plain[call.end() : closing])[0]
        yield call.start(), call.end(), call.end() + len(first), one_line(_CAST.sub("", first))


def _find_launches(code: CodeText):
    opening = code.bare.find("<<<")
    while opening >= 0:
        start = _kernel_start(code, opening)
        closing = _launch_end(code, opening)
        if closing is None:
            raise code.error(opening, "this <<< has no >>> that closes it")
        if not code.bare[opening + 3 : closing].strip():
            raise code.error(
                opening,
                "a launch says how many blocks and how many threads: "
                "kernel<<<blocks, threads>>>(…)",
            )
        if not re.match(r"[\s\\]*\(", code.bare[closing + 3 :]):
            raise code.error(closing, "after >>> come the kernel's arguments in parentheses")
        yield _Launch(start, opening, closing, one_line(code.plain[start:opening]))
        opening = code.bare.find("<<<", closing)


def _kernel_start(code: CodeText, opening: int) -> int:
    """Where the expression before `<<<` starts: a name with all that belongs to it, or (…)."""
    end = len(code.bare[:opening].rstrip(" \t\n\\"))
    last = code.bare[end - 1 : end]
    if last == ")":
        return code.opening_bracket(end, "(", ")")
    if last == "]":
        end = code.opening_bracket(end, "[", "]")
    elif last == ">":
        end = _opening_angle(code, end)
    name = _KERNEL_NAME.search(code.bare, max(0, end - 500), end)
    if not name:
        raise code.error(opening, "before <<< comes the name of the kernel to launch")
    return name.start()


def _opening_angle(code: CodeText, end: int) -> int:
    """Where the template arguments that end just before `end` begin.

    C++ requires parentheses around a comparison there, but `1 << 3` and `<=` need none.
    """
    depth, position = 0, end - 1
    while position >= 0:
        character = code.bare[position]
        if character == ")":
            position = code.opening_bracket(position + 1, "(", ")")
        elif character in ";{}":
            break
        elif code.bare.startswith("<<", position - 1):
            position -= 1
        elif character == ">":
            depth += 1
        elif character == "<" and code.bare[position + 1] != "=":
            depth -= 1
            if depth == 0:
                return position
        position -= 1
    raise code.error(end - 1, "the template arguments before <<< cannot be read")


def _launch_end(code: CodeText, opening: int) -> int | None:
    """The position of the `>>>` that closes the launch, or None.

    A value such as `size<pair<A<int>>>()` contains `>>>` too. So each `<` after a name first
    counts as the start of template arguments. If that finds no end, it counts as a comparison.
    """
    for templates in (True, False):
        open_angles = 0

        def closes(position, templates=templates):
            nonlocal open_angles
            character = code.bare[position]
            if templates and character == "<" and re.match(r"\w", code.bare[position - 1]):
                open_angles += 1
            elif open_angles and character == ">":
                open_angles -= 1
            elif code.bare.startswith(">>>", position):
                return True
            return False

        closing = code.find_outside_brackets(opening + 3, closes)
        if closing is not None:
            return closing
    return None
