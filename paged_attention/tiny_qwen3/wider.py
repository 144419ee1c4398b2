"""The small model with larger heads, for kernels that take no heads of 32.

The larger heads hold the same numbers, with zeros between them.
"""

import copy
import math

import torch
from torch import Tensor


def with_head_size(model, head_size: int):
    """Makes a copy of a Qwen3 with larger heads, which gives the same answers.

    There is one difference: the 1e-6 that is added to a norm's mean square counts for more.

    head_size: a multiple of the model's own.
    Raises ValueError for any other head size.
    """
    from transformers import AutoModelForCausalLM

    old_size = model.config.head_dim
    times, rest = divmod(head_size, old_size)
    if times < 1 or rest:
        raise ValueError(
            f"head_size must be a multiple of the model's {old_size}, not {head_size}"
        )
    config = copy.deepcopy(model.config)
    config.head_dim = head_size
    wide = AutoModelForCausalLM.from_config(config, dtype=model.dtype).to(model.device).eval()
    # Dimension i rotates together with i + half, by the angle base ** (-i / half) for each
    # position. So the numbers go where the wider head has the same angles.
    index = torch.arange(old_size // 2, device=model.device) * times
    places = torch.cat([index, index + head_size // 2])
    wide.load_state_dict(
        {
            name: _widened(name, weight, wide.state_dict()[name], places, times)
            for name, weight in model.state_dict().items()
        }
    )
    return wide


def _widened(name: str, weight: Tensor, like: Tensor, places: Tensor, times: int) -> Tensor:
    old_size = len(places)
    head_size = old_size * times
    if name.endswith(("q_norm.weight", "k_norm.weight")):
        wide = torch.zeros_like(like)
        wide[places] = weight
        # The norm's mean is over `times` as many numbers, so its output is larger by
        # sqrt(times). Scores are divided by the root of the head size, which makes up for the
        # queries. The keys are divided here.
        return wide if "q_norm" in name else wide / math.sqrt(times)
    if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
        wide = torch.zeros_like(like).unflatten(0, (-1, head_size))
        wide[:, places] = weight.unflatten(0, (-1, old_size))
        return wide.flatten(0, 1)
    if name.endswith("o_proj.weight"):
        wide = torch.zeros_like(like).unflatten(1, (-1, head_size))
        wide[:, :, places] = weight.unflatten(1, (-1, old_size))
        return wide.flatten(1, 2)
    return weight
