"""A context in which a tensor comes out wrong if it is made without a device or a dtype."""

import contextlib

import torch


@contextlib.contextmanager
def unsaid():
    """Such a tensor cannot be read, and has 64 bits."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            yield
    finally:
        torch.set_default_dtype(before)
