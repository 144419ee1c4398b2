"""How the work of a batch of prompts is counted, and divided into tiles (lesson 09)."""


def count_work(
    q_lens: list[int],
    kv_lens: list[int],
    *,
    num_q_heads: int,
    num_kv_heads: int,
    head_size: int,
    bytes_per_number: int,
) -> tuple[int, int]:
    """Counts what causal attention of a batch has to do in one layer.

    Query i of a sequence with n queries and c keys sees the keys 0 … c - n + i.

    q_lens, kv_lens: each sequence's queries, and its keys, those of the queries included.
    bytes_per_number: 2 for float16 and bfloat16.
    Returns (operations, num_bytes). Operations are the multiplications and the additions of
        both products, of queries with keys and of weights with values, for each query head.
        There is an addition for each multiplication. The bytes are those of each key, value,
        query and output, once. A float that is equal to a count will do.
    """
    # BEGIN SOLUTION 9.1
    pairs = sum(n * (c - n) + n * (n + 1) // 2 for n, c in zip(q_lens, kv_lens, strict=True))
    operations = 4 * pairs * num_q_heads * head_size
    rows = 2 * sum(q_lens) * num_q_heads + 2 * sum(kv_lens) * num_kv_heads
    return operations, rows * head_size * bytes_per_number
    # END SOLUTION


def pack_rows(
    num_queries: int, queries_per_kv_head: int, kv_head: int, tile_rows: int
) -> list[list[tuple[int, int]]]:
    """Packs a sequence's rows of one KV head into tiles.

    A row is a pair: the query's place in the sequence's queries, and the number of one of the
    query heads that share the KV head. The rows of query 0 come first, in the order of their
    heads, then those of query 1, and so on. They are cut into tiles of tile_rows. The last
    tile may have fewer.

    kv_head: which KV head; query head h uses KV head h // queries_per_kv_head.
    tile_rows: 1 or more. A tile may end between two heads of a query.
    Returns for each tile its rows, (query, query head). Without queries there is no tile.
    """
    # BEGIN SOLUTION 9.4
    rows = [
        (row // queries_per_kv_head, kv_head * queries_per_kv_head + row % queries_per_kv_head)
        for row in range(num_queries * queries_per_kv_head)
    ]
    return [rows[first : first + tile_rows] for first in range(0, len(rows), tile_rows)]
    # END SOLUTION


def causal_tiles(
    first_query: int, last_query: int, num_queries: int, num_keys: int, tile_keys: int
) -> tuple[int, int]:
    """Says which tiles of keys a tile of queries meets, and which of them need a mask.

    Query i of a sequence sees the keys 0 … num_keys - num_queries + i. Tile t of the keys has
    room for the keys t * tile_keys … (t + 1) * tile_keys - 1. The last one may have fewer.

    first_query, last_query: the first and the last query of the tile of queries, from 0 to
        num_queries - 1.
    num_queries, num_keys: of the sequence; never fewer keys than queries.
    Returns (num_whole, end). In each of the tiles 0 … num_whole - 1 of the keys, every query
        sees tile_keys keys. In each of the tiles num_whole … end - 1, some query sees a key,
        and some query sees fewer than tile_keys: these need a mask. In the tiles from `end`
        on, no query sees any key.
    """
    # BEGIN SOLUTION 9.5
    seen_before = num_keys - num_queries
    num_whole = (seen_before + first_query + 1) // tile_keys
    end = (seen_before + last_query) // tile_keys + 1
    return num_whole, end
    # END SOLUTION


def run_items(
    times: list[int], num_slots: int, longest_first: bool
) -> list[tuple[int, int, int]]:
    """Says which item runs where, and when it begins.

    A GPU has room for num_slots items at once. At time 0 all slots are free, and a slot whose
    item ends at time t is free at time t. The items begin one after the other. Each takes the
    slot that is free first; if several are free at the same time, the one with the smallest
    number.

    times: how long each item runs, 1 or more.
    num_slots: 1 or more.
    longest_first: whether longer items come first. Equally long ones, and all if it is False,
        keep the order of the list.
    Returns a list of (item, slot, begin), in the order in which the items come. `item` is its
        place in `times`.
    """
    # BEGIN SOLUTION 9.6
    order = list(range(len(times)))
    if longest_first:
        order = sorted(order, key=lambda item: -times[item])
    free_at, begun = [0] * num_slots, []
    for item in order:
        slot = free_at.index(min(free_at))
        begun.append((item, slot, free_at[slot]))
        free_at[slot] += times[item]
    return begun
    # END SOLUTION
