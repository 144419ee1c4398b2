"""The benchmarks' option --plot."""

import argparse
from pathlib import Path


def png_file(text: str) -> Path:
    """Where a picture goes. Raises ArgumentTypeError for what cannot be written."""
    path = Path(text)
    if path.suffix != ".png":
        raise argparse.ArgumentTypeError(
            f"--plot writes a PNG; the name {path} ends otherwise"
        )
    if not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{path}: there is no folder {path.parent}")
    return path


def draw(figure, path: Path) -> None:
    figure.savefig(path, dpi=100, facecolor="white")
