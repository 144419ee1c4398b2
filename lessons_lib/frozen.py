"""The last that the forkserver imports (isolation.py): what is there by now outlives every run, so no run's garbage
collection need look at it."""

import gc

gc.freeze()
