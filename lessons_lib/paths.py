"""Where the course keeps its files."""

import os
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent  # a checkout, or a folder of the same layout
KERNELS = ROOT / "kernels"
NOTEBOOKS = ROOT / "notebooks"
SOLUTIONS = ROOT / "solutions"
IS_CHECKOUT = (ROOT / "pyproject.toml").is_file()  # otherwise it was installed from a wheel
# Where a learner works if they name no other folder.
MY_NOTEBOOKS = ROOT / "my-notebooks" if IS_CHECKOUT else Path("paged-attention-course")


def build_folder() -> Path:
    """The folder for compiled C++ and CUDA: `LESSONS_BUILD_DIR`, or `.build` of a checkout.

    A course that was installed has one in the user's cache (XDG_CACHE_HOME).
    """
    return _writable(
        os.environ.get("LESSONS_BUILD_DIR")
        or (ROOT / ".build" if IS_CHECKOUT else _of_the_user("XDG_CACHE_HOME", ".cache"))
    )


def progress_folder() -> Path:
    """The folder for progress: `LESSONS_PROGRESS_DIR`, or `.progress` of a checkout.

    A course that was installed has one among the user's data (XDG_DATA_HOME).
    """
    of_the_user = _of_the_user("XDG_DATA_HOME", ".local/share")
    return _writable(
        os.environ.get("LESSONS_PROGRESS_DIR")
        or (ROOT / ".progress" if IS_CHECKOUT else of_the_user)
    )


def _of_the_user(variable: str, usual: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / usual) / "paged-attention-course"


def mistakes_folder() -> Path | None:
    """The folder of a teacher's own mistakes: `LESSONS_MISTAKES`, if that is set."""
    return Path(name) if (name := os.environ.get("LESSONS_MISTAKES")) else None


def _writable(folder) -> Path:
    """`folder`, or one in the system's temporary folder if the course is not writable."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    fallback = (
        Path(tempfile.gettempdir()) / f"paged-attention-course-{os.getuid()}" / folder.name
    )
    fallback.mkdir(parents=True, exist_ok=True, mode=0o700)
    return fallback
