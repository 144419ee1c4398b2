"""What a call of a CUDA function tells the runtime and the library, and what it makes of their
answers. Both are stand-ins, so nothing is built.
"""

import ctypes
import os
import struct
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from cuda_stand_ins import Library, Runtime
from lessons_lib import KernelError, cuda_calls
from lessons_lib.cuda_calls import Access, CallOnCpu
from lessons_lib.cuda_counts import Counts, CountsOfCall
from lessons_lib.cuda_launches import Launch, Launches, RecordedLaunch
from lessons_lib.cuda_on_cpu.source_lines import SourceLine
from lessons_lib.cuda_signatures import functions

TEXT = """
struct Sizes { int rows; long long stride; };
extern "C" int f(const float* a, float* out, int n, float scale, cudaStream_t stream) {
  twice<<<1, 1>>>(a, out);
}
extern "C" int g(int* x, Sizes sizes) {}
extern "C" int h(const int* table, float* x, int* out_count, const float* out_of, int n) {}
extern "C" int k(const unsigned char* bytes) {}
"""
TEXTS = {"your code": TEXT}
F, G, H, K = (functions(TEXTS)[name] for name in "fghk")


@pytest.fixture
def runtime(monkeypatch):
    made = Runtime()
    monkeypatch.setattr(cuda_calls, "_load", lambda path, loader: made)
    return made


def on_cpu(body=lambda *values: 0, checked=True, text=TEXT) -> CallOnCpu:
    return CallOnCpu(Library(body), "runtime.so", {"your code": text}, checked)


def arguments(**changes) -> dict:
    return dict(a=torch.zeros(3), out=torch.zeros(3), n=3, scale=0.5) | changes


def arguments_of_h(**changes) -> dict:
    tensors = dict(
        table=torch.zeros(4, dtype=torch.int32),
        x=torch.zeros(5),
        out_count=torch.zeros(1, dtype=torch.int32),
        out_of=torch.zeros(6),
    )
    return tensors | {"n": 1} | changes


# On the CPU


@pytest.mark.parametrize("checked", [True, False])
def test_the_runtime_is_loaded_for_its_mode(monkeypatch, checked):
    loaded = []
    monkeypatch.setattr(cuda_calls, "_load", lambda *words: loaded.append(words))
    on_cpu(checked=checked)
    loader = cuda_calls._load_checked_runtime if checked else cuda_calls._load_runtime
    assert loaded == [("runtime.so", loader)]


@pytest.mark.parametrize("checked", [True, False])
def test_the_function_gets_addresses_numbers_and_the_stream(runtime, checked):
    run, given = on_cpu(checked=checked), arguments()
    run(F, given, None)
    a, out = given["a"].data_ptr(), given["out"].data_ptr()
    assert run.library.got == [("f", a, out, 3, 0.5, None)]
    assert list(runtime.tensors) == (["a", "out"] if checked else [])
    assert runtime.released == ([1] if checked else [])
    run.stream = 5
    run(F, arguments(a=None, scale=2), None)
    assert run.library.got[1][1] is None and run.library.got[1][4:] == (2, 5)
    run(G, dict(x=None, rows=2, stride=2**40), None)
    assert run.library.got[2] == ("g", None, {"rows": 2, "stride": 2**40})


@pytest.mark.parametrize("checked", [True, False])
def test_the_runtime_has_the_settings_before_the_function_begins(runtime, checked):
    seen = []

    def body(*values):
        seen.append((runtime.settings, runtime.failing))
        return 0

    run = on_cpu(body, checked)
    run(F, arguments(), None)
    run.settings, run.failing_launch = (7, 1, 50), 2
    run(F, arguments(), None)
    assert seen == [((0, cuda_calls.processors(), 20_000_000), 0), ((7, 1, 50), 2)]


def test_the_runtime_is_told_what_a_tensor_is(runtime):
    run, given = on_cpu(), arguments_of_h()
    run(H, given, None)
    assert runtime.tensors == {
        name: (given[name].data_ptr(), size, 4, kind)
        for name, size, kind in (
            ("table", 16, 0 + 8),  # an input, of integers
            ("x", 20, 1),  # updated
            ("out_count", 4, 2 + 8),  # an output: every element is to be written
            ("out_of", 24, 0),
        )
    }


def test_an_output_that_is_an_input_too_is_updated(runtime):
    given = arguments()
    given["a"] = given["out"]
    run = on_cpu()
    run(F, given, None)
    address = given["out"].data_ptr()
    assert runtime.tensors == {"out": (address, 12, 4, 1)}
    assert run.library.got[0][1:3] == (address, address)


