"""Tensors of 32-bit integers, as tables and lengths are."""

import torch


def integers(*numbers):
    return torch.tensor(numbers, dtype=torch.int32)
