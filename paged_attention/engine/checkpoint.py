"""Loads a model: the course's own small one, or a checkpoint by its name or folder."""

import json
import warnings
from pathlib import Path

import torch
from safetensors import SafetensorError

with warnings.catch_warnings():
    # tqdm warns where ipywidgets is missing; nothing here needs it.
    warnings.filterwarnings("ignore", "IProgress")
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils import logging

from paged_attention.engine.served import UnsupportedModelError, check_architecture

SMALL_MODEL = Path(__file__).resolve().parent.parent / "tiny_qwen3"


def load_model(
    name: str | Path = SMALL_MODEL, dtype: torch.dtype = torch.float32, device: str = "cpu"
):
    """Loads a transformers model, ready to generate.

    name: a folder, or a name on the Hugging Face hub, which needs internet.
    Raises FileNotFoundError for a folder without its files, or a name that cannot be fetched.
    Raises UnsupportedModelError for a model that is not served (see `served.py`) or not
        readable.
    """
    if name == SMALL_MODEL:
        logging.disable_progress_bar()  # it is read in an instant
    if Path(name).is_dir():
        check_files(Path(name))
    elif isinstance(name, Path) or str(name).startswith((".", "/", "~")):
        raise FileNotFoundError(f"there is no folder {str(name)!r}")
    try:
        config = AutoConfig.from_pretrained(name)
    except OSError as error:
        raise FileNotFoundError(
            f"{str(name)!r} is neither a folder here nor a checkpoint that could be fetched "
            f"from the hub: {str(error).splitlines()[0]}"
        ) from error
    except ValueError as error:
        raise UnsupportedModelError(
            f"transformers knows no model for {str(name)!r}: {str(error).splitlines()[0]}"
        ) from error
    check_architecture(config, str(name))
    try:
        model = AutoModelForCausalLM.from_pretrained(name, dtype=dtype, config=config)
    except SafetensorError as error:
        raise UnsupportedModelError(
            f"the weights of {str(name)!r} could not be read: {error}"
        ) from error
    return model.to(device).eval()  # type: ignore[arg-type]  # decorated: mypy misses self


def check_files(folder: Path) -> None:
    """Raises FileNotFoundError or UnsupportedModelError for what a checkpoint must have."""
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {str(folder)!r}")
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{str(folder)!r} holds no config.json")
    try:
        json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except ValueError as error:
        raise UnsupportedModelError(
            f"config.json in {str(folder)!r} is not JSON: {error}"
        ) from None
    if not any(folder.glob("*.safetensors")):
        raise FileNotFoundError(f"{str(folder)!r} holds no weights (*.safetensors)")
