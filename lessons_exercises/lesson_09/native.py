"""Parts of the prefill ladder as functions on tensors: in checked mode."""

from pathlib import Path

import torch

from lessons_exercises.lesson_07.native import compiled
from lessons_lib.cuda import CudaLibrary
from lessons_lib.inline import read_kernel
from paged_attention.ladder import Shape, shape_text

AROUND = 1e4  # what lies around a lane's own numbers


def build(answer: str, before: str, wrapper: str, head_size: int) -> CudaLibrary:
    """The checked library of `answer`. The files of kernels/ that `before` names come before
    it, and `wrapper`, a file of this folder, after it.
    """
    texts = {f"{name}.cuh": read_kernel(f"{name}.cuh") for name in before.split()}
    texts["ladder/shape.cuh"] = shape_text(Shape(torch.float16, head_size, 4, 16))
    own_text = (Path(__file__).parent / wrapper).read_text(encoding="utf-8")
    return compiled(texts | {"your code": answer, "the check": own_text})
