"""The pictures of lesson 05: batches with their tensors, a gather's bytes, traces."""

from collections.abc import Callable

from torch import Tensor

from lessons_content.lesson_05.pictures import batch, metadata
from lessons_lib.drawing import Picture, show
from lessons_lib.drawing.player import Player
from paged_attention.attention.metadata import BatchMetadata

tensors_text = metadata.tensors_text


def opening() -> Picture:
    """One batch of three sequences: which query sees which key, and the four tensors."""
    return show(
        metadata.opening(),
        alt=(
            "Three sequences in one batch. A has one query, which sees its seven keys. B has"
            " three queries and five keys; its queries see three, four and five of them. C has"
            " four queries and four keys, seen in the shape of a triangle. No query sees a key"
            " of another sequence. Below, the four tensors of the batch."
        ),
    )


def from_the_queue() -> Player:
    """Batches of chunks and decodes, made from three prompts that wait."""
    return batch.recorded()


def padded_and_packed(query_lens: list[int]) -> Picture:
    """The queries of sequences A, B, C and D, with padding and without."""
    return show(
        metadata.padded_and_packed("ABCD", query_lens),
        alt=(
            "Above, four sequences with 5, 1, 1 and 3 queries as a rectangle of 20 squares,"
            " half of them hatched padding. Below, the same 10 queries in one row without"
            " gaps, with the borders 0, 5, 6, 7 and 10."
        ),
    )


def three_batches(
    prompt: BatchMetadata,
    new_token: BatchMetadata,
    decode_and_chunk: BatchMetadata,
    visible: Callable[[int, int], Tensor],
) -> Picture:
    """A prompt of A, a new token of A, and a mix of A and B, each with its tensors.

    visible: the learner's visible_keys(q_len, kv_len).
    """
    return show(
        metadata.batches(
            [
                ("One prompt of 5", "A", prompt),
                ("One new token", "A", new_token),
                ("A decodes, B gets a chunk", "AB", decode_and_chunk),
            ],
            visible,
        ),
        alt=(
            "Three batches with their tensors. A prompt of five tokens is a triangle. A new"
            " token is one row of six seen keys. In the mixed batch, A's row of six is"
            " followed by B's three rows, which see three, four and five keys."
        ),
    )


def my_batch(
    sequences: list[tuple[str, int, int]],
    batch: BatchMetadata,
    visible: Callable[[int, int], Tensor],
) -> Picture:
    """The learner's own batch.

    sequences: (name, number of new tokens, number of all tokens) for each sequence.
    visible: the learner's visible_keys(q_len, kv_len).
    """
    names = [name for name, _, _ in sequences]
    lengths = (f"queries of {name}: {new}, keys: {total}" for name, new, total in sequences)
    return show(
        metadata.batches([("My batch", names, batch)], visible),
        alt=f"My batch: which query sees which key. {', '.join(lengths)}",
    )


def gather_traffic(
    context_lens: list[int], batch_sizes: list[int], bytes_of_one: Callable[[int], int]
) -> Picture:
    """GiB that a gather moves in one step, against the context. A line for each batch size.

    bytes_of_one: bytes_of_one(context_len) gives the bytes of one sequence.
    """
    return show(
        metadata.gather_traffic(context_lens, batch_sizes, bytes_of_one),
        alt=(
            "Gathered bytes in a step against the context, both on logarithmic scales: three"
            " rising straight lines for 1, 8 and 64 sequences, from 0.14 GiB for one sequence"
            " with 1,024 tokens to 288 GiB for 64 with 32,768. A dashed line marks the model's"
            " weights, 15 GiB."
        ),
    )


def where_they_differ(
    faulty: list[Tensor], rounded: list[Tensor], reference: list[Tensor]
) -> Picture:
    """The differences of the faulty and of the rounded model from the reference.

    faulty, rounded, reference: each layer's output (num_tokens, dim).
    """
    return show(
        metadata.divergence([("as it is", faulty), ("rounded", rounded)], reference),
        alt=(
            "Two heat maps, layer against position. As it is, every place differs from the"
            " reference by 3 to 12, from the first layer's first position on. Rounded, they"
            " are 0.1 to 0.2 in the first layer and up to 0.6 in the last."
        ),
    )


def before_and_after(
    faulty: list[Tensor], repaired: list[Tensor], reference: list[Tensor]
) -> Picture:
    """The differences from the reference before and after the repair.

    faulty, repaired, reference: each layer's output (num_tokens, dim).
    """
    return show(
        metadata.divergence([("before", faulty), ("after", repaired)], reference),
        alt=(
            "Two heat maps, layer against position. Before, every place differs from the"
            " reference by 3 to 12. After, none differs by more than rounding."
        ),
    )
