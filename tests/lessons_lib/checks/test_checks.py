"""What a learner sees for answers of every kind: a stub, a crash, a loop, a flood."""

import contextlib
import re
import sys
import time

import cloudpickle
import pytest

from answers import every_exercise, our_answer, stub
from compiler_script import PASS_ON, CompilerScript
from lessons_lib import checks
from lessons_lib.cuda.inline import read_kernel
from lessons_lib.paths import ROOT
from python_process import python

# as functions of a notebook travel
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def class_with(statement):
    """A FreeList whose pop() runs `statement` instead."""
    return """
#include <cstdlib>
#include <iostream>
#include <thread>
#include <vector>
class FreeList {
 public:
  explicit FreeList(int num_blocks) { while (num_blocks > 0) ids.push_back(--num_blocks); }
  int pop() { STATEMENT; int id = ids.back(); ids.pop_back(); return id; }
  void push(int block_id) { ids.push_back(block_id); }
  int size() const { return ids.size(); }
  std::vector<int> ids;
};""".replace("STATEMENT", statement)


@pytest.mark.parametrize(
    "statement, mistake, words",
    [
        (
            "*static_cast<volatile int*>(nullptr) = 1",
            "crashed",
            "crashed its process (Segmentation fault)",
        ),
        pytest.param(
            "for (volatile bool on = true; on;) {}",
            "timed-out",
            "did not come to an end within 5 s",
            marks=pytest.mark.slow,
        ),
        ("std::exit(0)", "exited", "ended its process (exit code 0)"),
        ("throw 7", "wrong", "something thrown that is no std::exception"),
    ],
)
def test_cpp_that_does_harm_becomes_a_message(statement, mistake, words):
    result = checks.run("1.1", class_with(statement))
    assert (result.passed, result.mistake) == (False, mistake)
    assert words in result.message
    assert "Smallest case that shows it: FreeList(1), pop()" in result.message


def test_a_cpp_thread_left_running_does_no_harm():
    assert checks.run(
        "1.1",
        class_with(
            "static bool once = (std::thread([] { for (;;) {} }).detach(), true); (void)once"
        ),
    ).passed


def test_a_guard_without_a_name_is_seen_and_named():
    ours, named = read_kernel("block_manager.h"), "std::lock_guard<std::mutex> lock(mutex_);"
    for guard, mistake in {
        "std::lock_guard<std::mutex>{mutex_};": "guard-dies-at-once",
        "std::lock_guard<std::mutex>(this->mutex_);": "guard-dies-at-once",
        "std::unique_lock<std::mutex>(mutex_);": "guard-locks-nothing",
        "std::scoped_lock (mutex_);": "guard-locks-nothing",
    }.items():
        answer = ours.replace(named, guard, 1)
        assert checks.find("1.3").name_from_text(answer) == mistake
    assert checks.run("1.3", answer).mistake == mistake


def leaves_python(num_tokens, block_size):
    raise SystemExit(3)


