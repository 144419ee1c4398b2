"""Messages to the judge that a submission forges earn nothing, and cost nothing."""

import struct

import pytest

from forge import FORGE
from graded import RIGHT, WRONG, earned, grade, hand_in, needs_sandbox
from lessons_grading.sandbox import Limits

LIMITS_OF_THE_CONTROLLER = (
    FORGE
    + """
import resource
for name in ('RLIMIT_NOFILE', 'RLIMIT_NPROC', 'RLIMIT_AS', 'RLIMIT_FSIZE'):
    try: resource.prlimit(1, getattr(resource, name), (0, 0))
    except (OSError, ValueError): pass
"""
)

LONG = FORGE + "for _ in range(9): forge(b'\"' + b'x' * (15 << 20) + b'\"')"

FORGED = {
    "marks": [
        ["cell", 1],
        ["passed", "0.1"],
        ["ended", {"ending": "returned"}],
        ["grade", 1],
        ["case", 0, 1],
        ["report", None],
    ],
    "answers": [
        ["answer", "0.1", {"text": "x"}],
        ["answer", "0.1", {"pickle": "!"}],
        ["answer", "9.9", {"text": ""}],
        [
            "answer",
            "0.1",
            {"pickle": "gASVHAAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOUjARleGl0lIWUUpQu"},
        ],
        ["answer", ["0.1"], {}],
        ["answer"],
        ["refused", "0.1", ""],
    ],
    "types": [["refused", 5, 3], ["case", 0, 5], ["case", "0", "1"], ["finished", 3, []]],
    "ends": [
        ["ready"],
        ["finished", "returned"],
        ["finished", "exited", "x"],
        ["finished", "raised", "CompileError: " + "x" * 1_000_000],
    ],
    "an error whose name is none": [["finished", "raised", "a\0b: x"]],
    "shapes": [None, 1, [], {}, "", [[]], {"report": {}}, True],
    "no JSON": [b"\xff", b"", b"[1"],
    "depth": [b"[" * 100_000],
    "parts": [b"[" + b"[]," * 400_000 + b"1]"],
    "a length that is a lie": [struct.pack(">I", 0xFFFFFFFF)],
}


@needs_sandbox
@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(LIMITS_OF_THE_CONTROLLER, marks=pytest.mark.slow),
        pytest.param(LONG, marks=pytest.mark.slow),
        *(
            pytest.param(
                FORGE + f"forge(*{messages!r})",
                marks=[] if name == "answers" else [pytest.mark.slow],
            )
            for name, messages in FORGED.items()
        ),
    ],
    ids=["limits of the controller", "long messages", *FORGED],
)
def test_forged_messages_earn_nothing_and_cost_nothing(tmp_path, cell):
    """Neither is a wrong answer taken for a right one, nor is a right answer lost that came
    before.
    """
    assert earned(grade(hand_in(tmp_path, WRONG, cell))) == 0
    assert earned(grade(hand_in(tmp_path, RIGHT, cell))) == 1


@pytest.mark.slow
def test_forged_messages_do_without_a_sandbox_no_more(tmp_path):
    cells = [FORGE + f"forge(*{FORGED[name]!r})" for name in ("marks", "answers", "shapes")]
    assert earned(grade(hand_in(tmp_path, WRONG, *cells), Limits(sandboxed=False))) == 0


@needs_sandbox
def test_results_forged_in_an_answer_have_to_be_right(tmp_path):
    """For each case it sends what equals many things, and continues as if it were done."""
    answer = (
        FORGE
        + """
def blocks_needed(num_tokens, block_size):
    equal = [["foreign", "x"], ["course", "lessons_lib.checks.types", "Text", "1", {}],
             ["set", []], True, None, ["dict", []]]
    for number in range(80): forge(*(["case", number, each] for each in equal))
    forge(["finished", "returned"])
    os._exit(0)"""
    )
    assert not earned(grade(hand_in(tmp_path, answer)))


@pytest.mark.parametrize("sandboxed", [pytest.param(True, marks=needs_sandbox), False])
def test_nothing_that_a_submission_made_is_unpickled_outside_of_its_own_process(
    tmp_path, sandboxed
):
    note = tmp_path / "note"
    place = "/tmp/note" if sandboxed else str(note)
    hostile = f"""
class Hostile(MemoryError):  # it ends its process, and is what is said of that
    def __reduce__(self):
        return exec, ("import os; open({place!r}, 'a').write(str(os.getpid()))",)
raise Hostile()"""
    unnoticed = f"import os\nassert not os.path.exists({place!r})"
    result = grade(hand_in(tmp_path, hostile, unnoticed, RIGHT), Limits(sandboxed=sandboxed))
    assert earned(result) == 1 and not note.exists()
    assert [event for event in result.events if event.startswith("cell")] == [
        "cell 1 raised Hostile"
    ]
