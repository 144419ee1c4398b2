"""Loads a model: the course's own small one, or a checkpoint by its name or folder."""

import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch

with warnings.catch_warnings():
    # tqdm warns where ipywidgets is missing; nothing here needs it.
    warnings.filterwarnings("ignore", "IProgress")
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils import logging

from paged_attention.engine.files import check_files
from paged_attention.engine.supported_models import UnsupportedModelError, check_architecture

SMALL_MODEL = Path(__file__).resolve().parent.parent / "tiny_qwen3"


def load_model(
    name: str | Path = SMALL_MODEL, dtype: torch.dtype = torch.float32, device: str = "cpu"
):
    """Loads a transformers model, ready to generate.

    name: a folder, or a name on the Hugging Face hub, which needs internet.
    Raises FileNotFoundError for a folder without its files, or a name that cannot be fetched.
    Raises UnsupportedModelError for a model that is not served (see `served.py`), for one that
        is not readable, and for weights that are not those of its config.
    """
    if name == SMALL_MODEL:
        logging.disable_progress_bar()  # it is read in an instant
    config = read_config(name)
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # what is missing is an error here, and has its sentence
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            name,
            dtype=dtype,
            config=config,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are named below, like all that differs
        )
    except Exception as error:  # by whatever its files say
        raise UnsupportedModelError(
            f"{str(name)!r} could not be loaded: {type(error).__name__}: {in_a_line(error)}"
        ) from error
    finally:
        logging.set_verbosity(verbosity)
    model, found = loaded
    tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
    shapes = {key: (tuple(saved), tuple(own)) for key, saved, own in found["mismatched_keys"]}
    check_weights(name, found["missing_keys"] - tied, found["unexpected_keys"], shapes)
    return model.to(device).eval()


def read_config(name: str | Path):
    """Reads and checks a model's config, and the files of its folder if it is one.

    Raises FileNotFoundError or UnsupportedModelError, as load_model() does.
    """
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
    except Exception as error:  # by whatever config.json says
        raise UnsupportedModelError(
            f"transformers knows no model for {str(name)!r}: {in_a_line(error)}"
        ) from error
    check_architecture(config, str(name))
    return config


def check_weights(
    name: str | Path,
    missing: Collection[str],
    unexpected: Collection[str],
    shapes: dict[str, tuple[tuple, tuple]],
) -> None:
    """Raises UnsupportedModelError if the saved weights are not those of the config.

    missing: the model's weights that are not saved.
    unexpected: saved ones that the model does not have.
    shapes: of each weight of another shape: as it is saved, and the model's.
    """
    problems = []
    if missing:
        problems.append(f"{_named(missing)} missing")
    if unexpected:
        problems.append(f"{_named(unexpected)} not the model's")
    for weight, (saved, own) in list(shapes.items())[:3]:
        problems.append(f"{weight!r} has the shape {saved} and not {own}")
    if not problems:
        return
    remedy = "save the model again with save_pretrained(), so that both belong together"
    if any(weight.startswith("_orig_mod.") for weight in unexpected):
        remedy = "it was saved after torch.compile, so save model._orig_mod instead"
    elif set(missing) == {"lm_head.weight"}:
        remedy += ", or set tie_word_embeddings to true there if its embedding is its head too"
    raise UnsupportedModelError(
        f"the weights of {str(name)!r} are not those of its config.json: "
        f"{'; '.join(problems)}; {remedy}"
    )


def _named(weights: Collection[str]) -> str:
    """The first of them by name, and how many others there are."""
    *first, last = [repr(each) for each in sorted(weights)[:3]]
    if len(weights) > 3:
        return f"{', '.join([*first, last])} and {len(weights) - 3} more are"
    return f"{', '.join(first)} and {last} are" if first else f"{last} is"


def in_a_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
