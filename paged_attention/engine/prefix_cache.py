"""Blocks that several requests can share, found by a hash of all tokens up to their end."""

import hashlib

import numpy as np

from paged_attention.engine.watched_blocks import WatchedBlocks


def block_hashes(tokens: list[int], block_size: int, parent: bytes = b"") -> list[bytes]:
    """Computes a hash for each full block of tokens.

    Two blocks have the same hash when all tokens up to their ends are the same.

    parent: the hash of the block before the first of these tokens; empty at the start of a
        sequence.
    Returns the hashes in order. Tokens after the last full block have none.
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
    """Keeps full blocks, and finds them by the hash of their tokens.

    The cache is one more user of each of its blocks, so a block outlives the requests that use
    it. Blocks that only the cache uses can be evicted, so the pool never has less room because
    of it.
    """

    block_hashes = staticmethod(block_hashes)

    def __init__(self, manager, enabled: bool = True):
        self.manager, self.enabled = manager, enabled
        self.begin(manager.block_manager)

    def begin(self, block_manager) -> None:
        """Begins with an empty pool.

        block_manager: lesson 01's, of which no block is in use. The manager gets it, watched.
        """
        self.manager.block_manager = self.watched = WatchedBlocks(block_manager)
        self.blocks: dict[bytes, int] = {}
        self.digests: dict[int, bytes] = {}  # of each block
        self.promised: set[int] = set()  # blocks that the step being scheduled will fill

    def match(self, request) -> list[int]:
        """Finds the blocks that hold the request's first tokens, as many as there are."""
        self._hash_up_to(request, len(request.tokens))
        found = []
        for digest in request.hashes:
            if digest not in self.blocks:
                break
            found.append(self.blocks[digest])
        is_whole = len(found) * self.manager.block_size == len(request.tokens)
        if found and is_whole and found[-1] in self.promised:
            # The last token is always computed. It would go into a copy of this block, and
            # there is nothing to copy yet.
            found.pop()
        self._touch(request.hashes[: len(found)])
        return found

    def promise(self, request, num_tokens: int) -> None:
        """As insert, for tokens that the step being scheduled will compute."""
        self.promised.update(self.insert(request, num_tokens))

    def insert(self, request, num_tokens: int) -> list[int]:
        """Lets others find the full blocks of the request's first num_tokens tokens.

        Returns the request's blocks that are full now and were not before.
        """
        if not self.enabled or num_tokens // self.manager.block_size == request.num_inserted:
            return []
        self._hash_up_to(request, num_tokens)
        num_full = num_tokens // self.manager.block_size
        block_ids, first = self.manager.blocks_of(request.id), request.num_inserted
        for index in range(first, num_full):
            digest, block_id = request.hashes[index], block_ids[index]
            if digest not in self.blocks:
                self.watched.keep(block_id)
                self.blocks[digest], self.digests[block_id] = block_id, digest
        self._touch(request.hashes[:num_full])
        request.num_inserted = num_full
        return block_ids[first:num_full]

    def num_evictable(self) -> int:
        """Counts the blocks that only the cache uses."""
        return len(self.watched.unused)

    def evict(self) -> bool:
        """Frees the least recently used of the blocks that only the cache uses.

        Returns False if there is none.
        """
        block_id = self.watched.least_recently_used()
        if block_id is not None:
            self._let_go(self.digests[block_id])
        return block_id is not None

    def forget(self, request) -> None:
        """Stops offering the blocks of the request's tokens.

        Requests that use them already keep them.
        """
        for digest in request.hashes:
            if digest in self.blocks:
                self._let_go(digest)

    def clear(self) -> None:
        """Forgets every block. Those that only the cache used are free again."""
        for digest in list(self.blocks):
            self._let_go(digest)

    def _let_go(self, digest: bytes) -> None:
        block_id = self.blocks.pop(digest)
        del self.digests[block_id]
        self.watched.let_go(block_id)

    def _hash_up_to(self, request, num_tokens: int) -> None:
        if self.enabled:
            start = len(request.hashes) * self.manager.block_size
            parent = request.hashes[-1] if request.hashes else b""
            request.hashes += self.block_hashes(
                request.tokens[start:num_tokens], self.manager.block_size, parent
            )

    def _touch(self, digests: list[bytes]) -> None:
        """Marks blocks as just used.

        A block is worth nothing without those before it. So the first block is marked last.
        """
        for digest in reversed(digests):
            # A request may have its own copy of a block. The cache's can then be evicted.
            if digest in self.blocks:
                self.watched.touch(self.blocks[digest])
