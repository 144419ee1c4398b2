"""Numbers on their way between host and device, without waiting."""

import torch
from torch import Tensor


def send(numbers, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Returns a tensor on the device. The host does not wait until it is there.

    A copy from memory that the operating system may move has to be finished before the host
    goes on, and it begins after all work that the device has still to do. From pinned memory
    the device copies by itself.
    """
    if device.type != "cuda":
        return torch.as_tensor(numbers, dtype=dtype, device=device).clone()
    pinned = torch.as_tensor(numbers, dtype=dtype).pin_memory()
    return pinned.to(device, non_blocking=True)


def send_into(tensor: Tensor, numbers) -> None:
    """Does the same into a tensor that is there already."""
    numbers = torch.as_tensor(numbers, dtype=tensor.dtype)
    tensor.copy_(numbers.pin_memory() if tensor.is_cuda else numbers, non_blocking=True)


class Arriving:
    """A tensor on its way to the host."""

    def __init__(self, tensor: Tensor):
        self.arrived = None
        if tensor.device.type == "cuda":
            self.tensor = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self.tensor.copy_(tensor, non_blocking=True)
            self.arrived = torch.cuda.Event()
            # of the tensor's GPU, which need not be the current one
            self.arrived.record(torch.cuda.current_stream(tensor.device))
        else:
            self.tensor = tensor.clone()

    def wait(self) -> Tensor:
        """Waits until it is there. The device goes on with what came after it."""
        if self.arrived is not None:
            self.arrived.synchronize()
        return self.tensor
