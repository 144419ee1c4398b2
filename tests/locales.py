"""The C locale, in which a file without a named encoding is read as ASCII."""

import contextlib
import locale


@contextlib.contextmanager
def c_locale():
    before = locale.setlocale(locale.LC_CTYPE)
    locale.setlocale(locale.LC_CTYPE, "C")
    try:
        yield
    finally:
        locale.setlocale(locale.LC_CTYPE, before)
