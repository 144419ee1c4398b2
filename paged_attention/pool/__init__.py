"""The pool of blocks: who holds which, where a token is in them, and sequences over it."""
