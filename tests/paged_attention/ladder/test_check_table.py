"""The table's check on the device refuses what the host's refuses, and nothing else."""

import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paged_attention import ladder
from paged_attention.ladder import attn_paged_fast
from paged_attention.self_planned import SelfPlannedDecode, kept_decode, place_of
from paged_attention.validate import check_decode_tensors, table_fits
from paged_batch import Batch

TARGETS = ["fast", "checked"] + ["gpu"] * torch.cuda.is_available()
SIZES = dict(num_q_heads=2, num_kv_heads=1, head_size=64, dtype=torch.float16)


@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=30, deadline=None)
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


def test_a_call_that_is_refused_harms_no_later_one():
    batch = Batch((20, 3), 2, 1, 64, 8, torch.float16)
    tensors = batch.tensors()
    expected = attn_paged_fast(**tensors, target="fast")
    wrong = tensors["block_table"].clone()
    wrong[0, 1] = 1_000
    with pytest.raises(ValueError, match="row 0, holds 1000"):
        attn_paged_fast(**tensors | {"block_table": wrong}, target="fast")
    assert torch.equal(attn_paged_fast(**tensors, target="fast"), expected)


def test_only_what_looks_like_an_earlier_call_is_not_checked_again(monkeypatch):
    checked = []
    monkeypatch.setattr(ladder, "_checked", set())
    monkeypatch.setattr(
        ladder,
        "check_decode_tensors",
        lambda *tensors: checked.append(1) or check_decode_tensors(*tensors),
    )
    tensors = dict(
        q=torch.ones(2, 4, 64, dtype=torch.float16),
        k_cache=torch.ones(3, 16, 2, 64, dtype=torch.float16),
        v_cache=torch.ones(3, 16, 2, 64, dtype=torch.float16),
        block_table=torch.tensor([[0, 1], [2, -1]], dtype=torch.int32),
        context_lens=torch.tensor([17, 3], dtype=torch.int32),
    )
    for _ in range(3):
        attn_paged_fast(**tensors, target="fast")
    attn_paged_fast(**tensors | {"q": tensors["q"].clone()}, target="fast")
    assert len(checked) == 1
    wrong = {
        "q": tensors["q"].float(),
        "k_cache": tensors["k_cache"].transpose(1, 2),
        "v_cache": tensors["v_cache"][:, :8],
        "block_table": tensors["block_table"].long(),
        "context_lens": tensors["context_lens"].tolist(),
    }
    for name, value in wrong.items():
        with pytest.raises((TypeError, ValueError)):
            attn_paged_fast(**tensors | {name: value}, target="fast")
    assert len(checked) == 1 + len(wrong)


def test_few_signatures_are_kept(monkeypatch):
    monkeypatch.setattr(ladder, "_checked", set())
    monkeypatch.setattr(ladder, "check_decode_tensors", lambda *tensors: None)
    for number in range(3 * ladder.MOST_CHECKED):
        ladder._check_once(torch.empty(number))
        assert len(ladder._checked) <= ladder.MOST_CHECKED
