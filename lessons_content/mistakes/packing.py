"""The file of an exercise's records, in which what results have in common is stored once.

It is an xz stream. Its first line is JSON, and has the number of bytes of each case. These
bytes are the case's different results:

    a line of JSON: the number of each result's text.
    the texts, one a line: encoded results, in which tensors have the length of their data in
        place of the data.
    for each tensor of each text, over all results with that text: for each of its elements
        the first result that has the same bits there, then the bits that no result before
        has. A float's exponent is one of their bytes. All first bytes come first.
"""

import base64
import io
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np

_TENSORS = ("tensor", "numpy")  # [kind, dtype, shape, data]


def write(head: dict, cases: Iterable[list]) -> bytes:
    """A file's bytes. cases: the different encoded results of each case."""
    import lzma

    packed = [_packed(results) for results in cases]
    line = json.dumps({**head, "lengths": [*map(len, packed)]})
    data = b"".join([line.encode(), b"\n", *packed])
    return lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)


def read(file: bytes) -> tuple[dict, list[bytes]]:
    """(head, bytes of each case).

    Raises ValueError, EOFError or KeyError if it is none.
    Raises ImportError for a Python that was built without xz.
    """
    import lzma

    try:
        stream = io.BytesIO(lzma.decompress(file))
    except lzma.LZMAError as error:
        raise ValueError(f"{error}") from None
    head = json.loads(stream.readline())
    return head, [*map(stream.read, head.pop("lengths"))]


def unpacked(packed: bytes) -> list[tuple[str, tuple[np.ndarray, ...]]]:
    """(text, the bits of each of its tensors) of each result of a case."""
    stream = io.BytesIO(packed)
    numbers = json.loads(stream.readline())
    texts = [stream.readline().decode() for _ in {*numbers}]
    rows: list[Iterator[tuple]] = []
    for number, text in enumerate(texts):
        may_have_some = any(f'"{kind}"' in text for kind in _TENSORS)  # reading it takes long
        parts = _tensors(json.loads(text)) if may_have_some else ()
        tensors = [_read(stream, part, numbers.count(number)) for part in parts]
        rows.append(zip(*tensors, strict=True) if tensors else itertools.repeat(()))
    return [(texts[number], next(rows[number])) for number in numbers]


def encoded(text: str, bits: tuple[np.ndarray, ...]):
    """A result of `unpacked`, encoded."""
    result = json.loads(text)
    data = (base64.b64encode(row.tobytes()).decode() for row in bits)
    return _with_data(result, data) if bits else result


def _packed(results: list) -> bytes:
    texts: list[str] = []
    rows: dict[str, list] = {}  # by text: the data of all tensors in each of its results
    for result in results:
        data = [base64.b64decode(part[3]) for part in _tensors(result)]
        texts.append(json.dumps(_with_data(result, map(len, data))))
        rows.setdefault(texts[-1], []).append(data)
    numbers = {text: number for number, text in enumerate(rows)}
    lines = [json.dumps([numbers[text] for text in texts]), *numbers, ""]
    packed = ["\n".join(lines).encode()]
    for text, its_rows in rows.items():
        packed += map(_written, _tensors(json.loads(text)), zip(*its_rows, strict=True))
    return b"".join(packed)


def changed(encoded, change: Callable[[list], list | None]):
    """An encoded result with other lists in it. A list of which `change` gives None stays."""
    if isinstance(encoded, dict):
        return {name: changed(part, change) for name, part in encoded.items()}
    if not isinstance(encoded, list):
        return encoded
    other = change(encoded)
    return [changed(part, change) for part in encoded] if other is None else other


def _tensors(encoded) -> list[list]:
    """The tensors and arrays in an encoded result, unless they are empty."""
    found: list[list] = []
    changed(encoded, lambda part: found.append(part) if _has_data(part) else None)
    return found


def _with_data(encoded, data: Iterable):
    its = iter(data)
    return changed(encoded, lambda part: [*part[:3], next(its)] if _has_data(part) else None)


def _has_data(part: list) -> bool:
    return len(part) == 4 and part[0] in _TENSORS and bool(part[3])


def _dtype(part: list) -> np.dtype:
    """Of an element's bits. A complex number is two elements."""
    return np.dtype(f"<u{min(8, part[3] // math.prod(part[2]))}")


def _written(part: list, rows: tuple[bytes, ...]) -> bytes:
    bits = np.frombuffer(b"".join(rows), _dtype(part)).reshape(len(rows), -1)
    first = np.array([(bits[: n + 1] == row).argmax(0) for n, row in enumerate(bits)])
    new = bits[first == np.arange(len(rows))[:, None]]
    new = new << 1 | new >> 8 * new.itemsize - 1  # the sign is the last bit now
    in_bytes = np.frombuffer(new.tobytes(), np.uint8).reshape(len(new), -1)
    return first.astype(np.min_scalar_type(len(rows))).tobytes() + in_bytes.T.tobytes()


def _read(stream: io.BytesIO, part: list, count: int) -> np.ndarray:
    """A tensor's bits in each of `count` results."""
    dtype, number = _dtype(part), np.min_scalar_type(count)
    shape = count, part[3] // dtype.itemsize
    first = np.frombuffer(stream.read(math.prod(shape) * number.itemsize), number)
    first = first.reshape(shape).astype(np.intp)
    is_new = first == np.arange(count)[:, None]
    in_bytes = np.frombuffer(stream.read(is_new.sum() * dtype.itemsize), np.uint8)
    new = np.frombuffer(in_bytes.reshape(dtype.itemsize, -1).T.tobytes(), dtype)
    bits = np.zeros(shape, dtype)
    bits[is_new] = new >> 1 | new << 8 * dtype.itemsize - 1
    return np.take_along_axis(bits, first, 0)
