"""The block manager of lesson 01: the C++ one from `kernels/`, and the same in plain Python.

Checks and tests take the Python one as the reference. Lesson 01 compares their speed.
"""

from types import ModuleType

from lessons_lib.cuda.inline import build_cpp, read_kernel
from paged_attention.validate import as_integer


class PoolSizeError(ValueError):
    """The pool would have no blocks."""


class OutOfBlocksError(MemoryError):
    """Every block is in use."""


class BlockIndexError(IndexError):
    """The pool has no block with that id."""


class DoubleFreeError(RuntimeError):
    """The block to free is free already."""


class BlockNotAllocatedError(RuntimeError):
    """The block to share is free."""


class PythonBlockManager:
    """Hands out block ids 0 … num_blocks - 1 and counts how many sequences use each.

    It has the methods and errors of the C++ `BlockManager`. It is not thread-safe.
    """

    def __init__(self, num_blocks: int):
        # BEGIN SOLUTION 1.2
        num_blocks = as_integer("num_blocks", num_blocks)
        if num_blocks <= 0:
            raise PoolSizeError(f"num_blocks must be positive, not {num_blocks}")
        self.free_blocks = list(range(num_blocks))[::-1]
        self.ref_counts = [0] * num_blocks

    def allocate(self) -> int:
        """Takes the block that was freed last. Raises OutOfBlocksError when none is free."""
        if not self.free_blocks:
            raise OutOfBlocksError(
                "no block is free: "
                f"{len(self.ref_counts)} of {len(self.ref_counts)} are in use"
            )
        block_id = self.free_blocks.pop()
        self.ref_counts[block_id] = 1
        return block_id

    def increase_ref_count(self, block_id: int) -> None:
        """Counts one more user of the block. Raises BlockNotAllocatedError when it is free."""
        block_id = self.check_index(block_id)
        if self.ref_counts[block_id] == 0:
            raise BlockNotAllocatedError(f"block {block_id} is free, so it cannot be shared")
        self.ref_counts[block_id] += 1

    def free(self, block_id: int) -> None:
        """Counts one user less. A block without users is free again.

        Raises DoubleFreeError when the block is free already.
        """
        block_id = self.check_index(block_id)
        if self.ref_counts[block_id] == 0:
            raise DoubleFreeError(f"block {block_id} is already free")
        self.ref_counts[block_id] -= 1
        if self.ref_counts[block_id] == 0:
            self.free_blocks.append(block_id)

    def get_ref_count(self, block_id: int) -> int:
        """How many sequences use the block; 0 for a free one."""
        return self.ref_counts[self.check_index(block_id)]

    def get_num_free_blocks(self) -> int:
        return len(self.free_blocks)

    def check_index(self, block_id: int) -> int:
        block_id = as_integer("block_id", block_id)
        if not 0 <= block_id < len(self.ref_counts):
            raise BlockIndexError(f"there is no block {block_id}")
        return block_id
        # END SOLUTION


def block_manager_sources() -> tuple[str, ...]:
    """Returns the C++ texts of the finished block manager, in `build_cpp`'s order."""
    files = ("block_errors.h", "free_list.h", "block_manager.h", "block_manager_binding.cpp")
    return tuple(read_kernel(file) for file in files)


def build_block_manager() -> ModuleType:
    """Builds the C++ block manager: a module with `BlockManager` and its exceptions."""
    return build_cpp(*block_manager_sources(), name="block_manager")
