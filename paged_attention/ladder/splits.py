"""How the work of a decode batch is divided among thread blocks (lesson 07)."""

SPLIT_COST = 4  # a block's time to begin and to hand its part over, counted in tiles


def choose_num_splits(num_rows: int, num_tiles: int, num_multiprocessors: int) -> int:
    """Chooses into how many splits each row's context is cut, from 1 to num_tiles.

    It takes the number with the shortest time. If several are equally fast, it takes the
    smallest. This is how the time is counted:

    1. Each split has its own block, so there are num_rows × splits blocks.
    2. Each multiprocessor runs one block at a time, so the blocks run in waves of
       num_multiprocessors. The last wave takes as long as any other.
    3. A wave takes one unit of time for each tile of the largest split, and SPLIT_COST more.

    num_rows: sequences × KV heads, 1 or more.
    num_tiles: the tiles of each row, 1 or more.
    num_multiprocessors: of the GPU.
    """

    # BEGIN SOLUTION 7.6
    def time(num_splits):
        waves = -(-num_rows * num_splits // num_multiprocessors)  # -(-a // b) rounds up
        return waves * (-(-num_tiles // num_splits) + SPLIT_COST)

    return min(range(1, num_tiles + 1), key=time)
    # END SOLUTION


def cut_evenly(num_tiles: list[int], num_blocks: int) -> list[list[tuple[int, int, int]]]:
    """Cuts the tiles of all rows into num_blocks shares that differ by at most one tile.

    The rows are laid end to end, which makes one line of `total` tiles. Block b's part of this
    line begins at tile total * b // num_blocks. It ends before tile
    total * (b + 1) // num_blocks.

    num_tiles: the tiles of each row, 1 or more.
    Returns for each block its pieces (row, first_tile, end_tile), in order. Tiles are counted
        from the row's beginning. A piece has at least one tile. A block without tiles has an
        empty list.
    """
    # BEGIN SOLUTION 7.7
    total, shares = sum(num_tiles), []
    for block in range(num_blocks):
        first = total * block // num_blocks
        end = total * (block + 1) // num_blocks
        pieces, row_start = [], 0
        for row, length in enumerate(num_tiles):
            begin_in_row = max(first - row_start, 0)
            end_in_row = min(end - row_start, length)
            if begin_in_row < end_in_row:
                pieces.append((row, begin_in_row, end_in_row))
            row_start += length
        shares.append(pieces)
    return shares
    # END SOLUTION
