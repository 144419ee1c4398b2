"""Says whether the course is whole: every file there, and in one version only."""

import functools
import shlex
import subprocess
from importlib import metadata
from pathlib import Path

from lessons_lib import rooms
from lessons_lib.paths import IS_CHECKOUT, NAME, ROOT

# the package index does not have the course: a learner gets this file
WHEEL = "paged_attention_course-….whl"
INSTALL = "make lab" if IS_CHECKOUT else f"pip install --upgrade {WHEEL}"
REINSTALL = f"pip install --force-reinstall --no-deps {WHEEL}"


class CourseDamaged(Exception):
    """The course itself is not whole, so that no answer can be judged."""


def require() -> None:
    """Raises CourseDamaged if files are missing. Its text lists them and gives the remedy."""
    if found := _faults_seen_first():
        raise CourseDamaged(
            f"The course is not whole, and until it is, it judges no answer: {found}. "
            f"To mend it: {remedy()}"
        )


def faults() -> str:
    """Says what is wrong with this copy of the course; "" if nothing is."""
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


# once for each process, because it takes milliseconds
_faults_seen_first = functools.cache(faults)


def _damaged(installed: list[metadata.Distribution]) -> list[str]:
    """The files of the wheel that are missing here, or have another size."""
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
    """The files that git tracks and that are missing here; empty if git cannot tell."""
    command = ["git", "-C", str(ROOT), "ls-files", "--deleted", "--", *rooms.JUDGING]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return listed.stdout.split() if listed.returncode == 0 else []
