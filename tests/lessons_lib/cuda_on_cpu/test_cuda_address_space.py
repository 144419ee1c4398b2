"""Where checked mode keeps the tensors: what is out of reach after a call, little space."""

import signal
import subprocess
import sys

import pytest

from lessons_lib import build_cuda
from lessons_lib.paths import ROOT

TEXT = """
const unsigned char* kept;
__global__ void copy_kernel(const unsigned char* x, unsigned char* out) { *out = *x; }
extern "C" int keep(unsigned char* out, const unsigned char* x, int n, cudaStream_t stream) {
  kept = x + n - 1;
  copy_kernel<<<1, 1, 0, stream>>>(x, out);
  return cudaGetLastError();
}
extern "C" int look(const unsigned char* x, cudaStream_t stream) { return *kept; }
"""


BUILD = f'library = build_cuda({TEXT!r}, target="checked", name="address_space")'
START = ("import torch", "from lessons_lib import build_cuda", BUILD)


def in_a_process(*lines: str) -> subprocess.CompletedProcess:
    build_cuda(TEXT, target="checked", name="address_space")  # is ready
    command = [sys.executable, "-c", "\n".join(START + lines)]
    return subprocess.run(command, cwd=ROOT, text=True, capture_output=True)


def test_what_a_call_had_is_out_of_reach_after_it():
    """To its last byte, on a page of its own; and to code that nobody watches."""
    ran = in_a_process(
        "x = torch.full((4096 + 100,), 7, dtype=torch.uint8)",
        "library.keep(torch.zeros(1, dtype=torch.uint8), x, len(x))",
        "print('looks', flush=True)",
        "library.look(x[:1])",
    )
    assert (ran.stdout, ran.returncode) == ("looks\n", -signal.SIGSEGV)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/status is Linux's")
@pytest.mark.parametrize(
    "gibibytes, said", [(5, "7"), (3, "out: there is no room to watch 1 ")]
)
def test_where_there_is_little_space_tensors_lie_closer_or_it_is_said(gibibytes, said):
    """64 places of 64 MiB fit into 5 GiB. Closer ones would not show what was missed."""
    ran = in_a_process(
        "import resource",
        "lines = dict(line.split(':', 1) for line in open('/proc/self/status'))",
        f"limit = (int(lines['VmSize'].split()[0]) << 10) + ({gibibytes} << 30)",
        "x, out = torch.full((2, 9), 7, dtype=torch.uint8)",
        "keep = library.keep",
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))",
        "try:",
        "    keep(out[:1].zero_(), x, 9)",
        "    print(out[0].item())",
        "except RuntimeError as error:",
        "    print(str(error)[:33])",
    )
    assert (ran.stdout, ran.stderr, ran.returncode) == (f"{said}\n", "", 0)
