"""A stand-in for a compiled CUDA library."""

import ctypes


class Library:
    """A compiled library. It notes what its functions get, as C sees it."""

    def __init__(self, body=lambda *values: 0):
        self.body, self.got = body, []

    def __getitem__(self, name):
        return Compiled(self, name)


class Compiled:
    """A function of a library. It takes only values of its declared types."""

    argtypes = None

    def __init__(self, library, name):
        self.library, self.name = library, name

    def __call__(self, *arguments):
        values = [
            in_c(kind, argument)
            for kind, argument in zip(self.argtypes, arguments, strict=True)
        ]
        self.library.got.append((self.name, *values))
        return self.library.body(*values)


def in_c(kind, argument):
    value = argument if isinstance(argument, kind) else kind(argument)
    if isinstance(value, ctypes.Structure):
        return {name: getattr(value, name) for name, _ in value._fields_}
    return value.value