@pytest.mark.parametrize("dtype, ctype", [(torch.float, "f"), (torch.int, "i")])
def test_what_lies_between_the_elements_of_a_tensor_is_not_written(runtime, dtype, ctype):
    whole = torch.arange(20, dtype=dtype).view(4, 5)
    before, part = whole.clone(), whole[1:3, 1:3]
    name, function = ("out", F) if dtype == torch.float else ("x", G)

    def body(*values):
        address, size, element_size, _ = runtime.tensors[name]
        assert (size, element_size) == (28, 4)
        memory = (ctypes.c_char * size).from_address(address)
        numbers = struct.unpack(f"7{ctype}", memory.raw)
        assert [numbers[place] for place in (0, 1, 5, 6)] == [6, 7, 11, 12]
        memory.raw = struct.pack(f"7{ctype}", 60, 70, 1, 1, 1, 110, 120)
        return 0

    given = arguments(out=part) if function is F else dict(x=part, rows=1, stride=1)
    on_cpu(body)(function, given, None)
    before[1:3, 1:3] *= 10
    assert torch.equal(whole, before)
    assert runtime.tensors[name][3] == (
        1 if function is F else 1 + 8
    )  # no output: it has gaps


def test_an_input_with_gaps_is_watched_where_it_is(runtime):
    column = torch.zeros(3, 2)[:, 0]
    on_cpu()(F, arguments(a=column), None)
    assert runtime.tensors["a"] == (column.data_ptr(), 20, 4, 0)


def test_a_call_that_fails_leaves_all_tensors_as_they_were(runtime):
    column = torch.zeros(3, 2)[:, 0]

    def body(a, out, *_):
        ctypes.c_float.from_address(out).value = 3
        return 1

    with pytest.raises(KernelError):
        on_cpu(body)(F, arguments(out=column), None)
    assert column.tolist() == [0, 0, 0]
    assert (runtime.released, runtime.trace_names, runtime.finished) == ([0], b"", False)


def test_a_tensor_that_there_is_no_room_for_is_named(runtime):
    runtime.room = False
    with pytest.raises(RuntimeError, match="a: there is no room to watch 12 bytes"):
        on_cpu()(F, arguments(), None)
    assert runtime.released == [0]


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize(
    "code, words",
    [
        (1, "returned 1: invalid argument. A launcher"),
        (2, "returned 2. A launcher"),
        (8, "returned 8. A launcher"),
        (9, "returned 9: invalid configuration argument. A launcher"),
        (719, "returned 719: unspecified launch failure. A launcher"),
        (700, "returned 700. A launcher"),
    ],
)
def test_an_error_code_is_said_in_words(runtime, checked, code, words):
    with pytest.raises(KernelError) as caught:
        on_cpu(lambda *values: code, checked)(F, arguments(), None)
    assert f"f, which launches twice, {words}" in str(caught.value)
    assert (caught.value.kind, caught.value.kernel) == ("bad-launch", "twice")


@pytest.mark.parametrize("checked", [True, False])
def test_an_error_that_the_function_swallows_is_raised_and_the_next_call_begins_anew(
    runtime, checked
):
    def body(*values):
        runtime.error = errors.pop()
        return 0

    errors = [0, 9]
    run = on_cpu(body, checked)
    with pytest.raises(KernelError, match="returned 9"):
        run(F, arguments(), None)
    run(F, arguments(), None)

    def swallow(*values):
        return 0

    run.library.body, runtime.error = swallow, 9  # whatever was before this call
    run(F, arguments(), None)


@pytest.mark.parametrize("checked", [True, False])
def test_a_report_says_what_happened_and_where(runtime, checked):
    def body(*values):
        runtime.report = b"kind odd\nkernel twice\nfile your code\nline 4\ntext \xff\n"
        return 719

    with pytest.raises(KernelError) as caught:
        on_cpu(body, checked)(F, arguments(), None)
    found = caught.value
    assert (found.kind, found.kernel, found.source, found.line) == (
        "odd",
        "twice",
        "your code",
        4,
    )
    assert "The kernel failed: odd. \ufffd" in str(found) and "twice<<<1, 1>>>" in str(found)


def test_what_is_seen_only_at_the_end_is_an_error_too(runtime):
    runtime.unwritten = True
    with pytest.raises(KernelError, match="no element was written"):
        on_cpu()(F, arguments(), None)
    assert runtime.released == [0]


