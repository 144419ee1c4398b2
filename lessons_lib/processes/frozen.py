"""The last import of the forkserver (isolation.py).

All objects that exist by now outlive every run. So the garbage collection of a run need not
look at them.
"""

import gc

gc.freeze()
