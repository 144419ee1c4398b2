"""Where the course keeps its files."""

import os
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "kernels"
NOTEBOOKS = ROOT / "notebooks"
SOLUTIONS = ROOT / "solutions"


def build_folder() -> Path:
    """The folder for compiled C++ and CUDA: `.build`, or `LESSONS_BUILD_DIR`."""
    return _writable(os.environ.get("LESSONS_BUILD_DIR") or ROOT / ".build")


def progress_folder() -> Path:
    """The folder for the learner's progress: `.progress`, or `LESSONS_PROGRESS_DIR`."""
    return _writable(os.environ.get("LESSONS_PROGRESS_DIR") or ROOT / ".progress")


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
