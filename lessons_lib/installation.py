"""Says whether the course is whole: every file there, and in one version only."""

import functools
import shlex
import subprocess
from importlib import metadata
from pathlib import Path

from lessons_lib import rooms
from lessons_lib.paths import IS_CHECKOUT, NAME, ROOT

WHEEL = "paged_attention_course-….whl"  # no index has the course: it comes as this file
INSTALL = "make lab" if IS_CHECKOUT else f"pip install --upgrade {WHEEL}"
REINSTALL = f"pip install --force-reinstall --no-deps {WHEEL}"


class CourseDamaged(Exception):
    """The course itself is not whole, so that no answer can be judged."""


def require() -> None:
    """Raises CourseDamaged, with what is missing and what to do, if something is."""
    if found := _faults_seen_first():
        raise CourseDamaged(
            f"The course is not whole, and until it is, it judges no answer: {found}. "
            f"To mend it: {remedy()}"
        )


def faults() -> str:
    """What is wrong with this copy of the course, in words, or ""."""
    installed = [*metadata.distributions(name=NAME)]
    places = {str(Path(str(one.locate_file("")))): one.version for one in installed}
    if not IS_CHECKOUT and len(places) > 1:
        listed = ", ".join(f"{version} in {place}" for place, version in places.items())
        return f"there is more than one version: {listed}"
    bad = _deleted() if IS_CHECKOUT else _damaged(installed)
    if not bad:
        return ""
    more = f" and {len(bad) - 3} more" if len(bad) > 3 else ""
    return f"missing or cut off: {', '.join(bad[:3])}{more}"


def remedy() -> str:
    if IS_CHECKOUT:
        return f"git -C {shlex.quote(str(ROOT))} restore {' '.join(rooms.JUDGING)}"
    return (
        f"{REINSTALL}, the file that you got the course as "
        f"(if there are two versions, first: pip uninstall {NAME})"
    )


_faults_seen_first = functools.cache(faults)  # once for each process: it takes milliseconds


def _damaged(installed: list[metadata.Distribution]) -> list[str]:
    """The files of the wheel that are not here as it listed them."""
    if not installed or installed[0].files is None:
        return [f"the list of files that pip keeps about {NAME}"]
    bad = []
    for file in installed[0].files:
        if file.parts[0] != ROOT.name or file.suffix == ".pyc":
            continue
        path = ROOT.joinpath(*file.parts[1:])
        if not path.is_file() or path.stat().st_size != file.size:
            bad.append(str(path.relative_to(ROOT)))
    return bad


def _deleted() -> list[str]:
    """The files that git knows and that are not here; none where git cannot tell."""
    command = ["git", "-C", str(ROOT), "ls-files", "--deleted", "--", *rooms.JUDGING]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return listed.stdout.split() if listed.returncode == 0 else []
