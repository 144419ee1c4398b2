"""Blocks that several requests can share, found by a hash of all tokens up to their end."""

import hashlib
from collections import OrderedDict

import numpy as np


def block_hashes(tokens: list[int], block_size: int, parent: bytes = b"") -> list[bytes]:
    """A hash for each full block of tokens; two blocks have the same one when all tokens up to their ends are the same.

    parent: the hash of the block before the first of these tokens; empty at the start of a sequence.
    """
    # BEGIN SOLUTION 8.5
    hashes = []
    for end in range(block_size, len(tokens) + 1, block_size):
        own = np.array(tokens[end - block_size : end], dtype=np.int64).tobytes()
        parent = hashlib.sha256(parent + own).digest()
        hashes.append(parent)
    return hashes
    # END SOLUTION


class PrefixCache:
    """Full blocks by the hash of their tokens. The cache is one more user of each of its blocks, so they outlive a request.

    What only the cache uses can be evicted: the pool is never emptier for it.
    """

    block_hashes = staticmethod(block_hashes)

    def __init__(self, manager, enabled: bool = True):
        self.manager, self.enabled = manager, enabled
        self.blocks: OrderedDict[bytes, int] = OrderedDict()  # the least recently used first

    def match(self, request) -> list[int]:
        """The blocks that hold the first full blocks of the request's tokens, as many as there are."""
        self._hash_up_to(request, len(request.tokens))
        found = []
        for digest in request.hashes:
            if digest not in self.blocks:
                break
            found.append(self.blocks[digest])
        self._touch(request.hashes[: len(found)])
        return found

    def insert(self, request, num_tokens: int) -> None:
        """Makes the blocks of the request's first num_tokens tokens, the full ones, known to others."""
        if not self.enabled or num_tokens // self.manager.block_size == request.num_inserted:
            return
        self._hash_up_to(request, num_tokens)
        num_full = num_tokens // self.manager.block_size
        block_ids = self.manager.blocks_of(request.id)
        for index in range(request.num_inserted, num_full):
            if request.hashes[index] not in self.blocks:
                self.manager.block_manager.increase_ref_count(block_ids[index])
                self.blocks[request.hashes[index]] = block_ids[index]
        self._touch(request.hashes[:num_full])
        request.num_inserted = num_full

    def num_evictable(self) -> int:
        """How many blocks nobody else uses."""
        return sum(self.manager.block_manager.get_ref_count(block_id) == 1 for block_id in self.blocks.values())

    def evict(self) -> bool:
        """Frees the least recently used block that nobody else uses. False where there is none."""
        for digest, block_id in self.blocks.items():
            if self.manager.block_manager.get_ref_count(block_id) == 1:
                self.manager.block_manager.free(self.blocks.pop(digest))
                return True
        return False

    def forget(self, request) -> None:
        """Offers nobody the blocks of the request's tokens any more. Those who use them already go on using them."""
        for digest in request.hashes:
            if digest in self.blocks:
                self.manager.block_manager.free(self.blocks.pop(digest))

    def clear(self) -> None:
        """Forgets every block; those that nobody else uses are free again."""
        for block_id in self.blocks.values():
            self.manager.block_manager.free(block_id)
        self.blocks.clear()

    def _hash_up_to(self, request, num_tokens: int) -> None:
        if self.enabled:
            start = len(request.hashes) * self.manager.block_size
            parent = request.hashes[-1] if request.hashes else b""
            request.hashes += self.block_hashes(request.tokens[start:num_tokens], self.manager.block_size, parent)

    def _touch(self, digests: list[bytes]) -> None:
        """Used just now; a block is worth nothing without those before it, so the first goes last to the end."""
        for digest in reversed(digests):
            if digest in self.blocks:  # a request with a copy of its own does not keep the cache's block from being evicted
                self.blocks.move_to_end(digest)
