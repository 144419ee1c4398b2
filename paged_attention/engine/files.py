"""The files of a checkpoint's folder: which are needed, and what is wrong with them."""

import json
from pathlib import Path

from safetensors import SafetensorError, safe_open

from paged_attention.engine.supported_models import UnsupportedModelError

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
DTYPES = ("F64", "F32", "F16", "BF16")
POINTER = b"version https://git-lfs.github.com/"


def check_files(folder: Path) -> None:
    """Raises FileNotFoundError or UnsupportedModelError for what a checkpoint must have."""
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {str(folder)!r}")
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(
            f"{str(folder)!r} holds no config.json; it must be a folder that transformers' "
            "save_pretrained() has written, or a copy of one from the hub"
        )
    check_pointers(folder)
    read_json(folder / "config.json")
    weight_files(folder)


def check_pointers(folder: Path) -> None:
    """Raises UnsupportedModelError if a file is only Git LFS's pointer to it."""
    for file in sorted(folder.iterdir()):
        is_small = (
            file.is_file() and file.stat().st_size < 1024
        )  # a pointer has some 130 bytes
        if is_small and file.read_bytes().startswith(POINTER):
            raise UnsupportedModelError(
                f"{file.name} in {str(folder)!r} is only Git LFS's pointer to the file; "
                "fetch the files themselves there, with `git lfs pull`"
            )


def read_json(file: Path) -> dict:
    """Raises UnsupportedModelError if it holds anything else than a JSON object."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UnsupportedModelError(
            f"{file.name} in {str(file.parent)!r} is not JSON: {error}; copy it again"
        ) from None
    if not isinstance(found, dict):
        raise UnsupportedModelError(
            f"{file.name} in {str(file.parent)!r} must be a JSON object; copy it again"
        )
    return found


def weight_files(folder: Path) -> dict[str, Path]:
    """Finds the weights as transformers does, and reads what the files say of them.

    Returns each weight's file.
    Raises FileNotFoundError or UnsupportedModelError naming what is missing or not readable.
    """
    if (folder / SINGLE).is_file():
        names = [SINGLE]
    elif (folder / INDEX).is_file():
        by_weight = read_json(folder / INDEX).get("weight_map")
        if not isinstance(by_weight, dict) or not by_weight:
            raise UnsupportedModelError(
                f"{INDEX} in {str(folder)!r} has no weight_map; copy it again"
            )
        names = sorted({str(name) for name in by_weight.values()})
    else:
        raise FileNotFoundError(
            f"{str(folder)!r} holds no weights ({SINGLE}, or {INDEX} with its files); "
            "save the model with save_pretrained()"
        )
    found: dict[str, Path] = {}
    for name in names:
        if not (folder / name).is_file():
            raise FileNotFoundError(
                f"{str(folder)!r} lacks {name!r}, which {INDEX} names; copy it there too"
            )
        found |= dict.fromkeys(_read_header(folder / name), folder / name)
    return found


def _read_header(file: Path) -> list[str]:
    """The names of its weights."""
    try:
        with safe_open(file, "pt") as opened:
            names = list(opened.keys())
            dtypes = {opened.get_slice(name).get_dtype(): name for name in names}
    except (SafetensorError, OSError) as error:
        raise UnsupportedModelError(
            f"the weights in {str(file)!r} could not be read: {error}; the file may be cut "
            "short, so copy it again"
        ) from error
    for dtype in dtypes.keys() - {*DTYPES}:
        raise UnsupportedModelError(
            f"the weight {dtypes[dtype]!r} in {str(file)!r} has numbers of the type {dtype}; "
            f"the engine runs {', '.join(DTYPES)}, so save the model in one of these"
        )
    return names
