"""Which models the engine serves, and what is wrong with the others."""

# by model_type
ARCHITECTURES = {
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "llama": "LlamaForCausalLM",
}
# Rotary embeddings that rotate a token by its own position. Others look at the longest
# sequence of the step, and then keys already in the pool would be rotated in another way.
ROTATIONS = ("default", "linear", "llama3", "yarn")


class UnsupportedModelError(ValueError):
    """A model that the engine cannot run."""


def head_size_of(config) -> int:
    """Returns the head size of a model's config.

    If the config names none, the hidden size is divided by the number of query heads.
    """
    return (
        getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    )


def check_config(config, name: str = "the model") -> None:
    """Raises UnsupportedModelError if a model would run with the wrong attention.

    That is an attention other than the one that it was trained for.

    config: the model's transformers config. One without a model_type is not from transformers,
        and is taken as it is.
    """
    model_type = getattr(config, "model_type", None)
    if model_type not in (None, *ARCHITECTURES):
        raise UnsupportedModelError(
            f"{name} is of the type {model_type}; the engine runs {', '.join(ARCHITECTURES)}"
        )
    layer_types = getattr(config, "layer_types", None)
    if layer_types is None and getattr(config, "sliding_window", None) is not None:
        layer_types = ["sliding_attention"]
    if layer_types is not None and set(layer_types) != {"full_attention"}:
        raise UnsupportedModelError(
            f"{name} has layers with a sliding window, "
            "and the course's attention sees all keys"
        )
    rotation = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if rotation not in ROTATIONS:
        raise UnsupportedModelError(
            f"{name} has rotary embeddings of the type {rotation}; the engine runs "
            f"{', '.join(ROTATIONS)}, which turn a token by nothing but its own position"
        )


def check_architecture(config, name: str) -> None:
    """Raises UnsupportedModelError if a checkpoint with this config cannot be served."""
    architectures = config.architectures or ["an unnamed one"]
    if architectures[0] not in ARCHITECTURES.values():
        raise UnsupportedModelError(
            f"{name!r} has the architecture {architectures[0]}; "
            f"the engine runs {', '.join(ARCHITECTURES.values())}"
        )
    if getattr(config, "quantization_config", None) is not None:
        raise UnsupportedModelError(
            f"{name!r} has quantized weights; the engine runs float32, float16 and bfloat16"
        )
    check_config(config, repr(name))
