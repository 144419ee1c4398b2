"""A place where a tensor that is made without a device or a dtype is made wrong."""

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
