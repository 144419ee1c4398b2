"""What the ranks do together in a step. All of them call it, in the same order."""

import torch
import torch.distributed as dist
from torch import Tensor


class Ranks:
    """The processes that share a model, of which this one is `rank`."""

    def __init__(self):
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def sum(self, x: Tensor) -> None:
        """Replaces x by the sum over all ranks."""
        dist.all_reduce(x)

    def join(self, part: Tensor, out: Tensor) -> None:
        """Collects the columns of all ranks.

        part: (num_rows, num_columns), this rank's.
        out: (num_rows, num_columns of all ranks), where they go.
        """
        parts = torch.empty((self.size, *part.shape), dtype=part.dtype, device=part.device)
        dist.all_gather(list(parts), part.contiguous())
        out.view(len(part), self.size, -1).copy_(parts.transpose(0, 1))
