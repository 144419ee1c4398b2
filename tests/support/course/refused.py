"""A call that is refused, and with which words."""

import pytest


def refused(error, words, call, *arguments, **more):
    with pytest.raises(error, match=words):
        call(*arguments, **more)
