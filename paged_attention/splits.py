"""How a batch of decodes is shared out among the blocks of threads (lesson 07)."""

SPLIT_COST = 4  # what a block takes beside its tiles, to begin and to hand its part over; counted in tiles


def choose_num_splits(num_rows: int, num_tiles: int, num_multiprocessors: int) -> int:
    """In how many splits each row's context is best cut, from 1 to num_tiles; of several that take the same, the least.

    num_rows: sequences × KV heads, 1 or more. num_tiles: of each row, 1 or more. num_multiprocessors: each runs one
    block at a time. A split goes to a block of its own, so there are num_rows × splits blocks; they run in waves of
    num_multiprocessors, and the last wave takes as long as any other. A wave takes as many units of time as the largest
    split has tiles, and SPLIT_COST more.
    """
    # BEGIN SOLUTION 7.6
    def time(num_splits):
        waves = -(-num_rows * num_splits // num_multiprocessors)  # -(-a // b) rounds up
        return waves * (-(-num_tiles // num_splits) + SPLIT_COST)

    return min(range(1, num_tiles + 1), key=time)
    # END SOLUTION


def cut_evenly(num_tiles: list[int], num_blocks: int) -> list[list[tuple[int, int, int]]]:
    """Lays the tiles of all rows end to end, and cuts the line into num_blocks shares that differ by a tile at most.

    num_tiles: of each row, 1 or more. Of `total` tiles in all, block b gets those of the line from total * b // num_blocks
    up to, and without, total * (b + 1) // num_blocks.
    Returns for each block its pieces (row, first_tile, end_tile), in order; tiles are counted from the row's beginning,
    and a piece has at least one. A block without tiles has an empty list.
    """
    # BEGIN SOLUTION 7.7
    total, shares = sum(num_tiles), []
    for block in range(num_blocks):
        first, end = total * block // num_blocks, total * (block + 1) // num_blocks
        pieces, row_start = [], 0
        for row, length in enumerate(num_tiles):
            begin_in_row, end_in_row = max(first - row_start, 0), min(end - row_start, length)
            if begin_in_row < end_in_row:
                pieces.append((row, begin_in_row, end_in_row))
            row_start += length
        shares.append(pieces)
    return shares
    # END SOLUTION
