"""Const methods of the class `BlockManager` that lock a mutex, found in its text.

No compiler builds them where the mutex is not mutable.
"""

import re

GUARDS = "(?:lock_guard|unique_lock|scoped_lock|shared_lock)"
# comments, and texts, which may hold brackets
NO_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'""", re.DOTALL
)
MUTEX = re.compile(
    r"(?:(?:public|private|protected)\s*:\s*)*"
    r"std\s*::\s*(?:recursive_|shared_)?(?:timed_)?mutex\s+(\w+)$"
)
CONST_METHOD = re.compile(r"\)\s*const(?:\s|noexcept|override|final)*$")


def recognise(source: str) -> str | None:
    """The slug of a const method that locks a mutex which is not mutable, or None."""
    text = NO_CODE.sub(" ", source)
    if re.search(r"^\s*#\s*(?:if|define)", text, re.MULTILINE):
        return None  # the compiler may read another text
    members, methods = [], []
    for head, body in _parts(text):
        if re.search(r"\b(?:class|struct)\s+BlockManager\b[^()]*$", head):
            members += _parts(body)
        elif re.search(r"\bBlockManager\s*::\s*\w+\s*\(", head):
            methods.append((head, body))
    mutexes = [found[1] for head, _ in members if (found := MUTEX.match(head))]
    for head, body in (*members, *methods):
        # what a template does is compiled where it is used
        is_const = CONST_METHOD.search(head) and not re.search(r"\b(?:template|auto)\b", head)
        if is_const and any(_locks(body, name) for name in mutexes if name not in head):
            return "mutable-forgotten"
    return None


def _parts(text: str) -> list[tuple[str, str]]:
    """(head, what is in its braces) of each declaration."""
    parts, begin, depth, opened = [], 0, 0, 0
    for found in re.finditer(r"[;{}]", text):
        depth += {"{": 1, "}": -1, ";": 0}[found[0]]
        if found[0] == "{" and depth == 1:
            opened = found.start()
        elif depth == 0:
            end = opened if found[0] == "}" else found.start()
            parts.append((text[begin:end].strip(), text[end + 1 : found.start()]))
            begin = found.end()
    return parts


def _locks(body: str, name: str) -> bool:
    """Whether a method locks the mutex of this name, and does nothing else with the name."""
    guard = rf"\bstd\s*::\s*{GUARDS}\b\s*(?:<[^;(){{}}]*>)?"
    mutex = rf"(?<![\w.>:])(?:this\s*->\s*)?{name}\b"
    locked = (
        rf"(?:=|\breturn)\s*{guard}\s*[({{]\s*{mutex}"
        rf"|{guard}\s*(?:\w+\s*[({{]|{{)\s*{mutex}"
        rf"|{mutex}\s*\.\s*(?:try_)?(?:un)?lock(?:_shared)?\s*\("
    )
    rest, times = re.subn(locked, "", body)
    return times > 0 and not re.search(rf"\b{name}\b", rest)
