"""A GPU that is not here: a machine that has one, or has one but no compiler for it."""

import torch


def pretend_card(monkeypatch, capability: tuple[int, int] | None) -> None:
    """The machine has this card. None: it cannot compile for its card."""

    def choose_target(target):
        if capability is None:
            raise RuntimeError("nvcc is not installed")
        return "gpu"

    monkeypatch.setattr("paged_attention.ladder.rungs.choose_target", choose_target)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "an old card")


def pretend_gpus(monkeypatch, count: int) -> None:
    """PyTorch sees this many."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
