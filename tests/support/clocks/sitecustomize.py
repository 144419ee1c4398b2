"""A clock that is off. Python imports this at its start where this folder is on its path.

The file that CLOCK names holds by how many seconds; without the file the clock is right.
`time.monotonic` is no clock that is set.
"""

import os
import time
from contextlib import suppress

_ahead = 0.0
with suppress(OSError), open(os.environ.get("CLOCK", "")) as _file:
    _ahead = float(_file.read())
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + _ahead
time.time_ns = lambda: _time_ns() + int(_ahead * 10**9)
