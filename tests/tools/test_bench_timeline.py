"""The timeline's benchmark: how a profile is read, its files, its table and its picture."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lessons_content.lesson_10.bench import fast_engine
from lessons_content.lesson_10.bench.timeline_runs import Timeline
from lessons_content.lesson_10.pictures.host_and_gpu import shares
from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.engine import Engine
from paged_attention.engine.fast import FastParts
from paged_attention.engine.request import SamplingParams
from tools.bench import timeline
from tools.bench.timeline import digest, marked, merged, profiled


def event(category, name, begin, end, correlation=None):
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "ts": 5e9 + begin,
        "dur": end - begin,
        "args": {} if correlation is None else {"correlation": correlation},
    }


def step(begin, number):
    """A step of 100 µs. The host waits in a copy for a kernel that ends at 70."""
    at = [
        ("user_annotation", "other", 0, 90),
        ("user_annotation", "schedules", 2, 10),
        ("user_annotation", "launches", 10, 40),
        ("cuda_runtime", "cudaLaunchKernel", 12, 15, 1),
        ("cuda_driver", "cuLaunchKernelEx", 20, 24, 2),
        ("cuda_runtime", "cudaEventRecord", 30, 31),
        ("kernel", "a kernel", 20, 30, 1),
        ("kernel", "another", 31, 70, 2),
        ("gpu_user_annotation", "launches", 20, 70),
        ("user_annotation", "completes", 40, 85),
        ("cpu_op", "aten::to", 42, 80),
        ("cuda_runtime", "cudaMemcpyAsync", 45, 74, 3),
        ("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 72, 73, 3),
        ("cuda_runtime", "cudaStreamSynchronize", 75, 76),
    ]
    return [
        event(category, name, begin + first, begin + last, *(10 * number + n for n in rest))
        for category, name, first, last, *rest in at
    ]


STEPS = [each for number in range(6) for each in step(100 * number, number)]
NO_SPANS = [{"ph": "M", "name": "process_name", "ts": 5e9}, {"ph": "i", "name": "x", "ts": 1}]


def test_a_profile_says_what_host_and_gpu_do():
    found = digest(NO_SPANS + STEPS[::-1], first=1, num_steps=2)
    assert (found["starts"], found["end"]) == ((0, 100), 200)
    assert {what: spans[:3] for what, spans in found["host"].items()} == {
        "schedules": ((2, 10), (102, 110)),
        "launches": ((10, 40), (110, 140)),
        "waits": ((45, 74), (75, 76), (145, 174)),
        "completes": ((40, 45), (74, 75), (76, 85)),
        "other": ((0, 2), (85, 90), (100, 102)),
    }
    assert found["gpu"] == ((20, 70), (72, 73), (120, 170), (172, 173))
    assert found["busy"] == (10 + 39 + 1) / 100 and found["kernels"] == 2
    assert found["calls"] == {
        "cuLaunchKernelEx": 1,
        "cudaLaunchKernel": 1,
        "cudaMemcpyAsync": 1,
        "cudaStreamSynchronize": 1,
    }
    read = Timeline("an engine", 0.08, **found)
    assert (read.launches, read.waits, read.profiled, read.gpu_time) == (3, 1, 0.1, 0.05)


def test_the_gpu_may_be_a_step_behind():
    """What it does at the first step's start began before, and the last step's work is cut."""
    late = [
        each | {"ts": each["ts"] + 65 * (each["cat"] in timeline.GPU_WORK)} for each in STEPS
    ]
    found = digest(late, first=2, num_steps=3)
    assert found["gpu"][:2] == ((0, 35), (37, 38)) and found["gpu"][-1] == (285, 300)
    assert found["busy"] == 0.5 and found["kernels"] == 2


@pytest.mark.parametrize(
    ("name", "end", "waits"),
    [
        ("Memcpy DtoH (Device -> Pageable)", 80, True),
        ("Memcpy HtoD (Pageable -> Device)", 80, True),
        ("Memcpy DtoH (Device -> Pinned)", 80, False),
        ("Memcpy HtoD (Pageable -> Device)", 60, False),
    ],
)
def test_a_copy_waits_if_it_comes_back_late_from_memory_that_is_not_pinned(name, end, waits):
    copy = [
        event("cuda_runtime", "cudaMemcpyAsync", 50, end, 999),
        event("gpu_memcpy", name, 65, 66, 999),
    ]
    steps = [each for number in range(3) for each in step(100 * number, number)]
    others = [each for each in steps if "Mem" not in each["name"]]
    found = digest(others + copy, first=0, num_steps=2)["host"]["waits"]
    assert found == (((50, 80),) if waits else ((75, 76),)) + ((175, 176),)


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        (STEPS, "has no 6 steps with another one after them"),
        ([each for each in STEPS if each["cat"] != "kernel"], "has no kernel"),
    ],
)
def test_a_profile_that_holds_too_little_is_refused(trace, message):
    with pytest.raises(ValueError, match=message):
        digest(trace, first=0, num_steps=6 if trace is STEPS else 3)


times = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), max_size=8).map(
    lambda pairs: [(begin, begin + duration) for begin, duration in pairs]
)


def covered(spans) -> set[int]:
    return {place for begin, end in spans for place in range(begin, end)}


@given(times)
def test_the_shares_of_bins_are_those_of_their_points(spans):
    found = shares(merged(spans), np.array([0, 3, 4, 20, 50]))
    for share, bin in zip(found, ((0, 3), (3, 4), (4, 20), (20, 50)), strict=True):
        points = covered([bin])
        assert share == pytest.approx(len(covered(spans) & points) / len(points))


@pytest.mark.filterwarnings("ignore:CUDA is not available")
@pytest.mark.parametrize("parts", [None, FastParts(ahead=False), FastParts()], ids=str)
def test_the_work_of_a_real_engine_is_marked(parts):
    """There are kernels on a GPU only, so one for each step is put into the trace."""
    options = dict(num_blocks=40, block_size=4, max_num_seqs=2, path="batched")
    model = load_model()
    engine = fast_engine.engine_with(model, parts, **options)
    for number in range(2):
        engine.add(number, [1, 2, 3], SamplingParams(max_new_tokens=20, ignore_end=True))
    engine.step()
    engine.step()
    before = set(vars(engine))
    trace = profiled(engine)
    assert set(vars(engine)) == before  # the marks are gone
    trace += [each | {"cat": "kernel"} for each in trace if each["name"] == "other"]
    found = digest(trace)
    host = found["host"]
    assert (len(found["starts"]), found["kernels"], found["calls"]) == (3, 1, {})
    assert [len(host[what]) for what in ("schedules", "launches", "completes")] == [3, 3, 3]
    assert host["waits"] == ()
    starts = zip(*(host[what] for what in ("schedules", "launches", "completes")))
    assert all(one < two < three for one, two, three in starts)
    spans = sorted(span for spans in host.values() for span in spans)
    assert all(end <= begin for (_, end), (begin, _) in zip(spans, spans[1:]))


def test_the_marks_go_when_a_step_fails():
    engine = Engine(load_model(), num_blocks=4, path="batched")
    with pytest.raises(RuntimeError, match="stop"), marked(engine):
        raise RuntimeError("stop")
    assert "schedule" not in vars(engine.scheduler) and "run" not in vars(engine.runner)
