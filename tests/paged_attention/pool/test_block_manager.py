"""The C++ block manager of kernels/, against its specification and against the Python one,
call by call.
"""

import pytest
from hypothesis import Phase, settings, strategies
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from paged_attention.block_manager import (
    DoubleFreeError,
    PythonBlockManager,
    build_block_manager,
)

module = build_block_manager()
NUM_BLOCKS = 5
block_ids = strategies.integers(-1, NUM_BLOCKS)


def outcome(call, *arguments):
    """What a call does: its result, or its error's name and text."""
    try:
        return call(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def pool_text(ref_counts: list[int]) -> str:
    """The pool in one line of text: `[0 ×2] [1 free]`."""
    return " ".join(
        f"[{block_id} {f'×{count}' if count else 'free'}]"
        for block_id, count in enumerate(ref_counts)
    )


class AgainstTheModel(RuleBasedStateMachine):
    """Any sequence of calls gives the same results and errors as the Python manager, and no
    block is lost.
    """

    manager_type = module.BlockManager

    @initialize()
    def start(self):
        self.manager, self.model = (
            self.manager_type(NUM_BLOCKS),
            PythonBlockManager(NUM_BLOCKS),
        )
        self.log = []

    def both(self, name, *arguments):
        actual = outcome(getattr(self.manager, name), *arguments)
        expected = outcome(getattr(self.model, name), *arguments)
        counts = [self.manager.get_ref_count(block_id) for block_id in range(NUM_BLOCKS)]
        shown = f"{name}({', '.join(map(str, arguments))})"
        self.log.append((f"{shown} gives {actual}", counts))
        assert actual == expected, self.drawn(f"{shown} gave {actual}, expected {expected}")

    @rule()
    def allocate(self):
        self.both("allocate")

    @rule(block_id=block_ids)
    def free(self, block_id):
        self.both("free", block_id)

    @rule(block_id=block_ids)
    def share(self, block_id):
        self.both("increase_ref_count", block_id)

    @invariant()
    def counts_agree(self):
        for block_id in range(NUM_BLOCKS):
            assert self.manager.get_ref_count(block_id) == self.model.get_ref_count(
                block_id
            ), self.drawn(
                f"block {block_id}'s count should be {self.model.get_ref_count(block_id)}"
            )
        assert self.manager.get_num_free_blocks() == self.model.get_num_free_blocks(), (
            self.drawn(f"{self.model.get_num_free_blocks()} blocks should be free")
        )

    @invariant()
    def no_block_is_lost(self):
        counts = [self.manager.get_ref_count(block_id) for block_id in range(NUM_BLOCKS)]
        assert counts.count(0) == self.manager.get_num_free_blocks(), self.drawn(
            "free list and counts disagree"
        )

    def drawn(self, what: str) -> str:
        """The calls so far, each with the pool after it; hypothesis ends with the shortest
        such story.
        """
        return "\n".join(
            [what, *(f"  {pool_text(counts)}  {call}" for call, counts in self.log)]
        )


TestAgainstTheModel = AgainstTheModel.TestCase
TestAgainstTheModel.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None
)


class FreeIgnoresCount(PythonBlockManager):
    def free(self, block_id):
        if self.get_ref_count(block_id) == 0:
            raise DoubleFreeError(f"block {block_id} is already free")
        self.ref_counts[block_id] = 0
        self.free_blocks.append(block_id)


class DoubleFreeUnnoticed(PythonBlockManager):
    def free(self, block_id):
        self.ref_counts[self.check_index(block_id)] -= 1
        if self.ref_counts[block_id] == 0:
            self.free_blocks.append(block_id)


@pytest.mark.parametrize("broken, shortest", [(FreeIgnoresCount, 3), (DoubleFreeUnnoticed, 1)])
def test_a_counterexample_is_shrunk_and_drawn_as_blocks(broken, shortest):
    class Broken(AgainstTheModel):
        manager_type = broken

    with pytest.raises(AssertionError) as caught:
        run_state_machine_as_test(
            Broken,
            settings=settings(
                max_examples=300,
                deadline=None,
                database=None,
                phases=[Phase.generate, Phase.shrink],
            ),
        )
    drawn = [
        line.strip()
        for line in str(caught.value).split("\n")
        if line.strip().startswith("[0 ")
    ]
    # Out of forty calls; how far hypothesis gets differs from run to run.
    assert shortest <= len(drawn) <= shortest + 4
    assert drawn[-1].split("  ")[-1].startswith("free(")


