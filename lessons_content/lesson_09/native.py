"""Parts of the prefill ladder as functions on tensors."""

import torch

from lessons_content.exercises import kernels
from lessons_lib.cuda.library import CudaLibrary
from paged_attention.ladder.decode import Shape

AROUND = 1e4  # what lies around a lane's own numbers


def build(answer: str, before: str, wrapper: str, head_size: int) -> CudaLibrary:
    return kernels.build(answer, before, wrapper, Shape(torch.float16, head_size, 4, 16))
