"""The table's check on the device refuses what the host's refuses, and nothing else."""

import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paged_attention.ladder.self_planned import SelfPlannedDecode, kept_decode, place_of
from paged_attention.validate import table_fits

TARGETS = ["fast", "checked"] + ["gpu"] * torch.cuda.is_available()
SIZES = dict(num_q_heads=2, num_kv_heads=1, head_size=64, dtype=torch.float16)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=30)
@given(data=st.data())
def test_the_device_decides_as_the_host(target, data):
    device = "cuda" if target == "gpu" else "cpu"
    decode = SelfPlannedDecode(4, block_size=8, device=device, target=target, **SIZES)
    for _ in range(3):  # a table that was refused leaves nothing behind
        num_seqs, width = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5))
        entries = st.integers(-1, 4) if data.draw(st.booleans()) else st.integers(0, 3)
        rows = st.lists(entries, min_size=width, max_size=width)
        table = data.draw(st.lists(rows, min_size=num_seqs, max_size=num_seqs))
        lengths = st.one_of(st.integers(0, 8 * width), st.integers(-1, 8 * width + 1))
        lens = data.draw(st.lists(lengths, min_size=num_seqs, max_size=num_seqs))
        arguments = [torch.tensor(x, dtype=torch.int32, device=device) for x in (table, lens)]
        assert decode.table_fits(*arguments, 4, 8) == table_fits(*arguments, 4, 8)


def test_calls_of_two_threads_share_no_buffers():
    places = []
    for _ in range(2):
        thread = threading.Thread(target=lambda: places.append(place_of(torch.device("cpu"))))
        thread.start()
        thread.join()
    places.append(place_of(torch.device("cpu")))
    model = dict(**SIZES, block_size=8, device=torch.device("cpu"), target="fast")
    decodes = [kept_decode(place, 4, **model) for place in places[1:]]
    assert decodes[0] is not decodes[1] and kept_decode(places[-1], 4, **model) is decodes[1]
