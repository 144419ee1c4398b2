"""Exercise 5.6: what a gather moves."""

from lessons_lib.checks import Exercise, Mistake, Text


def bytes_gathered(context_len: int, num_layers: int, num_kv_heads: int, head_size: int, bytes_per_number: int) -> int:
    """How many bytes of keys and values one step of one sequence gathers, in all layers, each byte counted once."""
    # BEGIN SOLUTION 5.6
    numbers_per_token = 2 * num_kv_heads * head_size  # a key and a value
    return context_len * num_layers * numbers_per_token * bytes_per_number
    # END SOLUTION


def keys_only(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return context_len * num_layers * num_kv_heads * head_size * bytes_per_number


def layers_forgotten(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return context_len * num_kv_heads * head_size * bytes_per_number * 2


def heads_forgotten(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return context_len * num_layers * head_size * bytes_per_number * 2


def numbers_not_bytes(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return context_len * num_layers * num_kv_heads * head_size * 2


def bits(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return context_len * num_layers * num_kv_heads * head_size * bytes_per_number * 2 * 8


def read_and_written(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return context_len * num_layers * num_kv_heads * head_size * bytes_per_number * 2 * 2


def mebibytes(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return context_len * num_layers * num_kv_heads * head_size * bytes_per_number * 2 / 2**20


def pairs_of_tokens(context_len, num_layers, num_kv_heads, head_size, bytes_per_number):
    return context_len**2 * num_layers * num_kv_heads * head_size * bytes_per_number * 2


CASES = [(1, 1, 1, 1, 1), (3, 1, 1, 1, 1), (1, 1, 1, 16, 2), (5, 3, 1, 16, 2), (5, 1, 3, 16, 2), (0, 2, 2, 64, 2),
         (17, 4, 7, 96, 4), (1024, 36, 8, 128, 2), (32_768, 80, 8, 128, 1)]


def observe(answer, case):
    result = answer(*case)
    return Text("None, in place of a number") if result is None else result


EXERCISE = Exercise(
    id="5.6",
    title="what a gather moves",
    answer_name="bytes_gathered",
    reference=bytes_gathered,
    cases=lambda: CASES,
    observe=observe,
    describe=lambda case: "bytes_gathered(context_len={}, num_layers={}, num_kv_heads={}, head_size={}, "
                          "bytes_per_number={})".format(*case),
    mistakes=(
        Mistake("keys-only", "That is half of it. What does a token leave in the cache beside its key?", keys_only),
        Mistake("layers-forgotten", "That is one layer. Each layer has keys and values of its own.", layers_forgotten),
        Mistake("heads-forgotten", "That is one KV head. Each of them has a key and a value of head_size numbers.",
                heads_forgotten),
        Mistake("numbers-not-bytes", "That is how many numbers are gathered. How many bytes has one of them?",
                numbers_not_bytes),
        Mistake("bits", "Eight times too much: that is in bits.", bits),
        Mistake("read-and-written",
                "Twice too much here: a gather does read each byte and write it again, and the task counts each byte once.",
                read_and_written),
        Mistake("mebibytes", "The number is in mebibytes. Give bytes; the next cell divides.", mebibytes),
        Mistake("pairs-of-tokens",
                "That grows with the square of the context, as the scores of a prefill do. One step reads each cached token "
                "once.",
                pairs_of_tokens),
    ),
    hints=(
        "Start with one token in one layer: how many numbers are its key and its value?",
        "Times the bytes of a number, times the tokens, times the layers.",
    ),
)
