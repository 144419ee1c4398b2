"""Where checked mode keeps the tensors: what is out of reach after a call, little space."""

import resource
import sys

import cloudpickle
import pytest
import torch

from cuda_text import Kernels
from lessons_lib import run_isolated

# as functions of a notebook travel
cloudpickle.register_pickle_by_value(sys.modules[__name__])
library = Kernels(
    """
const unsigned char* kept;
__global__ void copy_kernel(const unsigned char* x, unsigned char* out) { *out = *x; }
extern "C" int keep(unsigned char* out, const unsigned char* x, int n, cudaStream_t stream) {
  kept = x + n - 1;
  copy_kernel<<<1, 1, 0, stream>>>(x, out);
  return cudaGetLastError();
}
extern "C" int look(const unsigned char* x, cudaStream_t stream) { return *kept; }
""",
    "address_space",
)


def test_what_a_call_had_is_out_of_reach_after_it():
    """To its last byte, on a page of its own; and to code that nobody watches."""

    def look_again():
        x = torch.full((4096 + 100,), 7, dtype=torch.uint8)
        library().keep(torch.zeros(1, dtype=torch.uint8), x, len(x))
        print("looks", flush=True)
        library().look(x[:1])

    outcome = run_isolated(look_again, time_limit=60)
    assert (outcome.printed, outcome.ending) == ("looks\n", "crashed")
    assert outcome.detail == "Segmentation fault"


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/status is Linux's")
@pytest.mark.parametrize("gibibytes, said", [(5, 7), (3, "out: there is no room to watch 1 ")])
def test_where_there_is_little_space_tensors_lie_closer_or_it_is_said(gibibytes, said):
    """64 places of 64 MiB fit into 5 GiB. Closer ones would not show what was missed."""

    def keep():
        with open("/proc/self/status") as file:
            lines = dict(line.split(":", 1) for line in file)
        limit = (int(lines["VmSize"].split()[0]) << 10) + (gibibytes << 30)
        x, out = torch.full((2, 9), 7, dtype=torch.uint8)
        keep = library().keep
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        try:
            keep(out[:1].zero_(), x, 9)
        except RuntimeError as error:
            return str(error)[:33]
        return out[0].item()

    assert run_isolated(keep, time_limit=60).value == said
