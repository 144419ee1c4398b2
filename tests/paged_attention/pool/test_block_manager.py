"""The C++ block manager of kernels/, against its specification and against the Python one,
call by call.
"""

import pytest
from hypothesis import strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from paged_attention.pool import block_manager
from paged_attention.pool.block_manager import PythonBlockManager, build_block_manager
from state_machines import steps

module = build_block_manager()
NUM_BLOCKS = 5
block_ids = strategies.integers(-1, NUM_BLOCKS)


def outcome(call, *arguments):
    """What a call does: its result, or its error's name and text."""
    try:
        return call(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


class AgainstTheModel(RuleBasedStateMachine):
    """Any sequence of calls gives the same results and errors as the Python manager, and no
    block is lost.
    """

    @initialize()
    def start(self):
        self.manager = module.BlockManager(NUM_BLOCKS)
        self.model = PythonBlockManager(NUM_BLOCKS)

    def both(self, name, *arguments):
        actual, expected = (
            outcome(getattr(manager, name), *arguments)
            for manager in (self.manager, self.model)
        )
        assert actual == expected

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
    def counts_agree_and_no_block_is_lost(self):
        for block_id in range(-1, NUM_BLOCKS + 1):
            self.both("get_ref_count", block_id)
        self.both("get_num_free_blocks")
        counts = [self.manager.get_ref_count(block_id) for block_id in range(NUM_BLOCKS)]
        assert counts.count(0) == self.manager.get_num_free_blocks()


TestAgainstTheModel = AgainstTheModel.TestCase
TestAgainstTheModel.settings = steps(20)


MANAGERS = pytest.mark.parametrize(
    "manager_type, errors",
    [(module.BlockManager, module), (PythonBlockManager, block_manager)],
    ids=["C++", "Python"],
)


@MANAGERS
@pytest.mark.parametrize("num_blocks", [0, -1, -(2**31)])
def test_a_pool_needs_blocks(manager_type, errors, num_blocks):
    words = f"num_blocks must be positive, not {num_blocks}$"
    with pytest.raises(errors.PoolSizeError, match=words) as caught:
        manager_type(num_blocks)
    assert isinstance(caught.value, ValueError)


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


@MANAGERS
@pytest.mark.parametrize(
    "name, arguments, error, base, text",
    [
        ("allocate", (), "OutOfBlocksError", MemoryError, "no block is free: 2 of 2 are in"),
        ("free", (0,), "DoubleFreeError", RuntimeError, "block 0 is already free"),
        (
            "increase_ref_count",
            (0,),
            "BlockNotAllocatedError",
            RuntimeError,
            "block 0 is free",
        ),
        ("free", (2,), "BlockIndexError", IndexError, "there is no block 2"),
        ("increase_ref_count", (-1,), "BlockIndexError", IndexError, "there is no block -1"),
        ("get_ref_count", (2**31 - 1,), "BlockIndexError", IndexError, "no block 2147483647"),
    ],
)
def test_a_wrong_call_names_the_value_and_changes_nothing(
    manager_type, errors, name, arguments, error, base, text
):
    manager = manager_type(2)
    for _ in range(2):
        manager.allocate()
    if error in ("DoubleFreeError", "BlockNotAllocatedError"):
        manager.free(0)

    def state():
        counts = [manager.get_ref_count(block_id) for block_id in range(2)]
        return counts, manager.get_num_free_blocks()

    before = state()
    with pytest.raises(base, match=text) as caught:
        getattr(manager, name)(*arguments)
    assert type(caught.value) is getattr(errors, error)
    assert state() == before


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


def test_counts_go_far():
    manager = module.BlockManager(1)
    manager.allocate()
    for _ in range(10_000):
        manager.increase_ref_count(0)
    assert manager.get_ref_count(0) == 10_001
