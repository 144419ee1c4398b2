"""A fixture for tests of texts whose encoding must not depend on the machine."""

import locale
import sys

import pytest


@pytest.fixture
def plain_locale():
    """The locale "C", under which a file that is opened without an encoding is ASCII."""
    if sys.flags.utf8_mode:
        pytest.skip("Python takes UTF-8 for every file here")
    before = locale.setlocale(locale.LC_CTYPE)
    locale.setlocale(locale.LC_CTYPE, "C")
    yield
    locale.setlocale(locale.LC_CTYPE, before)
