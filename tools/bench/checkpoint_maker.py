"""Makes the checkpoint that `python -m tools.bench checkpoint` loads.

It has the shapes of Qwen3-8B and random weights. A separate process makes it, so that this
memory is not counted as memory for loading.
"""

import subprocess
import sys
from pathlib import Path

import torch

from lessons_content.lesson_08.bench.servers import random_model
from tools.bench.two_gpus_ranks import QWEN3_8B

DTYPE = torch.bfloat16
TINY = dict(
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    intermediate_size=96,
    vocab_size=1000,
)


def make_apart(folder: Path, is_tiny: bool) -> None:
    """Calls `make` in a separate process. Raises OSError if it failed; it has printed why."""
    words = [sys.executable, "-m", "tools.bench.checkpoint_maker", str(folder)]
    done = subprocess.run(words + ["--tiny"] * is_tiny)
    if done.returncode:
        raise OSError(f"no checkpoint could be made in {folder} (exit code {done.returncode})")


def make(folder: Path, is_tiny: bool) -> None:
    """Saves the model in files, as transformers divides it."""
    sizes = QWEN3_8B | (TINY if is_tiny else {})
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = random_model(sizes.pop("num_hidden_layers"), device, DTYPE, **sizes)
    model.config.about = "a tiny model" if is_tiny else "shapes of Qwen3-8B, random weights"
    model.save_pretrained(folder, max_shard_size="100KB" if is_tiny else "4GB")


if __name__ == "__main__":
    make(Path(sys.argv[1]), "--tiny" in sys.argv[2:])
