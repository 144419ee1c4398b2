"""How a model's weights are cut, and what the ranks must tell each other because of it."""

from typing import NamedTuple


def kept_by_rank(
    layer: str, shape: tuple[int, int], rank: int, world_size: int
) -> tuple[slice, slice]:
    """Which rows and columns of a weight a rank keeps.

    Layers that read what all ranks have are cut by rows: each rank computes some of the
    results, in the order of the ranks. Layers that read such results are cut by columns, in
    the same way. world_size divides what is cut.

    layer: the weight's name, "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj",
        "down_proj", "lm_head" or another that is kept whole.
    shape: (out_features, in_features) of the whole weight.
    Returns slices with start and stop for rows and for columns.
    """
    # BEGIN SOLUTION 11.1
    num_rows, num_columns = shape
    if layer in ("o_proj", "down_proj"):
        size = num_columns // world_size
        return slice(0, num_rows), slice(rank * size, (rank + 1) * size)
    if layer in ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "lm_head"):
        size = num_rows // world_size
        return slice(rank * size, (rank + 1) * size), slice(0, num_columns)
    return slice(0, num_rows), slice(0, num_columns)
    # END SOLUTION


class Collective(NamedTuple):
    """What the ranks do together after a layer.

    numbers: of each token, in the result that all ranks have then.
    """

    after: str
    kind: str
    numbers: int


def collectives(config, world_size: int) -> list[Collective]:
    """Lists what the ranks do together in a step, in its order.

    Times the bytes of a number and the step's tokens, `numbers` gives bytes. The last one is
    only for tokens with logits: one of each request.

    config: of a model of transformers.
    """
    if world_size == 1:
        return []
    found = []
    for layer in range(config.num_hidden_layers):
        for name in ("self_attn.o_proj", "mlp.down_proj"):
            after = f"model.layers.{layer}.{name}"
            found.append(Collective(after, "all_reduce", config.hidden_size))
    if not config.tie_word_embeddings:  # else the head is the embedding, which is whole
        found.append(Collective("lm_head", "all_gather", config.vocab_size))
    return found
