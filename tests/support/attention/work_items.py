"""What is true of the items of every plan for rungs 7 to 9, wherever it was made."""

from itertools import pairwise

from paged_attention.ladder.work_plan import TILE_SIZE


def items_of(items, block):
    """A block's items in the order in which it comes to them. The device may have none."""
    item = block
    for _ in items:
        if item < 0 or items[item][0] < 0:
            return
        yield items[item]
        item = items[item][7]
    assert item < 0, f"the items of block {block} have no end"


def rows_and_parts(blocks, lengths):
    """Asserts that each token of a row is in one item, and that parts are numbered as the
    kernel needs. Returns the rows, each a sequence and a KV head, and the parts' numbers.

    blocks: the items of each block, in its order.
    """
    pieces = {}
    for items in blocks:  # parts first, then what is the block's own
        is_part = [item[4] >= 0 for item in items]
        assert is_part == sorted(is_part, reverse=True)
        for item in items:
            pieces.setdefault((item[0], item[1]), []).append(item)
    parts = []
    for (seq, _), of_row in pieces.items():
        of_row.sort(key=lambda item: item[2])
        assert of_row[0][2] == 0 and of_row[-1][3] == lengths[seq]
        for before, after in pairwise(of_row):
            assert before[3] == after[2] and before[3] % TILE_SIZE == 0
        assert {item[6] for item in of_row} == {len(of_row)}
        first = of_row[0][4]
        if len(of_row) == 1:
            assert first == -1
        else:
            assert [item[4] for item in of_row] == list(range(first, first + len(of_row)))
            assert {item[5] for item in of_row} == {first}
            parts += [item[4] for item in of_row]
    return sorted(pieces), sorted(parts)
