"""Where and when a benchmark ran, as fields of a Run."""

import datetime
import shutil
import subprocess
from dataclasses import fields
from importlib.metadata import version
from typing import Any

import torch

from lessons_lib.processes import linux


def facts_for(run: type, device: str = "cuda") -> dict[str, Any]:
    """Values for the fields of a Run that say where and when it was measured."""
    on_gpu = device == "cuda"
    known = {
        "card": torch.cuda.get_device_name() if on_gpu else processor(),
        "device": device,
        "driver": driver() if on_gpu else "",
        "torch": torch.__version__,
        "transformers": version("transformers"),
        "threads": torch.get_num_threads(),
        "date": datetime.date.today().isoformat(),
    }
    names = {field.name for field in fields(run)}
    return {name: fact for name, fact in known.items() if name in names}


def processor() -> str:
    """The processor's name."""
    return linux.about_processor("model name").partition(":")[2].strip() or "a CPU"


def driver() -> str:
    """The version of the GPU's driver; "" if there is none."""
    if not shutil.which("nvidia-smi"):
        return ""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"]
    return subprocess.run(query, capture_output=True, text=True).stdout.strip()