@pytest.mark.parametrize(
    "text, words, kernel",
    [
        (TEXT, "f, which launches twice, returned 2", "twice"),
        (TEXT + "b<<<1, 2>>>(x); a<<<1, 2>>>(x);", "launches a and b and twice, ret", None),
        (TEXT + "b<<<1, 2>>>(x);", "f, which launches b and twice, returned 2", None),
        ("", "f returned 2", None),
    ],
)
def test_an_error_names_the_kernels_of_the_text(runtime, text, words, kernel):
    with pytest.raises(KernelError, match=words) as caught:
        on_cpu(lambda *values: 2, text=text)(F, arguments(), None)
    assert caught.value.kernel == kernel


# What is recorded


def recorded(kernel=b"k", **changes) -> RecordedLaunch:
    numbers = dict(function=0, stream=0, grid=(2, 3, 4), block=(5, 6, 7), shared_bytes=8)
    return RecordedLaunch(kernel, **(numbers | changes))


@pytest.mark.parametrize("checked", [True, False])
def test_launches_are_kept_with_what_the_last_function_returned(runtime, checked):
    def body(*values):
        runtime.launched = launched.pop()
        return len(runtime.launched)

    launched = [[], [recorded(b"second"), recorded(b"third")], [recorded(b"first")]]
    run = on_cpu(body, checked)
    run.launches = Launches()
    assert run.launches.returned is None
    for _ in range(2):
        with pytest.raises(KernelError):
            run(F, arguments(), None)
    assert [launch.kernel for launch in run.launches] == ["first", "second", "third"]
    assert isinstance(run.launches, Launches) and run.launches.returned == 2
    run(F, arguments(), None)
    assert len(run.launches) == 3 and run.launches.returned == 0


def test_a_launch_has_the_layout_of_the_runtime():
    record = struct.pack("@128sPP3I3IN", b"k\xff" * 64, 11, 12, 1, 2, 3, 4, 5, 6, 7)
    launch = RecordedLaunch.from_buffer_copy(record).as_launch()
    assert launch == Launch("k\ufffd" * 64, (1, 2, 3), (4, 5, 6), 7, 12, 11)
    assert ctypes.sizeof(RecordedLaunch) == len(record)
    assert recorded().as_launch() == Launch("k", (2, 3, 4), (5, 6, 7), 8, 0, 0)


def test_counts_begin_at_zero_and_those_of_a_call_are_added():
    counts = Counts()
    names = list(vars(counts))
    assert len(names) == 6 and set(vars(counts).values()) == {0}
    for _ in range(2):
        counts.add(CountsOfCall(1, 2, 3, 4, 5, 2**40))
    assert [getattr(counts, name) for name in names] == [2, 4, 6, 8, 10, 2**41]


def test_counts_of_each_call_are_added_to_those_that_were_asked_for(runtime):
    seen = []

    def body(*values):
        seen.append(runtime.count_names)
        return 0

    run = on_cpu(body)
    runtime.counted = {"sectors": 3}
    run(F, arguments(), None)
    run.counted, run.counts = ("a", "out"), Counts()
    for _ in range(2):
        run(F, arguments(), None)
    assert run.counts == Counts(sectors=6) and seen == [b"", b"a,out", b"a,out"]


def access(tensor, byte, size=4, kind=0, pc=0, block=(1, 2, 3), thread=(4, 5, 6)):
    return cuda_calls._Traced(block, thread, tensor, kind, byte, size, pc)


