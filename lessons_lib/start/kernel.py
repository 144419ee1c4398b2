"""Loaded when a kernel of the course starts. It explains beginners' errors, and makes Python's
own queue.py come before a learner's queue.py beside the notebook.

Kernels load it if `lessons_lib.start.jupyterlab` has started JupyterLab. It has to be loaded
at the start, because no cell has run after a restart that could import anything of the course.
"""

import sys

from lessons_lib.guide import KINDS


def load_ipython_extension(shell) -> None:
    """Called by IPython. It is quick: it imports hardly anything of the course."""
    # The kernel starts with -P, so IPython leaves out the folder of the notebook.
    sys.path[:] = [*filter(None, sys.path), ""]
    shell.set_custom_exc(KINDS, _show)


def _show(shell, kind, error, traceback, tb_offset=None) -> None:
    shell.showtraceback((kind, error, traceback), tb_offset=tb_offset)
    from lessons_lib.guide import error_cards, restart

    error_cards.explain(shell, error, restart.lesson_of_this_kernel())
