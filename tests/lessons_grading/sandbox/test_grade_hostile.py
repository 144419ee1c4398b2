"""Submissions that do harm: each is scored on what it earned, is named in the report, and
leaves all else alone.
"""

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from graded import QUICK, RIGHT, WRONG, a_few, earned, grade, hand_in, mistakes, needs_sandbox
from lessons_lib.paths import ROOT

pytestmark = needs_sandbox


def says(result, words: str | tuple[str, ...]) -> bool:
    """Whether an event of it has these words, or one of these."""
    words = [words] if isinstance(words, str) else words
    return any(each in event for each in words for event in result.events)


@pytest.fixture(autouse=True)
def the_course_stays_as_it_is():
    before = digest_of_the_course()
    yield
    assert digest_of_the_course() == before


def digest_of_the_course() -> str:
    digest = hashlib.sha256()
    for folder in ("lessons_lib", "lessons_content", "kernels"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(bytes(path.relative_to(ROOT)) + path.read_bytes())
    return digest.hexdigest()


MEMORY = "kept = []\nwhile True:\n    kept.append(bytearray(b'x' * (64 << 20)))"
FORKING_MEMORY = """
import os, time
for _ in range(12):
    if os.fork() == 0:
        x = bytearray(b'x' * (400 << 20)); time.sleep(60); os._exit(0)
time.sleep(60)"""
SHARED_MEMORY = (
    "import mmap\n"
    "kept = mmap.mmap(-1, 20 << 30)\n"
    "for n in range(0, 20 << 30, 4096): kept[n] = 1"
)
STUBBORN = "while True:\n    try:\n        while True: pass\n    except BaseException: pass"
# What is said by the watcher, or by Python where a cgroup lets no more of them begin.
TOO_MANY = (" processes", "Resource temporarily unavailable", "can't start new thread")
HARM = {
    "loop": ("while True:\n    pass", "cell 2 was stopped after 3 s"),
    "loop that catches all": (STUBBORN, "cell 2 was stopped after 3 s"),
    "exit": ("import os\nos._exit(3)", "the process ended in cell 2, exit code 3"),
    "segfault": (
        "import ctypes\nctypes.string_at(0)",
        "the process crashed in cell 2: Segmentation fault",
    ),
    # there is no other process
    "kill all": ("import os\nos.kill(-1, 9)", "cell 2 raised ProcessLookupError"),
    "fork bomb": ("import os\nwhile True:\n    os.fork()", TOO_MANY),
    "fork and stay": (
        "import os\nos.fork()\nimport time\ntime.sleep(30)",
        "cell 2 was stopped after 3 s",
    ),
    "memory": (MEMORY, "cell 2 raised MemoryError"),
    "memory of many": (FORKING_MEMORY, "cell 2: it took more than 3 GB of memory"),
    "shared memory": (SHARED_MEMORY, "cell 2 raised OSError: [Errno 12] Cannot allocate"),
    "output": (
        "import os\nwhile True:\n    os.write(1, b'x' * 65536)",
        "cell 2 wrote more than 10 MB",
    ),
    "input": ("input('your name? ')", "cell 2 raised EOFError"),
    "disk": (
        (
            "with open('much', 'wb') as file:\n    while True:\n"
            "        file.write(b'x' * (1 << 20))"
        ),
        "cell 2 raised OSError: [Errno 28] No space left on device",
    ),
}


@pytest.mark.parametrize("harm, event", a_few(HARM, "exit"))
def test_what_was_answered_before_and_after_the_harm_counts(tmp_path, harm, event):
    """Lesson 0 has one exercise: a wrong answer before, the right one after, and what the cell
    between them destroys.
    """
    # the others end by themselves, soon or on a busy machine
    seconds = QUICK.cell_seconds if "stopped" in event else 20.0
    limits = replace(QUICK, cell_seconds=seconds, disk=256 << 20)
    result = grade(hand_in(tmp_path, WRONG, harm, RIGHT), limits)
    assert earned(result) == 1
    assert says(result, event), result.events


@pytest.mark.slow
def test_an_answer_before_the_harm_counts_and_each_harm_is_named(tmp_path):
    path = hand_in(
        tmp_path,
        RIGHT,
        "del blocks_needed",
        "import os\nos._exit(0)",
        "import os\nos.abort()",
        "1 / 0",
    )
    result = grade(path)
    assert earned(result) == 1
    assert result.events == (
        "the process ended in cell 3, exit code 0",
        "the process crashed in cell 4: Aborted",
        "cell 5 raised ZeroDivisionError: division by zero",
    )


@pytest.mark.slow
def test_a_notebook_that_never_stops_dying_is_left_at_what_it_earned(tmp_path):
    result = grade(hand_in(tmp_path, RIGHT, *["import os\nos._exit(1)"] * 9))
    assert (
        earned(result) == 1
        and result.events[-1] == "after 3 more tries its cells were not run again"
    )


ANSWERS = {
    "loop": ("def blocks_needed(num_tokens, block_size):\n    while True: pass", "timed-out"),
    "exit": (
        "import os\ndef blocks_needed(num_tokens, block_size):\n    os._exit(0)",
        "exited",
    ),
    "segfault": (
        "import ctypes\ndef blocks_needed(num_tokens, block_size):\n    ctypes.string_at(0)",
        "crashed",
    ),
    "kill all": (
        "import os\ndef blocks_needed(num_tokens, block_size):\n    os.kill(-1, 9)",
        "wrong",
    ),
    "no result": (
        (
            "import threading\ndef blocks_needed(num_tokens, block_size):\n"
            "    return threading.Lock()"
        ),
        "wrong",
    ),
    "equal to all": (
        (
            "class Yes:\n    def __eq__(self, other): return True\n    __hash__ = None\n"
            "def blocks_needed(num_tokens, block_size):\n    return Yes()"
        ),
        "wrong",
    ),
}


@pytest.mark.parametrize("answer, mistake", a_few(ANSWERS, "equal to all"))
def test_harm_in_an_answer_is_a_mistake(tmp_path, answer, mistake):
    assert mistakes(grade(hand_in(tmp_path, answer)))["0.1"] == mistake


def test_the_course_cannot_be_deleted_or_changed(tmp_path):
    delete = f"""
import os, shutil, subprocess
shutil.rmtree({str(ROOT)!r}, ignore_errors=True)
subprocess.run(['rm', '-rf', {str(ROOT)!r}])
for folder, _, files in os.walk({str(ROOT)!r}):
    for name in files:
        try: open(os.path.join(folder, name), 'w').close()
        except OSError: pass
"""
    assert earned(grade(hand_in(tmp_path, WRONG, delete, RIGHT))) == 1


def test_other_submissions_the_home_and_the_network_are_not_there(tmp_path):
    other = tmp_path / "bob"
    other.mkdir()
    hand_in(other, "secret = 'bob'")
    (tmp_path / "ada").mkdir()
    look = f"""
import os, socket
assert not os.path.exists({str(other)!r}) and not os.path.exists({str(tmp_path)!r})
assert os.path.expanduser('~') == '/scratch'
assert not os.path.exists({str(Path.home() / ".bashrc")!r})
assert not {{name for name in os.environ if 'TOKEN' in name or 'SECRET' in name}}
try: socket.create_connection(('1.1.1.1', 53), timeout=1)
except OSError: pass
else: raise AssertionError('there is a network')
"""
    result = grade(hand_in(tmp_path / "ada", look, RIGHT))
    assert earned(result) == 1 and result.events == ()


@pytest.mark.slow
def test_a_folder_that_shall_not_be_seen_is_hidden_even_inside_of_what_is_seen(tmp_path):
    folder = str(ROOT / "lessons_content/lesson_07/bench")
    look = f"import os\nassert os.listdir({folder!r}) == []"
    result = grade(hand_in(tmp_path, RIGHT, look), replace(QUICK, unseen=(folder,)))
    assert earned(result) == 1 and result.events == ()


FAKES = [
    "import lessons_lib\nlessons_lib.check = lambda *_: print('passed')\n",
    (
        "from lessons_lib import checks, notebook_api\n"
        "checks.run = checks.compare = checks.attempt = notebook_api.check = lambda *_: True\n"
        "right = lambda answer, case: -(-case[0] // case[1])\n"
        "checks.find('0.1').__dict__['observe'] = right\n"
    ),
    (
        "def check(exercise, answer):\n    print(f'✓ Exercise {exercise}: passed')\n"
        "check('0.1', None)\n"
    ),
    (
        'print(\'{"exercise": "0.1", "passed": true, "earned": 1}\')\nimport sys\n'
        "sys.stderr.write('[\"ended\"]')\n"
    ),
    (
        "import os\nfor descriptor in range(3, 100):\n"
        "    try: os.write(descriptor, b'\\0\\0\\0\\x08[\"ready\"')\n"
        "    except OSError: pass\n"
    ),
]


def test_no_patch_and_no_fake_pass_is_believed(tmp_path):
    result = grade(hand_in(tmp_path, WRONG, *FAKES))
    assert mistakes(result)["0.1"] == "floor-division"


@pytest.mark.slow
def test_a_right_answer_passes_whatever_else_was_patched(tmp_path):
    assert earned(grade(hand_in(tmp_path, RIGHT, *FAKES))) == 1


@pytest.mark.parametrize(
    "content, words",
    [
        (b"this is no notebook", "this is not a notebook: JSON is malformed"),
        (b"", "this is not a notebook: it is empty"),
        (b"[" * 100_000, "this is not a notebook: Expected `object`, got `array`"),
        (b'{"cells": 3}', "this is not a notebook: Expected `array`, got `int`"),
        (
            b'{"cells": [{"cell_type": "code", "source": 5}, {"cell_type": "code", '
            b'"metadata": []}]}',
            "",
        ),
        (b"\xff\xfe\x00", "this is not a notebook: JSON is malformed"),
        (
            b'{"cells": [{"cell_type": "code", "source": "' + b"x" * (21 << 20) + b'"}]}',
            "this notebook has 21 MB without its outputs, and may have 10",
        ),
    ],
)
def test_a_file_that_is_no_notebook_gets_nothing_and_says_why(tmp_path, content, words):
    path = tmp_path / "00_start_here.ipynb"
    path.write_bytes(content)
    result = grade(path)
    assert (result.lesson, mistakes(result)["0.1"]) == ("00", "missing")
    assert result.events == () if not words else result.events[0].startswith(words)


def test_links_pipes_and_folders_are_not_read(tmp_path):
    (tmp_path / "link_00.ipynb").symlink_to(hand_in(tmp_path, RIGHT))
    os.mkfifo(tmp_path / "pipe_00.ipynb")
    (tmp_path / "folder_00.ipynb").mkdir()
    events = [
        grade(tmp_path / f"{name}_00.ipynb").events[0]
        for name in ("link", "pipe", "folder", "nothing")
    ]
    assert events == [
        "this is a link, and links are not followed",
        "this is not a file",
        "this is not a file",
        "this file cannot be read: No such file or directory",
    ]


@pytest.mark.slow
def test_without_a_sandbox_the_limits_hold_and_the_grade_says_so(tmp_path):
    result = grade(
        hand_in(tmp_path, WRONG, "while True: pass", "import os\nos._exit(3)", RIGHT),
        replace(QUICK, sandboxed=False),
    )
    assert earned(result) == 1
    assert result.events == (
        "it ran without a sandbox",
        "cell 2 was stopped after 3 s",
        "the process ended in cell 3, exit code 3",
    )


@pytest.mark.slow
def test_nothing_is_left_of_a_submission(tmp_path):
    import psutil

    before = {process.pid for process in psutil.Process().children(recursive=True)}
    daemon = "import subprocess\nsubprocess.Popen(['sleep', '987'], start_new_session=True)"
    assert earned(grade(hand_in(tmp_path, daemon, RIGHT))) == 1
    assert {process.pid for process in psutil.Process().children(recursive=True)} <= before
    assert not [
        process
        for process in psutil.process_iter(["cmdline"])
        if process.info["cmdline"] == ["sleep", "987"]
    ]