def leaves_a_thread(num_tokens, block_size):
    import threading

    threading.Thread(target=time.sleep, args=(60,)).start()
    return -(-num_tokens // block_size)


def test_python_that_ends_its_process_becomes_a_message():
    result = checks.run("0.1", leaves_python)
    assert (result.passed, result.mistake) == (False, "exited")
    assert "exit(3)" in result.message


def test_a_python_thread_left_running_does_no_harm():
    assert checks.run("0.1", leaves_a_thread).passed


@pytest.mark.parametrize("exercise", every_exercise(), ids=lambda exercise: exercise.id)
def test_every_stub_is_not_attempted(exercise):
    result = checks.run(exercise.id, stub(exercise))
    assert (result.passed, result.mistake) == (False, "not-attempted"), result.message
    assert re.search(f"`{exercise.answer_name}` is still the (stub|text)", result.message)


def test_an_answer_that_carries_a_lock_along_says_so():
    import threading

    lock = threading.Lock()
    result = checks.run("0.1", lambda num_tokens, block_size: lock)
    assert result.mistake == "not-an-answer" and "should use its arguments" in result.message


def test_a_compiler_error_comes_at_the_learners_line():
    result = checks.run(
        "1.1",
        "\n"
        "#include <vector>\n"
        "class FreeList {\n"
        "  int pop() { return ids.bak(); }\n"
        "  std::vector<int> ids;\n"
        "};",
    )
    assert result.mistake == "does-not-compile"
    assert result.message.startswith("It could not be built.\nyour code, line 4: ")
    assert "has no member named 'bak'" in result.message and "note:" not in result.message
    assert "    int pop() { return ids.bak(); }\n" in result.message


@pytest.mark.parametrize(
    "source",
    [
        "#include <vector>\nclass FreeList {\n public:\n  int pop() { return 0; }\n}",
        "#include <vector>\n#if 1\nclass FreeList {};",
    ],
)
def test_a_missing_brace_or_semicolon_is_the_learners_line_not_ours(source):
    result = checks.run("1.1", source)
    assert result.mistake == "does-not-compile" and "your code, line" in result.message, (
        result.message
    )


def test_memory_that_grows_for_ever_ends_before_the_machines_memory():
    # which takes milliseconds
    answer = class_with("for (;;) { char* volatile untouched = new char[1 << 20]; }")
    result = checks.run("1.1", answer)
    assert "bad_alloc" in result.message and "Smallest case" in result.message


@pytest.mark.slow
def test_an_answer_that_keeps_all_memory_gets_its_verdict():
    def answer(num_tokens, block_size, kept=[]):  # noqa: B006
        import numpy as np

        for size in (1 << 26, 1 << 20, 1 << 14, 1 << 8):
            with contextlib.suppress(MemoryError):
                while True:
                    kept.append(np.empty(size, np.uint8))  # reserved, not written
        return 3

    result = checks.run("0.1", answer)
    assert result.mistake == "wrong" and "Smallest case that shows it" in result.message


@pytest.mark.slow
def test_a_hang_after_a_first_failure_is_a_result_like_any_other():
    def answer(num_tokens, block_size):
        while num_tokens:
            pass
        return 1

    assert checks.run("0.1", answer).mistake == "timed-out"


@pytest.mark.slow
def test_an_answer_that_fails_gets_further_time_to_be_named():
    slow_calls = []

    def answer(num_tokens, block_size):
        if num_tokens % block_size and len(slow_calls) < 2:
            slow_calls.append(time.thread_time())
            while time.thread_time() < slow_calls[-1] + 2.6:  # of five seconds in all
                pass
        return num_tokens // block_size

    assert checks.run("0.1", answer).mistake == "floor-division"


@pytest.mark.slow(nightly=True)
def test_a_build_may_take_longer_than_a_run(monkeypatch, tmp_path):
    compiler = CompilerScript(monkeypatch, tmp_path, f"sleep 12\n{PASS_ON}")
    monkeypatch.setenv("LESSONS_BUILD_DIR", str(tmp_path / "builds"))
    program = (
        "from lessons_lib import checks\nfrom answers import our_answer\n"
        'print(checks.run("1.1", our_answer(checks.find("1.1"))))'
    )
    done = python("-c", program, PYTHONPATH=f"{ROOT}:{ROOT / 'tests/support/exercises'}")
    assert "passed=True" in done.stdout, done.stdout + done.stderr
    assert compiler.compiled()  # and waited for longer than a run has


def test_odd_values_are_shown_and_break_nothing():
    class Unshowable:
        def __repr__(self):
            raise ValueError("no")

        def __eq__(self, other):
            raise ValueError("no")

    class Stop(BaseException):
        def __str__(self):
            raise ValueError("no")

    def stops(num_tokens, block_size):
        raise Stop

    def generates(num_tokens, block_size):
        yield 1

    assert "cannot be shown" in checks.run("1.1", Unshowable()).message
    assert checks.run("0.1", stops).mistake == "wrong"
    assert " at 0x" not in checks.run("0.1", generates).message
    assert checks.run("1.5", lambda manager, blocks: Unshowable()).mistake == "wrong"


def test_a_wrong_answer_gets_the_same_message_each_time():
    messages = {
        checks.run("1.6", lambda manager, pool, blocks, position, value: None).message
        for _ in range(2)
    }
    assert len(messages) == 1


def test_only_what_was_printed_on_the_shown_case_is_shown():
    def blocks_needed(num_tokens, block_size):
        print(f"called with {num_tokens}")
        return num_tokens // block_size

    message = checks.run("0.1", blocks_needed).message
    shown, _, printed = message.partition("Your code printed:\n")
    assert printed.count("called with") == 1 and f"num_tokens={printed.split()[-1]}" in shown


def test_what_is_printed_before_a_crash_is_that_cases():
    def blocks_needed(num_tokens, block_size):
        print(f"called with {num_tokens}")
        if num_tokens > 1:
            __import__("os").abort()
        return -(-num_tokens // block_size)

    result = checks.run("0.1", blocks_needed)
    assert result.mistake == "crashed" and result.message.count("called with") == 1


@pytest.mark.parametrize(
    "statement, words",
    [
        ("return block_ids_[7];", "An index is past the end of its container."),
        ("return std::vector<int>().back();", "An empty container has no first and no last"),
    ],
)
def test_the_librarys_own_assertions_are_in_plain_words(statement, words):
    answer = our_answer(checks.find("1.1")).replace("return block_id;", statement)
    message = checks.run("1.1", answer).message
    assert words in message and "Assertion" not in message and "/bits/" not in message


def test_pytorch_has_one_thread_where_an_answer_runs():
    def blocks_needed(num_tokens, block_size):
        import torch

        return f"{torch.get_num_threads()} threads"

    assert "'1 threads'" in checks.run("0.1", blocks_needed).message


def test_what_an_answer_prints_comes_last_and_not_of_one_that_passes():
    def blocks_needed(num_tokens, block_size):
        print("words", "x" * 2_000)
        return -(-num_tokens // block_size) - (num_tokens == 2)

    message = checks.run("0.1", blocks_needed).message
    assert message.endswith(f"\nYour code printed:\nwords {'x' * 994}")
    assert not checks.run("0.1", lambda n, size: print(n) or -(-n // size)).message
