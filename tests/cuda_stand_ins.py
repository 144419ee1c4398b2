"""Stand-ins for a compiled CUDA library and for the runtime that watches it."""

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


class Runtime:
    """The runtime of checked mode. It keeps what it is told; a test sets its answers."""

    def __init__(self):
        self.error, self.report, self.unwritten = 0, b"", False
        self.settings = self.failing = self.finished = None
        self.trace_names = self.count_names = None
        self.tensors, self.released, self.launched, self.accesses = {}, [], [], []
        self.room, self.counted = True, {}

    def cuda_on_cpu_clear(self):
        self.error, self.report, self.finished = 0, b"", False
        self.tensors, self.launched, self.accesses = {}, [], []

    def cuda_on_cpu_options(self, *settings):
        self.settings = settings

    def cuda_on_cpu_begin_call(self, failing):
        self.failing = failing

    def cuda_on_cpu_trace(self, names):
        self.trace_names = names

    def cuda_on_cpu_count(self, names):
        self.count_names = names

    def cuda_on_cpu_tensor(self, name, address, size, element_size, kind):
        self.tensors[name.decode()] = address, size, element_size, kind
        return address if self.room else None

    def cuda_on_cpu_finish(self):
        self.finished = True
        if self.unwritten:
            self.error, self.report = 719, b"kind no element was written"

    def cuda_on_cpu_last_error(self):
        return self.error

    def cuda_on_cpu_report(self, code):
        assert code, "it is asked only about an error"
        return self.report

    def cuda_on_cpu_release(self, copy_back):
        self.released.append(copy_back)

    def cuda_on_cpu_launches(self, records, count):
        return copy(self.launched, records, count)

    def cuda_on_cpu_traced(self, records, count):
        return copy(self.accesses, records, count)

    def cuda_on_cpu_counted(self, counts):
        for name, value in self.counted.items():
            setattr(counts._obj, name, value)


def copy(those, records, count):
    """Writes the first `count` of them, and returns how many there are in all."""
    for place, each in enumerate(those[:count]):
        records[place] = each
    return len(those)
