"""Where the course keeps its files."""

import os
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "kernels"
NOTEBOOKS = ROOT / "notebooks"
SOLUTIONS = ROOT / "solutions"


def build_folder() -> Path:
    """The folder of compiled C++ and CUDA: `.build` in the course, or `LESSONS_BUILD_DIR`."""
    return _writable(os.environ.get("LESSONS_BUILD_DIR") or ROOT / ".build")


def progress_folder() -> Path:
    """The folder of what the learner has done: `.progress` in the course, or `LESSONS_PROGRESS_DIR`."""
    return _writable(os.environ.get("LESSONS_PROGRESS_DIR") or ROOT / ".progress")


def _writable(folder) -> Path:
    """`folder`, or one under the system's temporary folder where the course cannot be written to."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    fallback = Path(tempfile.gettempdir()) / f"paged-attention-course-{os.getuid()}" / folder.name
    fallback.mkdir(parents=True, exist_ok=True, mode=0o700)
    return fallback
