"""The form with tensors in lesson 06. PyTorch's `load_inline` builds the lesson's own text.

The result is that of the reference. Without a GPU, the C++ compiler builds it for the CPU."""

import ast
import shlex

import pytest
import torch
from torch.utils import cpp_extension

from lessons_lib.cuda.builds import CUDA_ON_CPU, choose_target, runtime_library
from lessons_lib.cuda_on_cpu.rewrite import rewrite
from lessons_lib.paths import SOLUTIONS
from paged_attention.attention.metadata import (
    BatchMetadata,
    attn_paged_torch,
    cumulative_lengths,
)
from tools.notebooks.lesson_files import read_lesson

# the compiler reads PyTorch's headers, which takes half a minute on a quiet machine
pytestmark = pytest.mark.slow

# In place of PyTorch's own header. A PyTorch without CUDA does not have its library.
STREAM = """
#pragma once
#include <cuda_runtime.h>
namespace c10::cuda { inline cudaStream_t getCurrentCUDAStream() { return nullptr; } }
"""


@pytest.fixture(scope="module")
def lesson():
    """What the lesson's cells define: the texts of the kernel, the tensor form, the function
    that builds it.
    """
    namespace = {}
    for cell in read_lesson(SOLUTIONS / "06_cuda_kernel.py").cells:
        if cell.kind in ("code", "exercise"):
            tree = ast.parse(cell.solution())
            tree.body = [
                node
                for node in tree.body
                if is_text(node) or getattr(node, "name", None) == "build_tensor_form"
            ]
            exec(compile(tree, "<lesson 06>", "exec"), namespace)
    return namespace


def is_text(node) -> bool:
    """Whether it gives a name to a text, to a part of one, or to the dictionary of all."""
    return (
        isinstance(node, ast.Assign)
        and not any(
            isinstance(part, ast.Call) and not isinstance(part.func, ast.Attribute)
            for part in ast.walk(node.value)
        )
        and {target.id for target in node.targets if isinstance(target, ast.Name)}
        & {
            "numbers",
            "paged_params",
            "paged_address",
            "block_reduce",
            "paged_scores",
            "paged_values",
            "paged_attention",
            "kernel",
            "tensor_form",
            "declaration",
        }
    )


@pytest.fixture(scope="module")
def module(lesson, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tensor_form")
    if choose_target(None) == "gpu":
        return lesson["build_tensor_form"]()
    (folder / "c10/cuda").mkdir(parents=True)
    (folder / "c10/cuda/CUDAStream.h").write_text(STREAM)
    # not all: PyTorch's headers want the C library's assert
    for header in ("cuda_runtime.h", "cuda_fp16.h", "cuda_bf16.h"):
        (folder / header).write_text(f'#include "{CUDA_ON_CPU / "include" / header}"')
    load_inline = cpp_extension.load_inline
    runtime = runtime_library(checked=False)
    linked = str(runtime), f"-Wl,-rpath,{runtime.parent}", "-ldl"

    def by_the_cpp_compiler(name, cpp_sources, cuda_sources, functions, build_directory):
        return load_inline(
            name,
            cpp_sources=[cpp_sources, rewrite(cuda_sources)],
            functions=functions,
            extra_cflags=["-Wno-unknown-pragmas"],
            extra_include_paths=[str(folder)],
            extra_ldflags=[*map(shlex.quote, linked)],
            build_directory=build_directory,
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LESSONS_BUILD_DIR", str(folder))
        patch.setattr(cpp_extension, "load_inline", by_the_cpp_compiler)
        return lesson["build_tensor_form"]()


def batch():
    """Three sequences of 6, 10 and 3 tokens in shuffled blocks of 4, with 6 query heads on 2
    KV heads of size 8.
    """
    device = "cuda" if choose_target(None) == "gpu" else "cpu"
    q = torch.randn(3, 6, 8, device=device)
    cache = torch.randn(2, 7, 4, 2, 8, device=device)
    block_table = torch.tensor(
        [[5, 0, -1], [2, 6, 1], [3, -1, -1]], dtype=torch.int32, device=device
    )
    return q, *cache, block_table, torch.tensor([6, 10, 3], dtype=torch.int32, device=device)


def test_it_computes_what_the_reference_does(module):
    q, k_cache, v_cache, block_table, context_lens = batch()
    module.attend(
        out := torch.full_like(q, float("nan")),
        q,
        k_cache,
        v_cache,
        block_table,
        context_lens,
        10,
    )
    metadata = BatchMetadata(
        cumulative_lengths([1, 1, 1]).to(q.device), context_lens, block_table, None
    )
    torch.testing.assert_close(
        out, attn_paged_torch(q, k_cache, v_cache, metadata), atol=1e-5, rtol=1e-5
    )


def test_its_checks_raise(module):
    q, k_cache, v_cache, block_table, context_lens = batch()
    with pytest.raises(RuntimeError, match="must be contiguous and float32"):
        module.attend(
            torch.empty_like(q), q.double(), k_cache, v_cache, block_table, context_lens, 10
        )