@pytest.mark.parametrize("num_blocks", [0, -1, -(2**31)])
def test_a_pool_needs_blocks(num_blocks):
    with pytest.raises(
        module.PoolSizeError, match=f"num_blocks must be positive, not {num_blocks}$"
    ) as caught:
        module.BlockManager(num_blocks)
    assert isinstance(caught.value, ValueError)
    with pytest.raises(ValueError, match=f"num_blocks must be positive, not {num_blocks}$"):
        PythonBlockManager(num_blocks)


def test_the_smallest_pool_has_one_block():
    for manager in (module.BlockManager(1), PythonBlockManager(1)):
        assert manager.get_num_free_blocks() == 1 and manager.allocate() == 0


def test_the_python_manager_takes_whole_numbers():
    with pytest.raises(TypeError, match=r"^num_blocks must be an integer, not float: 2\.0$"):
        PythonBlockManager(2.0)
    with pytest.raises(TypeError, match=r"^block_id must be an integer, not str: 'a'$"):
        PythonBlockManager(2).free("a")


def test_blocks_come_in_order_and_the_last_freed_is_next():
    manager = module.BlockManager(4)
    assert [manager.allocate() for _ in range(4)] == [0, 1, 2, 3]
    manager.free(2)
    manager.free(0)
    assert [manager.allocate(), manager.allocate()] == [0, 2]


WRONG_CALLS = [
    ("allocate", (), "OutOfBlocksError", MemoryError, "no block is free: 2 of 2 are in use"),
    ("free", (1,), "DoubleFreeError", RuntimeError, "block 1 is already free"),
    (
        "increase_ref_count",
        (1,),
        "BlockNotAllocatedError",
        RuntimeError,
        "block 1 is free, so it cannot be shared",
    ),
    ("free", (2,), "BlockIndexError", IndexError, "there is no block 2"),
    ("increase_ref_count", (-1,), "BlockIndexError", IndexError, "there is no block -1"),
    (
        "get_ref_count",
        (2**31 - 1,),
        "BlockIndexError",
        IndexError,
        "there is no block 2147483647",
    ),
]


@pytest.mark.parametrize("name, arguments, error, base, text", WRONG_CALLS)
def test_a_wrong_call_names_the_value_and_changes_nothing(name, arguments, error, base, text):
    manager = module.BlockManager(2)
    manager.allocate()
    if name == "allocate":
        manager.allocate()

    def state():
        return [
            manager.get_ref_count(0),
            manager.get_ref_count(1),
            manager.get_num_free_blocks(),
        ]

    before = state()
    with pytest.raises(base) as caught:
        getattr(manager, name)(*arguments)
    assert type(caught.value) is getattr(module, error) and str(caught.value) == text
    assert state() == before
    python_error = outcome(getattr(_python_twin(name), name), *arguments)
    assert python_error == f"{error}: {text}"


def _python_twin(name):
    manager = PythonBlockManager(2)
    manager.allocate()
    if name == "allocate":
        manager.allocate()
    return manager


@pytest.mark.parametrize("value", ["one", None, 1.5, 2**40, [1]])
def test_a_wrong_type_is_a_type_error_that_shows_the_value(value):
    manager = module.BlockManager(2)
    manager.allocate()
    for call in (
        module.BlockManager,
        manager.free,
        manager.get_ref_count,
        manager.increase_ref_count,
    ):
        with pytest.raises(TypeError) as caught:
            call(value)
        assert repr(value) in str(caught.value)
    assert (manager.get_ref_count(0), manager.get_num_free_blocks()) == (1, 1)


def test_allocate_and_free_take_the_same_time_in_a_large_pool():
    import timeit

    def pair_in(num_blocks):
        manager = module.BlockManager(num_blocks)
        return min(
            timeit.repeat(lambda: manager.free(manager.allocate()), number=20_000, repeat=7)
        )

    ratio = pair_in(1_000_000) / pair_in(10)
    assert ratio < 3, (
        f"a pair of calls takes {ratio:.1f} times as long with 100,000 times the blocks"
    )


def test_counts_go_far():
    manager = module.BlockManager(1)
    manager.allocate()
    for _ in range(10_000):
        manager.increase_ref_count(0)
    assert manager.get_ref_count(0) == 10_001
