"""Calls of kernels that tests make here, kept so that another processor can make them too.

A plugin of pytest (`-p recorded_calls`). The folder CALLS gets a file for each function of
each text: its first call, with all tensors before and after.
"""

import ctypes
import os
import pickle
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import torch

from lessons_lib.cuda.arguments import span_bytes, to_c
from lessons_lib.cuda.calls import CallOnCpu


@dataclass(frozen=True)
class Memory:
    """A tensor's bytes, from its first element to its last."""

    content: bytes
    dtype: torch.dtype


@dataclass(frozen=True)
class Call:
    """A call as C sees it.

    arguments: for each a number, an address, or a struct as (its bytes, offset to address).
    before, after: the memory of the tensors, by address.
    """

    texts: dict[str, str]
    function: str
    arguments: list
    before: dict[int, Memory]
    after: dict[int, Memory]


def memory_of(values: dict) -> dict[int, Memory]:
    found: dict[int, Memory] = {}
    for tensor in (value for value in values.values() if isinstance(value, torch.Tensor)):
        address, size = tensor.data_ptr(), span_bytes(tensor)
        if address not in found or size > len(found[address].content):
            content = ctypes.string_at(address, size) if size else b""
            found[address] = Memory(content, tensor.dtype)
    return found


def as_c(value) -> object:
    """A ctypes value as plain data."""
    if not isinstance(value, ctypes.Structure):
        return value.value if isinstance(value, ctypes._SimpleCData) else value
    pointers = {
        getattr(type(value), name).offset: getattr(value, name)
        for name, kind in value._fields_
        if kind is ctypes.c_void_p
    }
    return bytes(value), pointers


def pytest_sessionstart(session):
    session.recorded = kept = {}
    original = CallOnCpu.__call__

    def call(self, function, values, device):
        key = function.name, *self.texts.values()
        if key in kept:
            return original(self, function, values, device)
        before = memory_of(values)
        addresses = {
            name: value.data_ptr() if isinstance(value, torch.Tensor) else value
            for name, value in values.items()
        }
        arguments = [as_c(value) for value in to_c(function, addresses, 0)]
        original(self, function, values, device)
        kept[key] = Call(self.texts, function.name, arguments, before, memory_of(values))

    session.patch = mock.patch.object(CallOnCpu, "__call__", call)
    session.patch.start()


def pytest_sessionfinish(session):
    session.patch.stop()
    for number, call in enumerate(session.recorded.values()):
        Path(os.environ["CALLS"], f"{number}.pickle").write_bytes(pickle.dumps(call))
