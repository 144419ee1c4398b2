"""Memory that the launcher asks for, in checked mode: each mistake is named, with its line;
what is right passes.
"""

import pytest
import torch

from cuda_text import Kernels
from lessons_lib import KernelError

# kind, the first line of the message, and the launcher's body. `b` is 8 floats of a GPU's.
MISTAKES = [
    (
        "out-of-bounds",
        "Thread 8 writes b[8], outside of the memory that was allocated: "
        "b has the elements 0 to 7.",
        "fill<<<1, 32>>>(b, 9);",
    ),
    (
        "uninitialised",
        "Thread 0 reads b[0] before anything was written there.",
        "sum<<<1, 1>>>(b, 8, out);",
    ),
    (
        "uninitialised",
        "Thread 0 reads b[6] before anything was written there.",
        "cudaMemset(b, 0, 6 * sizeof(float)); sum<<<1, 1>>>(b, 8, out);",
    ),
    (
        "copies-unwritten",
        "cudaMemcpy reads b[7], which nothing has written.",
        "fill<<<1, 32>>>(b, 7); cudaMemcpy(h, b, sizeof h, cudaMemcpyDeviceToHost);",
    ),
    (
        "copies-unwritten",
        "cudaMemcpyAsync reads b[5], which nothing has written.",
        "fill<<<1, 5>>>(b, 5); cudaMemcpyAsync(out, b + 5, 4, cudaMemcpyDeviceToDevice);",
    ),
    (
        "copies-unwritten",
        "cudaMemcpy reads byte 16 of v, which nothing has written.",
        "float* v; cudaMalloc((void**)&v, 32); fill<<<1, 3>>>(v, 3); "
        "cudaMemcpy(h, v, 32, cudaMemcpyDeviceToHost);",
    ),
    (
        "use-after-free",
        "Thread 0 writes b[0] after it was freed in line LINE.",
        "cudaFree(b); fill<<<1, 32>>>(b, 8);",
    ),
    (
        "bad-call",
        "cudaMemcpy: it reads b after it was freed.",
        "cudaFree(b); cudaMemcpy(h, b, sizeof h, cudaMemcpyDeviceToHost);",
    ),
    ("bad-call", "cudaFree: b was freed before.", "cudaFree(b); cudaFree(b);"),
    ("bad-call", "cudaFree: this is no address that cudaMalloc gave.", "cudaFree(h);"),
    ("bad-call", "cudaFree: this is no address that cudaMalloc gave.", "cudaFree(b + 1);"),
    (
        "bad-call",
        "cudaMemcpy: it writes 64 bytes of b, which has 32. It counts bytes, not elements.",
        "cudaMemcpy(b, h16, sizeof h16, cudaMemcpyHostToDevice);",
    ),
    (
        "bad-call",
        "cudaMemset: it writes 32 bytes from byte 4 of b, which has 32. "
        "It counts bytes, not elements.",
        "cudaMemset(b + 1, 0, 8 * sizeof(float));",
    ),
    (
        "bad-call",
        "cudaMemcpy: it reads the host's memory, but b is a GPU's. Do the arguments, to and "
        "from, and the direction fit together?",
        "cudaMemcpy(h, b, sizeof h, cudaMemcpyHostToDevice);",
    ),
    (
        "bad-call",
        "cudaMemcpy: it reads a GPU's memory, but gets an address of the host's. Are the "
        "arguments in order: to, from, bytes, direction?",
        "cudaMemcpy(b, h, sizeof h, cudaMemcpyDeviceToHost);",
    ),
    (
        "bad-call",
        "cudaMemcpy: it writes x, which is an input (const).",
        "cudaMemcpy((void*)x, h, 4, cudaMemcpyHostToDevice);",
    ),
    (
        "bad-call",
        "cudaMemcpyToSymbol: it copies up to byte 20 of a variable that has 16. "
        "It counts bytes, not elements.",
        "cudaMemcpyToSymbol(four, h, 8, 12);",
    ),
    (
        "bad-call",
        f"cudaMalloc: there is no room for {1 << 60} bytes more, or too many are not freed.",
        "void* more; return cudaMalloc(&more, (size_t)1 << 60);",
    ),
    (
        "host-access",
        "The launcher itself writes b[3], in code that runs on the host.",
        "b[3] = 1;",
    ),
    (
        "host-too-early",
        "The launcher reads c[2], which a kernel may still be using.",
        "fill<<<1, 32>>>(c, 8); if (c[2] > 5) return 1;",
    ),
    (
        "host-too-early",
        "The launcher writes c[0], which a kernel may still be using.",
        "c[0] = 0; sum<<<1, 1>>>(c, 1, out); c[0] = 1;",
    ),
    (
        "out-of-bounds",
        "The launcher writes c[8], outside of the memory that was allocated: "
        "c has the elements 0 to 7.",
        "for (int i = 0; i <= 8; ++i) c[i] = 1;",
    ),
    (
        "use-after-free",
        "The launcher reads c[1] after it was freed in line LINE.",
        "cudaFree(c); if (c[1] > 5) return 1;",
    ),
    (
        "race-between-blocks",
        "Thread 0 of block 1 writes b[0], which block 0 wrote in the same launch.",
        "fill<<<2, 8>>>(b, 8);",
    ),
    (
        "no-address",
        "Thread 0 writes memory through a pointer that leads to no tensor, and to no variable "
        "of the kernel.",
        "float* host = new float[8]; fill<<<1, 8>>>(host, 8);",
    ),
]
RIGHT = [
    "cudaMemset(b, 0, 32); sum<<<1, 1>>>(b, 8, out);",
    "fill<<<1, 8>>>(b, 8); sum<<<1, 1>>>(b, 8, out);",
    "fill<<<1, 8>>>(b, 8); cudaMemcpy(h, b, 32, cudaMemcpyDefault); cudaFree(nullptr);",
    "fill<<<1, 8>>>(c, 8); cudaDeviceSynchronize(); c[0] = c[1]; sum<<<1, 1>>>(c, 8, out);",
    "c[0] = 5; cudaMemcpy(b, c, 4, cudaMemcpyHostToDevice); sum<<<1, 1>>>(b, 1, out);",
    "for (int i = 0; i < 1000; ++i) { float* d; cudaMalloc(&d, 64); cudaFree(d); }",
    "Pair *pairs, back[4]; cudaMalloc((void**)&pairs, sizeof back); pair<<<1, 4>>>(pairs); "
    "cudaMemcpy(back, pairs, sizeof back, cudaMemcpyDeviceToHost); cudaFree(pairs);",
    "Pair *pairs, back[4]; cudaMalloc(&pairs, sizeof back); pair<<<1, 4>>>(pairs); "
    "cudaMemcpy(back, pairs, sizeof back, cudaMemcpyDeviceToHost); cudaFree(pairs);",
]
TEXT = """
struct Pair { char a; double b; };
__device__ float four[4];
__global__ void pair(Pair* p) { p[threadIdx.x].a = 1; p[threadIdx.x].b = 2; }
__global__ void fill(float* p, int n) { if (threadIdx.x < n) p[threadIdx.x] = 1; }
__global__ void sum(const float* p, int n, float* out) {
  float all = 0; for (int i = 0; i < n; ++i) all += p[i]; *out = all; }
"""
FUNCTION = """
extern "C" int call_{number}(const float* x, float* updated, cudaStream_t stream) {{
  float *b, *c, h[8] = {{}}, h16[16] = {{}}, *out = updated;
  cudaMalloc(&b, sizeof h);
  cudaMallocManaged(&c, sizeof h);
  {body}
  cudaFree(c), cudaFree(b);
  return cudaGetLastError();
}}
"""
BODIES = [body for _, _, body in MISTAKES] + RIGHT
TEXT += "".join(FUNCTION.format(number=n, body=body) for n, body in enumerate(BODIES))


checked = Kernels(TEXT, "allocations")


def call(body):
    getattr(checked(), f"call_{BODIES.index(body)}")(*torch.zeros(2))


@pytest.mark.parametrize("kind, message, body", MISTAKES, ids=[body for *_, body in MISTAKES])
def test_a_mistake_is_named(kind, message, body):
    with pytest.raises(KernelError) as raised:
        call(body)
    line = TEXT.split("\n").index(f"  {body}") + 1
    first, *others = str(raised.value).split("\n")
    assert (raised.value.kind, first) == (kind, message.replace("LINE", str(line)))
    in_kernel = raised.value.thread is not None
    assert in_kernel or others[0] == f"    your code, line {line}: {body}"


@pytest.mark.parametrize("body", RIGHT)
def test_what_is_right_passes(body):
    call(body)