def test_accesses_of_threads_become_accesses_of_elements(runtime, monkeypatch):
    """An address of less than 100 is in no library, and one of less than 200 in another's."""
    libraries = {0: None, 1: ("theirs.so", 5), 2: ("ours.so", 6), 3: ("ours.so", 7)}
    lines = {"theirs.so": {5: None}, "ours.so": {6: 60, 7: 70}}
    monkeypatch.setattr(cuda_calls, "offset_in_library", lambda pc: libraries[pc // 100])

    def look_up(library, offsets, texts):
        found = [lines[library][offset] for offset in offsets]
        return [number and SourceLine("your code", number, "") for number in found]

    monkeypatch.setattr(cuda_calls, "look_up", look_up)
    seen = []

    def body(*values):
        seen.append(runtime.trace_names)
        runtime.accesses = [
            access(0, byte=4, pc=200),
            access(1, byte=0, size=8, kind=1, pc=300, block=(0, 0, 0), thread=(7, 0, 0)),
            access(1, byte=8, kind=2, pc=100),
            access(0, byte=8, pc=10),
        ]
        return 0

    run = on_cpu(body)
    run(F, arguments(), None)
    assert run.accesses == [] and seen == [b""]  # nobody has asked for them
    run.traced = ("a", "out")
    gaps = torch.zeros(3, 2)[:, 0]
    run(F, arguments(out=gaps), None)
    assert seen[1] == b"a,out" and runtime.trace_names == b""
    at, other = ((1, 2, 3), (4, 5, 6)), ((0, 0, 0), (7, 0, 0))
    assert run.accesses == [
        Access(*at, "a", (1,), "read", 60),
        Access(*other, "out", (0,), "write", 70),
        Access(*other, "out", (1,), "write", 70),  # between the elements: its place in memory
        Access(*at, "out", (1,), "atomic", None),
        Access(*at, "a", (2,), "read", None),
    ]


def test_accesses_of_single_bytes_are_of_one_element_each(runtime, monkeypatch):
    monkeypatch.setattr(cuda_calls, "offset_in_library", lambda pc: None)

    def body(*values):
        runtime.accesses = [access(0, byte=2, size=1), access(0, byte=4, size=2)]
        return 0

    run = on_cpu(body)
    run.traced = ("bytes",)
    run(K, dict(bytes=torch.zeros(3, 2, dtype=torch.uint8)), None)
    assert [each.index for each in run.accesses] == [(1, 0), (2, 0), (2, 1)]


def test_accesses_are_kept_of_a_call_that_fails_too(runtime, monkeypatch):
    monkeypatch.setattr(cuda_calls, "offset_in_library", lambda pc: None)

    def body(*values):
        runtime.accesses = [access(0, byte=0)]
        return 1

    run = on_cpu(body)
    run.traced = ("a",)
    with pytest.raises(KernelError):
        run(F, arguments(), None)
    assert [each.index for each in run.accesses] == [(0,)]


# The runtime's own functions, as C declares them


BIG = 2**40 + 3
INT, SIZE, POINTER = ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p


@pytest.mark.parametrize(
    "loader", [cuda_calls._load_runtime, cuda_calls._load_checked_runtime]
)
def test_no_number_and_no_address_is_cut_off_on_its_way(monkeypatch, loader):
    """Without a declaration, ctypes passes and returns 32 bits."""
    got = []

    def note(answer):
        return lambda *values: got.append(values) or answer

    text = ctypes.create_string_buffer(b"kind race")
    bodies = dict(  # what each returns and takes in C, and what it does here
        options=((None, INT, INT, ctypes.c_longlong), note(None)),
        report=((POINTER, INT), lambda code: ctypes.addressof(text)),
        launches=((SIZE, POINTER, SIZE), note(BIG)),
        tensor=((POINTER, ctypes.c_char_p, POINTER, SIZE, INT, INT), note(BIG)),
        traced=((SIZE, POINTER, SIZE), note(BIG)),
    )
    kept = {name: ctypes.CFUNCTYPE(*types)(body) for name, (types, body) in bodies.items()}
    undeclared = ctypes.CDLL(None)._FuncPtr
    library = SimpleNamespace(
        **{
            f"cuda_on_cpu_{name}": undeclared(ctypes.cast(function, POINTER).value)
            for name, function in kept.items()
        }
    )
    monkeypatch.setattr(ctypes, "CDLL", {"/a/runtime.so": library}.__getitem__)
    runtime = loader(Path("/a/runtime.so"))
    runtime.cuda_on_cpu_options(1, 2, BIG)
    assert runtime.cuda_on_cpu_report(719) == b"kind race"
    assert runtime.cuda_on_cpu_launches(BIG, BIG) == BIG
    assert got == [(1, 2, BIG), (BIG, BIG)]
    if loader is cuda_calls._load_checked_runtime:
        assert runtime.cuda_on_cpu_tensor(b"a", BIG, BIG, 4, 2) == BIG
        assert runtime.cuda_on_cpu_traced(BIG, BIG) == BIG
        assert got[2:] == [(b"a", BIG, BIG, 4, 2), (BIG, BIG)]


def test_an_access_has_the_layout_of_the_runtime():
    record = struct.pack("@3I3IiiNNN", 1, 2, 3, 4, 5, 6, 7, 2, 8, 9, 10)
    found = cuda_calls._Traced.from_buffer_copy(record)
    assert ctypes.sizeof(found) == len(record)
    assert (*found.block, *found.thread) == (1, 2, 3, 4, 5, 6)
    assert (found.tensor, found.kind, found.byte, found.size, found.pc) == (7, 2, 8, 9, 10)


def test_a_process_has_as_many_processors_as_it_may_use(monkeypatch):
    affinity = {0: {3, 5, 9}}  # of this process
    monkeypatch.setattr(os, "sched_getaffinity", affinity.__getitem__, raising=False)
    assert cuda_calls.processors() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    for count, processors in ((7, 7), (None, 1)):
        monkeypatch.setattr(os, "cpu_count", lambda count=count: count)
        assert cuda_calls.processors() == processors
