"""What only a GPU can show: streams, a second device, tensors on the wrong side."""

import pytest
import torch

from paged_attention.attention.paged_kernel import attn_paged_cuda, paged_attention_library
from paged_batch import Batch, Recorder, assert_right

pytestmark = pytest.mark.gpu
SLOW = 4_000_000_000  # clock cycles, two seconds or so: a launch takes microseconds


def test_the_launch_waits_its_turn_in_the_stream():
    """The right query comes only when a slow kernel before it has ended; another stream would
    have read the wrong one.
    """
    tensors = Batch((40, 3), 6, 2).tensors("gpu")
    recorder = Recorder(paged_attention_library("gpu"))
    attn_paged_cuda(**tensors, library=recorder)
    fields, query = recorder.fields, torch.empty_like(tensors["q"]).fill_(7.0)
    fields["q"], fields["out"] = query, torch.empty_like(query)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(SLOW)
        query.copy_(tensors["q"])
        recorder.library.paged_attention(**fields)
        assert not stream.query()  # it came back while the stream was still asleep
    stream.synchronize()
    assert_right(fields["out"], tensors)


def test_the_function_works_in_a_stream_of_its_own():
    tensors, stream = Batch((40, 3), 6, 2).tensors("gpu"), torch.cuda.Stream()
    query = torch.zeros_like(tensors["q"])
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(SLOW)
        query.copy_(tensors["q"])
        out = attn_paged_cuda(**tensors | {"q": query})
    stream.synchronize()
    assert_right(out, tensors)


@pytest.mark.gpu(2)
def test_the_second_device():
    tensors = {
        name: tensor.to("cuda:1") for name, tensor in Batch((40, 3), 6, 2).tensors().items()
    }
    assert torch.cuda.current_device() == 0
    out = attn_paged_cuda(**tensors)
    assert out.device == torch.device("cuda:1") and torch.cuda.current_device() == 0
    assert_right(out, tensors)
    with pytest.raises(
        ValueError, match="k_cache must be on q's device, cuda:1, not on cuda:0"
    ):
        attn_paged_cuda(**tensors | {"k_cache": tensors["k_cache"].to("cuda:0")})


@pytest.mark.parametrize("name", ["q", "k_cache", "v_cache", "block_table", "context_lens"])
def test_a_tensor_on_the_cpu_among_others_is_refused_by_name(name):
    tensors = Batch((40, 3), 6, 2).tensors("gpu")
    with pytest.raises(ValueError, match="k_cache" if name == "q" else name):
        attn_paged_cuda(**tensors | {name: tensors[name].cpu()})


def test_a_library_for_the_other_side_refuses_the_tensors():
    on_cpu, on_gpu = Batch((5,)).tensors(), Batch((5,)).tensors("gpu")
    with pytest.raises((TypeError, ValueError), match="cpu"):
        attn_paged_cuda(**on_cpu, library=paged_attention_library("gpu"))
    with pytest.raises((TypeError, ValueError), match="cuda"):
        attn_paged_cuda(**on_gpu, library=paged_attention_library("fast"))


def test_a_pool_of_more_numbers_than_an_int_can_count():
    blocks = (1 << 31) // (16 * 8 * 128) + 8
    if torch.cuda.mem_get_info()[0] < 5 * blocks * 16 * 8 * 128:
        pytest.skip("this needs 10 GB of the GPU's memory")
    small = Batch((40, 16), 16, 8, 128, dtype=torch.float16).tensors("gpu")
    caches = torch.zeros(
        2, blocks, *small["k_cache"].shape[1:], dtype=torch.float16, device="cuda"
    )
    shift = blocks - len(small["k_cache"])
    caches[0, shift:], caches[1, shift:] = small["k_cache"], small["v_cache"]
    table = torch.where(small["block_table"] < 0, -1, small["block_table"] + shift).int()
    out = attn_paged_cuda(
        **small | {"k_cache": caches[0], "v_cache": caches[1], "block_table": table}
    )
    assert_right(out, small)
