"""A recorded step computes anew, from what its tensors hold when it is replayed."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from paged_attention.engine.fast.graph import (
    GraphError,
    Recorder,
    StartCounter,
    capture,
    launch,
)

# The second GPU is not the current one, and steps were recorded on the first one before.
NUM_GPUS = torch.cuda.device_count()
DEVICES = [torch.device("cpu")] + [torch.device("cuda", n) for n in range(min(2, NUM_GPUS))]
devices = pytest.mark.parametrize("device", DEVICES, ids=str)


@pytest.fixture(autouse=True)
def inference():
    with torch.inference_mode():
        yield


@devices
def test_a_tensor_in_its_place_does_not(device):
    """The graph goes on to read the tensor that it was recorded with."""
    state = {"x": torch.zeros(2, device=device)}
    graph = capture(lambda: state["x"] + 1, device)
    state["x"] = torch.full((2,), 7.0, device=device)
    assert graph.replay().tolist() == [1.0, 1.0]


@devices
def test_steps_that_write_go_on_from_what_they_wrote(device):
    count, rows = torch.zeros(1, device=device), torch.zeros(3, 2, device=device)
    at = torch.tensor([1], device=device)

    def step():
        count.add_(1)
        rows[1:].index_copy_(0, at, count.expand(1, 2) * 10)

    graph = capture(step, device)
    before = count.item()  # recording may run the step
    graph.replay()
    graph.replay()
    assert count.item() == before + 2 and rows[2, 0] == 10 * (before + 2)


@devices
def test_a_kernel_is_called_again(device):
    x, calls = torch.zeros(2, device=device), []

    def kernel(to, by):
        calls.append(by)
        to.add_(by)

    graph = capture(lambda: launch(kernel, x, by=3), device)
    recorded = len(calls)
    before = x.clone()
    graph.replay()
    assert torch.equal(x, before + 3)
    assert len(calls) == recorded + (device.type == "cpu")  # a GPU repeats what it did


@devices
@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.sum().item(),
        lambda x: bool(x[0] > 0),
        float,
        lambda x: x.tolist()[0],
        lambda x: x.clone()[: x.long()].sum(),
        lambda x: filled(x, slice(x.long(), None)),
        lambda x: filled(x, x[0].long()),
        lambda x: x.cpu().numpy()[0],
        lambda x: x.cpu(),
        lambda x: x.to("cpu"),
        lambda x: len(repr(x)),
        lambda x: len(f"{x}"),
        lambda x: x[x > 0].sum(),
        lambda x: x.clone().__setitem__(x >= 0, x) or 0,
        lambda x: x.clone().__setitem__(x >= 0, x[0]) or 0,
        lambda x: torch.nn.functional.one_hot(x.long()).sum(),
        lambda x: torch.nn.functional.one_hot(x.long(), 0),  # refused elsewhere, too
        lambda x: x.nonzero().sum(),
        lambda x: torch.where(x > 0)[0].sum(),
        lambda x: torch.equal(x, x * 2),
        lambda x: x.repeat_interleave(x.long()).sum(),
        lambda x: filled(x[None], x >= 0, x.long()),  # by a mask and numbers
    ],
)
def test_a_step_that_reads_on_the_host_is_refused(device, read):
    x = torch.zeros(1, device=device)
    with pytest.raises(GraphError, match="cannot"):
        capture(lambda: x + read(x), device)
    graph = capture(lambda: x + 1, device)  # and the next one can be recorded
    x.fill_(4)
    assert graph.replay() == 5


@devices
def test_an_error_of_pytorch_says_in_its_first_line_why_a_step_is_not_recorded(device):
    def step():
        raise RuntimeError("\noperation not permitted\nCompile with TORCH_USE_CUDA_DSA")

    with pytest.raises(GraphError) as raised:
        capture(step, device)
    assert str(raised.value) == "the step cannot be recorded: operation not permitted"
    with pytest.raises(ZeroDivisionError):
        capture(lambda: 1 // 0, device)  # another error is the step's own


@pytest.mark.parametrize("read", [np.asarray, np.from_dlpack])
def test_what_numpy_takes_is_read_on_the_host(read):
    x = torch.zeros(1)
    with pytest.raises(GraphError, match="cannot"):
        capture(lambda: torch.from_numpy(read(x)) + 1, x.device)


def filled(x, *index):
    x = x.clone()
    x[index] = 7
    return x


@devices
@pytest.mark.parametrize(
    "step",
    [
        lambda x: filled(x, x > 2),
        lambda x: filled(x, slice(None), x[0] > 2),
        lambda x: filled(x, x.sum(1) > 5),
        lambda x: torch.nn.functional.one_hot(x.long(), 6),
        lambda x: torch.nn.functional.one_hot(x.long(), num_classes=6),
        lambda x: torch.vmap(lambda row, number: (row < number).sum())(x, x[:, 1]),
        lambda x: torch.nn.functional.one_hot((x > 9).long(), 1),
        lambda x: x.to(x.device).gather(1, x.argmax(1, keepdim=True)),
        lambda x: x.sum(0, dtype=torch.float64),
        # views and copies
        lambda x: x.view(3, 2).transpose(0, 1).reshape(6) + 0,
        lambda x: x.to(torch.float64).to(torch.float32) + 0,
        lambda x: x.contiguous()[None][0] + 0,
        lambda x: torch.cat(x.split(1)),
        lambda x: x.sort(descending=True)[0],
        lambda x: torch.stack(x.chunk(2)).unbind()[1].repeat(2, 1),
    ],
)
def test_what_a_gpu_does_without_the_host_is_done_again_with_new_numbers(device, step):
    x = torch.zeros(2, 3, device=device)
    graph = capture(lambda: step(x), device)
    x.copy_(torch.tensor([[1.0, 3.0, 2.0], [5.0, 0.0, 3.0]]))
    found, expected = graph.replay(), step(x)
    assert torch.equal(found, expected) and found.dtype == expected.dtype
    assert graph.replay() is found


@pytest.mark.gpu
def test_garbage_with_an_older_graph_does_not_break_a_recording():
    """Python collects garbage after some hundred new lists. It would free the graph then."""
    device = torch.device("cuda")
    x, wheel = torch.zeros(2, device=device), []
    wheel += [wheel, capture(lambda: x + 1, device)]
    del wheel
    graph = capture(lambda: x + len([[] for _ in range(10**5)]), device, warm_up=False)
    assert graph.replay().tolist() == [10**5, 10**5]
    # A recording that breaks leaves PyTorch's random numbers on the device unusable.
    assert torch.rand(2, device=device).isfinite().all()


@devices
def test_to_another_device_than_the_host_is_no_reading(device):
    x = torch.zeros(2, device=device)
    assert capture(lambda: x.to("meta"), device).result.device.type == "meta"


def test_a_recorder_that_cannot_see_what_fills_a_mask_refuses():
    """`x[mask] = y` has to know how many numbers of y are taken; `x[mask] = 7` does not. For
    both, this is what PyTorch 2.11 to 2.13 call; later ones fill in another way.
    """
    x = torch.zeros(2)
    with Recorder(), pytest.raises(GraphError):
        torch.ops.aten.index_put_(x, [x > 1], torch.tensor(7.0))


def test_a_step_may_be_recorded_while_starts_are_counted():
    x = torch.zeros(2, 3)
    with StartCounter():
        graph = capture(lambda: filled(x, x > 2), x.device)
    x[1] = 4
    assert torch.equal(graph.replay(), filled(x, x > 2))


@pytest.mark.slow
def test_recording_does_not_import_the_compiler():
    program = (
        "import sys, torch\n"
        "from paged_attention.engine.fast.graph import capture\n"
        "x = torch.zeros(2)\n"
        "capture(lambda: x + 1, x.device)\n"
        "print('torch._dynamo' in sys.modules)"
    )
    run = [sys.executable, "-c", program]
    assert subprocess.run(run, text=True, capture_output=True).stdout == "False\n"


def test_what_the_host_starts_is_counted():
    x, out = torch.arange(6.0), torch.zeros(6)
    graph = capture(lambda: out.copy_(x * 2 + 1), x.device)
    with StartCounter() as counter:
        x.add_(1)  # 1
        x.view(2, 3).sum()  # 1: a view starts nothing
        for part in x.split(2):  # nor do several
            assert part.max().item() > 0  # 3
        launch(lambda: out.zero_())  # 1, whatever a kernel does inside
        graph.replay()  # 1
        torch.empty(3)
    assert counter.count == 7 and out.tolist() == [3, 5, 7, 9, 11, 13]
    x.add_(1)
    assert counter.count == 7


@devices
def test_the_parts_of_a_tensor_are_views(device):
    """What is written into one of them is there when the step is replayed."""
    x, out = torch.zeros(4, device=device), torch.zeros(2, device=device)

    def step():
        first, second = x.split(2)
        first.add_(second)
        out.copy_(first)

    graph = capture(step, device)
    x.copy_(torch.tensor([1.0, 2.0, 10.0, 20.0]))
    graph.replay()
    assert out.tolist() == [11.0, 22.0] and x.tolist() == [11.0, 22.0, 10.0, 20.0]
