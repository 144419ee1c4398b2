"""Where the course keeps its files."""

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

NAME = "paged-attention-course"
MOST_TAKEN = 100  # the most folders of other users that are passed over

ROOT = Path(__file__).resolve().parent.parent  # a checkout, or a folder of the same layout
KERNELS = ROOT / "kernels"
NOTEBOOKS = ROOT / "notebooks"
SOLUTIONS = ROOT / "solutions"
IS_CHECKOUT = (ROOT / "pyproject.toml").is_file()  # otherwise it was installed from a wheel
# Where a learner works if they name no other folder.
MY_NOTEBOOKS = ROOT / "my-notebooks" if IS_CHECKOUT else Path("paged-attention-course")


def build_folder() -> Path:
    """The folder for compiled C++ and CUDA: `LESSONS_BUILD_DIR`, or `.build` of a checkout.

    For a course that was installed, the folder is in the user's cache (XDG_CACHE_HOME).
    """
    return _writable("LESSONS_BUILD_DIR", ".build", "XDG_CACHE_HOME", ".cache")


def progress_folder() -> Path:
    """The folder for progress: `LESSONS_PROGRESS_DIR`, or `.progress` of a checkout.

    For a course that was installed, the folder is among the user's data (XDG_DATA_HOME).
    """
    return _writable("LESSONS_PROGRESS_DIR", ".progress", "XDG_DATA_HOME", ".local/share")


def mistakes_folder() -> Path | None:
    """The folder of a teacher's own mistakes: `LESSONS_MISTAKES`, if that is set."""
    return Path(name) if (name := os.environ.get("LESSONS_MISTAKES")) else None


def _writable(chosen: str, own: str, of_the_system: str, usual: str) -> Path:
    """The first of these folders that can be made and written. If none can, a private folder
    in the system's temporary folder.

    chosen: the environment variable with the user's choice.
    own: the folder's name in a checkout.
    of_the_system: the environment variable that names the place for all programs.
    usual: that place below the home folder if the variable is not set.
    """
    folder = None
    try:
        if name := os.environ.get(chosen):
            folder = Path(name)
        elif IS_CHECKOUT:
            folder = ROOT / own
        elif name := os.environ.get(of_the_system):
            folder = Path(name, NAME)
        else:
            # raises if HOME is not set and the user has no account
            folder = Path.home() / usual / NAME
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except (OSError, RuntimeError):
        pass
    fallback = private_folder() / (folder.name if folder else own)
    fallback.mkdir(exist_ok=True, mode=0o700)
    return fallback


def private_folder() -> Path:
    """A folder in the system's temporary folder that no other user can write to.

    Files in there are executed, so another user's folder of the same name is not used.
    """
    first = Path(tempfile.gettempdir()) / f"{NAME}-{os.getuid()}"
    for number in range(MOST_TAKEN):
        folder = first.with_name(f"{first.name}-{number}") if number else first
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        about = folder.lstat()
        is_private = stat.S_ISDIR(about.st_mode) and not about.st_mode & 0o022
        if is_private and about.st_uid == os.getuid():
            return folder
    raise PermissionError(
        f"{first} belongs to another user, and so do all names like it. Set TMPDIR to a "
        "folder of your own."
    )
