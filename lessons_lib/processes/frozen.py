"""The last import of the forkserver (isolation.py).

What exists by now outlives every run, so the garbage collection of a run need not look at it.
"""

import gc

gc.freeze()
