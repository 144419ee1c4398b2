"""What a kernel of the course knows from its start: errors of beginners are explained, and a
learner's own queue.py beside the notebook comes after Python's.

JupyterLab starts the kernels with it if `lessons_lib.start.jupyterlab` has started it. After a
restart, no cell has run that could import anything of the course.
"""

import sys

from lessons_lib.guide import KINDS


def load_ipython_extension(shell) -> None:
    """Called by IPython. Quick: hardly anything of the course is imported before the need."""
    # The kernel starts with -P, so IPython leaves out the folder of the notebook.
    sys.path[:] = [*filter(None, sys.path), ""]
    shell.set_custom_exc(KINDS, _show)


def _show(shell, kind, error, traceback, tb_offset=None) -> None:
    shell.showtraceback((kind, error, traceback), tb_offset=tb_offset)
    from lessons_lib.guide import error_cards, restart

    error_cards.explain(shell, error, restart.lesson_of_this_kernel())
