"""Whether a failure is the machine's, and what to do about it.

A full disk, a compiler that does not run or a cache of another processor would otherwise be
told as a mistake. So our own answer is tried in the same place. What an ordinary wrong answer
does needs no such trial.
"""

import errno
import multiprocessing
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Callable, Hashable
from pathlib import Path

from lessons_lib import rooms
from lessons_lib.cuda.compiler import compiler
from lessons_lib.cuda.compiler_errors import CannotBuild, CompileError
from lessons_lib.paths import IS_CHECKOUT, NAME, build_folder
from lessons_lib.processes.isolation import Outcome

PLENTY = 100 << 20  # bytes; a disk that has more has room
# What the system says when it lacks something.
_LACKS = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EIO,
    errno.ENOMEM,
    errno.EMFILE,
    errno.EAGAIN,
    errno.ENAMETOOLONG,
)
_SIGNS = re.compile(
    "|".join(map(re.escape, map(os.strerror, _LACKS)))
    + "|can't start new thread|out of memory|fatal error: |internal compiler error"
)
# No answer gives itself these: memory that the system takes back, a disk that is full, an
# instruction that the processor does not have.
_SIGNALS = [
    signal.strsignal(number) for number in (signal.SIGKILL, signal.SIGBUS, signal.SIGILL)
]
_said: dict[Hashable, str] = {}  # of our own answer, by exercise and place


def may_be_at_fault(outcome: Outcome, message: str) -> bool:
    """Whether a build or a run that has ended like this needs another look.

    message: what the learner would read.
    """
    if isinstance(outcome.error, CannotBuild) or outcome.detail in _SIGNALS:
        return True
    has_begun = outcome.ending == "returned" or outcome.last_report is not None
    is_refused = isinstance(outcome.error, CompileError)
    return bool(_SIGNS.search(message)) or not (has_begun or is_refused)


def blame(error: CompileError) -> CompileError:
    """The error of a build, or one that says what is wrong with this machine.

    The compiler names a line of the text if that is at fault, and the loader a function. In a
    process that another one started, as a check does, nothing is looked for: the check tries
    our own answer.
    """
    if (error.line or error.reason) and not _SIGNS.search(f"{error}\n{error.output}"):
        return error
    words = "" if multiprocessing.parent_process() else "\n".join(_ailments())
    return CannotBuild(
        words or str(error), error.source, error.line, error.reason, error.output
    )


def fault(exercise_id: str, try_ours: Callable[[str], str], *where: Hashable) -> str:
    """What is wrong with this machine, and what to do; "" if our own answer passes here.

    It is tried once, and again when the place has changed: a folder, its room, the compiler
    or the locale.

    try_ours: called with our answer's text. Returns "" if it passes, or else the message.
    where: what else makes a place another one.
    """
    key = exercise_id, where, _place()
    if key not in _said:
        answers = rooms.load("our answers").our_answers()
        ours = answers.get(exercise_id)  # none yet where an exercise is being written
        _said[key] = try_ours(ours) if ours else ""
    return _words(_said[key]) if _said[key] else ""


def _place() -> Hashable:
    names = ("CXX", "PATH", "TMPDIR", "LC_ALL", "LC_CTYPE", "LANG", "LD_LIBRARY_PATH")
    return (*map(os.environ.get, names), *((name, _room(name)) for name in _folders()))


def _folders() -> dict[str, str]:
    """The folders that are written to, each with the variable that sets it."""
    found = {}
    for variable, where in (
        ("LESSONS_BUILD_DIR", build_folder),
        ("TMPDIR", tempfile.gettempdir),
    ):
        try:
            found[str(where())] = variable
        except OSError:  # there is none that can be written
            found[os.environ.get(variable) or "The temporary folder"] = variable
    return found


def _room(folder: str) -> int:
    """Megabytes that are free, or PLENTY, so that not every file is a change."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return -1
    return min(PLENTY, disk.f_bavail * disk.f_frsize) >> 20


def _ailments() -> list[str]:
    """What is wrong with this machine, each with its remedy."""
    return [*_of_folders(), *_of_the_compiler()]


def _words(said: str) -> str:
    doctor = "make doctor" if IS_CHECKOUT else f"{NAME} doctor"
    return "\n".join(
        [
            "This machine cannot try our own answer either, so this is not your answer's "
            "fault, and nothing was recorded.",
            *(
                _ailments()
                or [f"This may help: {doctor}. What was tried ended like this:", said]
            ),
        ]
    )


def _of_folders() -> list[str]:
    return [
        f"{folder} cannot be written: {reason}. Make room there, or set {variable} to a "
        "folder elsewhere and start again."
        for folder, variable in _folders().items()
        if (reason := _why_not_written(Path(folder)))
    ]


def _why_not_written(folder: Path) -> str:
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(1 << 20))
            file.flush()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _of_the_compiler() -> list[str]:
    words = compiler()
    named = " (CXX names it)" if os.environ.get("CXX", "").strip() else ""
    try:
        tried = subprocess.run(
            [*words, "-fsyntax-only", "-x", "c++", "-"],
            input=b"#include <vector>\n",
            capture_output=True,
        )
        works = tried.returncode == 0
    except OSError:
        works = False
    if works:
        return []
    return [
        f"The C++ compiler `{' '.join(words)}`{named} does not compile an empty program: "
        f"{'unset CXX, or ' if named else ''}install one with sudo apt-get install g++ "
        "(macOS: xcode-select --install)."
    ]
