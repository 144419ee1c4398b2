"""A model of transformers whose weights are cut over the ranks, by PyTorch's own means.

No rank ever holds all weights: the model is built without memory, PyTorch cuts it, and each
rank then fills its own parts.
"""

import copy
from pathlib import Path

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)
from transformers import AutoModelForCausalLM, GenerationConfig

from paged_attention.engine.checkpoint import SMALL_MODEL, check_weights, read_config
from paged_attention.engine.fast.layers import local_of
from paged_attention.engine.parallel.cuts import kept_by_rank
from paged_attention.engine.parallel.ranks import Ranks
from paged_attention.engine.parallel.weights import SavedWeights, Weights
from paged_attention.engine.supported_models import UnsupportedModelError, head_size_of


def load_parallel_model(
    folder: Path = SMALL_MODEL, dtype: torch.dtype = torch.float32, device: str = "cpu"
):
    """Loads this rank's part of a checkpoint. Every rank calls it.

    Raises FileNotFoundError or UnsupportedModelError as load_model() does.
    Raises ValueError or UnsupportedModelError as parallel_model() does.
    """
    config, weights = read_config(folder), SavedWeights(folder)
    config.tie_word_embeddings &= "lm_head.weight" not in weights.files
    with torch.device("meta"):
        own = dict(AutoModelForCausalLM.from_config(config).named_parameters()).keys()
    others = {name for name in weights.files.keys() - own if "rotary_emb" not in name}
    check_weights(folder, own - weights.files.keys(), others, {})
    model = parallel_model(config, weights, dtype, device)
    if (folder / "generation_config.json").is_file():  # it may name further end tokens
        model.generation_config = GenerationConfig.from_pretrained(folder)
    return model


def parallel_model(config, weights: Weights, dtype: torch.dtype, device: str):
    """Builds this rank's part of a model, ready to generate. Every rank calls it.

    Its config has this rank's numbers of heads, so an engine makes a pool for these.

    config: of the whole model; it is not changed.
    Raises ValueError for a number of ranks that does not divide the heads or the MLP.
    Raises UnsupportedModelError for a model that is not cut here.
    """
    ranks = Ranks()
    check_cuts(config, ranks.size)
    config = copy.deepcopy(config)
    config.head_dim = head_size_of(config)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    if ranks.size > 1:
        mesh = init_device_mesh(torch.device(device).type, (ranks.size,))
        parallelize_module(model, mesh, plan_of(config))
    model.to_empty(device=device)
    model.tie_weights()
    # What is computed and not saved was lost with the memory.
    rotation = model.model.rotary_emb
    model.model.rotary_emb = type(rotation)(config=config).to(device)
    fill(model, weights, ranks)
    for name in ("num_attention_heads", "num_key_value_heads", "intermediate_size"):
        setattr(config, name, getattr(config, name) // ranks.size)
    model.ranks = ranks
    return model.eval()


def plan_of(config) -> dict[str, ParallelStyle]:
    """How PyTorch cuts each layer.

    Its names are those of the transposed weights: ColwiseParallel cuts the rows.
    """
    layer = "model.layers.*"
    by_rows = [f"{layer}.self_attn.{name}_proj" for name in "qkv"]
    by_rows += [f"{layer}.mlp.{name}_proj" for name in ("gate", "up")]
    plan: dict[str, ParallelStyle] = {name: ColwiseParallel() for name in by_rows}
    plan |= {f"{layer}.self_attn.o_proj": RowwiseParallel()}
    plan |= {f"{layer}.mlp.down_proj": RowwiseParallel()}
    if not config.tie_word_embeddings:  # else it is the embedding, which is whole
        plan["lm_head"] = ColwiseParallel(output_layouts=Replicate())
    return plan


def check_cuts(config, world_size: int) -> None:
    """Raises ValueError naming what world_size does not divide."""
    if config.model_type not in ("qwen3", "llama"):
        raise UnsupportedModelError(
            f"the model is of the type {config.model_type}; only qwen3 and llama are cut"
        )
    sizes = {
        "KV heads": config.num_key_value_heads,
        "query heads": config.num_attention_heads,
        "numbers of the MLP": config.intermediate_size,
    }
    if not config.tie_word_embeddings:
        sizes["tokens of the vocabulary"] = config.vocab_size
    for what, size in sizes.items():
        if size % world_size:
            raise ValueError(
                f"world_size must divide the model's {size} {what}, and {world_size} does not"
            )


@torch.no_grad()
def fill(model, weights: Weights, ranks: Ranks) -> None:
    """Puts each weight's part into its place."""
    for name, parameter in model.named_parameters():
        kept = tuple(slice(0, size) for size in parameter.shape)
        if isinstance(parameter, DTensor):
            layer, num_columns = name.split(".")[-2], parameter.shape[-1]
            kept = kept_by_rank(layer, (len(parameter), num_columns), ranks.rank, ranks.size)
            kept = kept[: parameter.dim()]  # a bias is cut as the rows are
        local_of(parameter).copy_(weights.part(name, parameter.shape, kept))
