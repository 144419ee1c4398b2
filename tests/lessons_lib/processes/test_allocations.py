"""How many bytes a function makes PyTorch allocate."""

import pytest
import torch

from lessons_lib.allocations import new_bytes

X = torch.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize(
    "function, wanted",
    [
        (lambda: None, 0),
        (lambda: torch.zeros(10), 40),
        (lambda: torch.zeros(3, 2, dtype=torch.int16), 12),
        (lambda: X + 1, 24),
        (lambda: (X + 1) * 2, 48),  # the first is freed before the end
        (lambda: (X + 1, torch.ones(3, dtype=torch.float64)), 48),
        (lambda: X.max(dim=0), 3 * 4 + 3 * 8),
        (lambda: X[1:].T.reshape(3), 0),
        (lambda: X.split(1), 0),
        (lambda: X.clone().add_(1), 24),
        (lambda: torch.add(X, 1, out=torch.empty(2, 3)), 24),
        (lambda: X.sum().item(), 4),
        (lambda: torch.empty(2, 0), 0),
    ],
)
def test_each_new_tensor_counts_and_a_view_does_not(function, wanted):
    assert new_bytes(function) == wanted


def test_the_tensors_are_made_as_usual():
    made = []
    new_bytes(lambda: made.append(torch.full((2,), 3, dtype=torch.int64)))
    assert made[0].dtype == torch.int64 and made[0].tolist() == [3, 3]
