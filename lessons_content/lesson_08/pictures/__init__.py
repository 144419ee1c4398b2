"""The pictures of lesson 08: the engine's loop, its steps, its memory, and its faults."""

from torch import Tensor

from lessons_content.lesson_00.pictures import conversation
from lessons_content.lesson_00.pictures.conversation import Columns
from lessons_content.lesson_08.pictures import serving, timeline
from lessons_content.lesson_08.pictures.afternoon import played
from lessons_content.lesson_08.pictures.live_engine import LiveEngine
from lessons_lib.drawing import Picture, pool_steps, show
from lessons_lib.drawing.player import Player

__all__ = [
    "LiveEngine",
    "afternoon",
    "chunked_prefill",
    "continuous_batching",
    "copy_on_write",
    "differences",
    "one_row",
    "opening",
    "preemption",
    "recorded_conversation",
    "reserved_memory",
    "right_answers",
    "sampled_tokens",
    "shared_blocks",
    "side_by_side",
]


def opening() -> Picture:
    """The engine: requests in, schedule, run, postprocess, tokens out, and the pool."""
    return show(
        serving.loop(),
        alt=(
            "Three boxes in a row: schedule, run, postprocess. Requests that wait come in from"
            " the left, tokens go out on the right, and an arrow leads back from postprocess"
            " to schedule. Below lies the pool: schedule takes blocks, run writes and reads"
            " keys and values, postprocess gives blocks back. The blocks of four requests lie"
            " scattered in it, with free ones between them."
        ),
    )


def recorded_conversation() -> Picture:
    """Three people who ask one model at once."""
    return conversation.recorded()


def side_by_side(talk) -> Columns:
    """A conversation with several people, as far as it has come. talk: a Conversation."""
    return Columns(talk)


def one_row() -> Picture:
    """A step of three sequences: their new tokens in one row, with positions."""
    return show(
        serving.row(
            [
                ("A", "decodes", 6, 1),
                ("B", "gets a chunk", 2, 3),
                ("C", "brings its prompt", 0, 4),
            ]
        ),
        alt=(
            "Above, three sequences: A has six tokens in the cache and a new one, B two and"
            " three new ones, C four new. Below, the eight new tokens in one row: A6, B2 to"
            " B4, C0 to C3, with the positions 6, 2, 3, 4, 0, 1, 2, 3. The last indices are 0,"
            " 3 and 7."
        ),
    )


def continuous_batching() -> Picture:
    """Six requests on three places: in batches that wait for their longest, or one by one."""
    return show(
        serving.batching({"A": 9, "B": 3, "C": 5, "D": 2, "E": 8, "F": 4}, places=3),
        alt=(
            "Two timelines of six requests on three places. Above, the places of B and C stay"
            " empty until A ends, and all ends after 17 steps. Below, D and F take the places"
            " of B and C at once, and all ends after 13 steps."
        ),
    )


def chunked_prefill(history: list) -> Picture:
    """Three requests under a token budget. history: a list of StepRecord."""
    return show(
        timeline.timeline(history, "A budget of 8 tokens a step, and blocks for all"),
        alt=(
            "A timeline of three requests. A prefills 5 tokens in step 0, then decodes. B"
            " prefills 3, 7 and 4 tokens in steps 0 to 2. C waits for two steps, and prefills"
            " 3 in step 2."
        ),
    )


def preemption(history: list) -> Picture:
    """Three requests and a pool that is too small. history: a list of StepRecord."""
    return show(
        timeline.timeline(history, "The same with 9 blocks: somebody has to give way"),
        alt=(
            "A timeline of the three requests. C is preempted in step 5, B in step 9. A ends"
            " in step 9. From step 10 on B prefills again, 8, 8 and 5 tokens, then C in two"
            " chunks of 3, and both go on to decode."
        ),
    )


def copy_on_write(steps: list[tuple]) -> Picture:
    """A prompt of two full blocks, and the same prompt again.

    steps: what was done, and the reference count of each block after it.
    """
    return show(
        pool_steps(steps),
        alt=(
            "The pool in four steps. A has run: two blocks have two users, A and the cache. B"
            " starts: both have three users. B has room for its last token: its second block"
            " is a copy with one user, and the block that it had before has two users again."
        ),
    )


def sampled_tokens(panels: dict[str, dict[str, tuple[float, float]]]) -> Picture:
    """For each way to draw: each token's probability, and its share of the draws."""
    return show(
        serving.draws(panels),
        alt=(
            "Four bar charts over the tokens a to e, dots for what was drawn. At temperature 1"
            " the bars are 0.5, 0.25, 0.15, 0.08 and 0.02; at 0.5 the first is higher; with"
            " top_k = 2 there are only a and b, with top_p = 0.8 only a, b and c. All dots lie"
            " close to the tops of their bars."
        ),
    )


def afternoon(history: list) -> Player:
    """The work of twelve requests, and the users of each block. history: of StepRecord."""
    return played(history, "An afternoon: 12 requests, 30 blocks, 48 tokens a step", 30)


def shared_blocks(sharing: list, without: list) -> Picture:
    """The users of the pool's 30 blocks in each step, with and without prefix sharing.

    sharing, without: lists of StepRecord.
    """
    return show(
        timeline.pool(
            {
                f"With prefix sharing: {len(sharing)} steps": sharing,
                f"Without: {len(without)} steps": without,
            },
            num_blocks=30,
        ),
        alt=(
            "Two stacked bar charts of 30 blocks over the steps. With sharing, up to seven"
            " blocks have several users, and the rest of the pool is filled with blocks that"
            " only the prefix cache keeps. Without, every block has one user, and it takes"
            " more steps."
        ),
    )


def reserved_memory(history: list, reserved: dict[str, list[int]]) -> Picture:
    """Slots over time: those that contiguous caches reserve, and those of blocks in use.

    history: a list of StepRecord.
    reserved: for each way, the slots that are reserved in each step.
    """
    return show(
        timeline.memory(history, 16, reserved),
        alt=(
            "Slots over the steps. Reserving the model's maximum is far above the rest, up to"
            " 4,096; reserving prompt and longest answer is about twice the blocks in use."
            " While requests share blocks, the tokens of the running requests lie above the"
            " blocks in use."
        ),
    )


def differences(by_layer: Tensor) -> Picture:
    """The distance between two engines. by_layer: (num_layers, num_tokens)."""
    return show(
        timeline.differences(by_layer),
        alt=(
            "A heat map of four layers and 49 tokens. In all layers tokens 0 to 15 differ by"
            " rounding only. From token 16 on most outputs differ by about 10; in layer 0 some"
            " are still right."
        ),
    )


def right_answers(table: dict[str, dict[str, float]]) -> Picture:
    """The share of right answers for each fault, by task."""
    return show(
        timeline.accuracy(table),
        alt=(
            "A table of right answers. Without a fault and with permuted full blocks, all"
            " tasks are at 100 %. Wrong head mapping is at 0 % everywhere. Without rescaling,"
            " sort stays at 100 %, and recall and reverse are at 0 %. A position too high"
            " leaves copy and sort at 100 %, and brings recall to half and reverse to 0 %."
            " Another's block leaves 12 to 62 %. The late table and the unmasked tail leave"
            " most answers right."
        ),
    )
