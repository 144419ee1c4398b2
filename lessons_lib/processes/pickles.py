"""Functions and classes of a notebook as bytes, for another process or a file."""

import io
import types

import cloudpickle

_FILE_NAME = 10  # the place of the file's name among the arguments of code's constructor


class Pickler(cloudpickle.Pickler):
    """Keeps the name of the file that code is from, so that an error can quote its line.

    cloudpickle 3.1.3 writes the same name for all code, and earlier versions write the code's
    own name. `pickle.loads` reads both.
    """

    def reducer_override(self, value):
        if not isinstance(value, types.CodeType):
            return super().reducer_override(value)
        make, parts = self.dispatch_table[types.CodeType](value)
        return make, (*parts[:_FILE_NAME], value.co_filename, *parts[_FILE_NAME + 1 :])


def dumps(value: object) -> bytes:
    """`value` as bytes that `pickle.loads` reads.

    Functions and classes of a notebook are whole.
    """
    file = io.BytesIO()
    Pickler(file).dump(value)
    return file.getvalue()
