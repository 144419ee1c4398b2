"""Which parts of the engine for a CPU are in."""

from dataclasses import dataclass


@dataclass(frozen=True)
class CpuParts:
    """What makes a CPU fast. Each part can be left out, so that it can be measured.

    layers: one product for q, k and v, and one for gate and up. What is between two products
        is a single function.
    attention: keys and values are read where they are in the pool, and nothing is copied.
    few_rows: our product for up to four tokens. It needs `layers`, where the products are.
    narrow_weights: weights of 8 bits, and a scale for each row. They have half the bytes of
        16, and some answers differ. It needs `few_rows`, whose products they are.
    Raises ValueError for a part without the one that it needs.
    """

    layers: bool = True
    attention: bool = True
    few_rows: bool = True
    narrow_weights: bool = False

    def __post_init__(self):
        if self.few_rows and not self.layers:
            raise ValueError("few_rows needs layers: transformers' layers have their own")
        if self.narrow_weights and not self.few_rows:
            raise ValueError("narrow_weights needs few_rows: PyTorch has no such product")
