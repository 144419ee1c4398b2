"""One rank of a group in this process: the others of it do nothing."""

import contextlib

import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from paged_attention.engine.parallel.model import load_parallel_model


@contextlib.contextmanager
def group(rank, size):
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)
    try:
        yield
    finally:
        dist.destroy_process_group()


def load_by_one_rank(folder):
    with group(0, 1):
        return load_parallel_model(folder)
