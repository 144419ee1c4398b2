"""Tells a failure of the machine from a mistake in the answer, and says what to do about it.

Without this, a learner would be blamed for a full disk, a broken compiler or a cache from
another processor. So our own answer is tried on the same machine. If it fails too, the machine
is at fault. A failure that only a wrong answer can cause needs no such trial.
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

PLENTY = 100 << 20  # bytes; a disk with more free space than this has room
# Words of the system when memory, disk space or permission is lacking.
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
# No answer causes these signals: the system killed the process, the disk is full, or the
# processor does not have an instruction.
_SIGNALS = [
    signal.strsignal(number) for number in (signal.SIGKILL, signal.SIGBUS, signal.SIGILL)
]
_said: dict[Hashable, str] = {}  # how our own answer failed, or "", by exercise and place


def may_be_at_fault(outcome: Outcome, message: str) -> bool:
    """Whether the machine may have caused this end of a build or a run.

    message: the message that the learner would read.
    """
    if isinstance(outcome.error, CannotBuild) or outcome.detail in _SIGNALS:
        return True
    has_begun = outcome.ending == "returned" or outcome.last_report is not None
    is_refused = isinstance(outcome.error, CompileError)
    return bool(_SIGNS.search(message)) or not (has_begun or is_refused)


def blame(error: CompileError) -> CompileError:
    """The error itself if the learner's text caused it, else a CannotBuild about this machine.

    If the text is at fault, the compiler names a line, or the loader a function. In a process
    that another process started, the machine is not examined: the check that started it tries
    our own answer.
    """
    if (error.line or error.reason) and not _SIGNS.search(f"{error}\n{error.output}"):
        return error
    words = "" if multiprocessing.parent_process() else "\n".join(_ailments())
    return CannotBuild(
        words or str(error), error.source, error.line, error.reason, error.output
    )


def fault(exercise_id: str, try_ours: Callable[[str], str], *where: Hashable) -> str:
    """Says what is wrong with this machine and what to do; "" if our own answer passes here.

    Our answer is tried once. It is tried again after a change of the place: the folders, their
    free space, the compiler or the locale.

    try_ours: called with our answer's text. Returns "" if it passes, or else the message.
    where: further values that belong to the place.
    """
    key = exercise_id, where, _place()
    if key not in _said:
        answers = rooms.load("our answers").our_answers()
        ours = answers.get(exercise_id)  # there is none while an exercise is being written
        _said[key] = try_ours(ours) if ours else ""
    return _words(_said[key]) if _said[key] else ""


def _place() -> Hashable:
    names = ("CXX", "PATH", "TMPDIR", "LC_ALL", "LC_CTYPE", "LANG", "LD_LIBRARY_PATH")
    return (*map(os.environ.get, names), *((name, _room(name)) for name in _folders()))


def _folders() -> dict[str, str]:
    """The folders that builds write to, each with the environment variable that sets it."""
    found = {}
    for variable, where in (
        ("LESSONS_BUILD_DIR", build_folder),
        ("TMPDIR", tempfile.gettempdir),
    ):
        try:
            found[str(where())] = variable
        except OSError:  # no such folder can be written
            found[os.environ.get(variable) or "The temporary folder"] = variable
    return found


def _room(folder: str) -> int:
    """Free megabytes, at most those of PLENTY, so that not every new file is a change."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return -1
    return min(PLENTY, disk.f_bavail * disk.f_frsize) >> 20


def _ailments() -> list[str]:
    """Each fault of this machine that is found, with its remedy."""
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
