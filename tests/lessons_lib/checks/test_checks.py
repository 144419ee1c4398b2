"""What a learner sees for answers of every kind: nothing written yet, crashes, loops, floods,
and things that are no answer.
"""

import contextlib
import linecache
import sys
import time
from dataclasses import replace

import cloudpickle
import pytest

import lessons_lib
from answers import every_exercise, our_answer, stub
from lessons_lib import checks, progress, verbs
from lessons_lib.checks import Exercise, Mistake
from lessons_lib.inline import read_kernel
from lessons_processes import isolation, one_call

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
        (
            "for (volatile bool on = true; on;) {}",
            "timed-out",
            "did not come to an end within 5 s",
        ),
        ("std::exit(0)", "exited", "ended its process (exit code 0)"),
        ("std::abort()", "crashed", "crashed its process (Aborted)"),
        ('throw std::runtime_error("no")', "wrong", "got:      RuntimeError: no"),
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


def test_megabytes_of_cpp_output_are_cut():
    result = checks.run(
        "1.1",
        class_with("for (int i = 0; i < 100000; ++i) std::cout << i << std::flush; return -5"),
    )
    assert result.mistake == "wrong" and "Your code printed:\n01234" in result.message
    assert len(result.message) < 2_000


def test_what_a_known_mistake_prints_is_not_shown_as_the_learners():
    result = checks.run(
        "5.6",
        lambda context_len, num_layers, num_kv_heads, head_size, bytes_per_number: context_len,
    )
    assert not result.passed and "printed" not in result.message


@pytest.mark.parametrize(
    "guard",
    [
        "std::lock_guard<std::mutex>{mutex_};",
        "std::unique_lock<std::mutex>(mutex_);",
        "std::scoped_lock (mutex_);",
    ],
)
def test_a_guard_without_a_name_is_seen_and_named(guard):
    answer = read_kernel("block_manager.h").replace(
        "std::lock_guard<std::mutex> lock(mutex_);", guard, 1
    )
    assert checks.run("1.3", answer).mistake == "guard-dies-at-once"


def test_the_text_of_an_answer_names_a_failure_and_makes_none():
    exercise = checks.find("6.3")
    assert exercise.name_from_text("float part[32];\n") == "array-not-shared"
    failed = checks.CheckResult(
        "6.3",
        False,
        "wrong",
        "The result is not right.\nSmallest case that shows it: 32 threads",
    )
    named = checks._named_from_text(exercise, "float part[32];\n", failed)
    assert named.mistake == "array-not-shared" and named.message.endswith(
        "\nSmallest case that shows it: 32 threads"
    )
    for other in (
        checks.CheckResult("6.3", True, None, ""),
        checks.CheckResult("6.3", False, "does-not-compile", "no"),
    ):
        assert checks._named_from_text(exercise, "float part[32];\n", other) == other
    assert checks._named_from_text(exercise, "__shared__ float part[32];\n", failed) == failed


def endless(num_tokens, block_size):
    while True:
        pass


def leaves_python(num_tokens, block_size):
    raise SystemExit(3)


def ends_the_process(num_tokens, block_size):
    import os

    os._exit(4)


def segfaults(num_tokens, block_size):
    import ctypes

    ctypes.string_at(0)


def floods(num_tokens, block_size):
    for _ in range(200):
        print("tokens " * 1_000)
    return 0


def raises(num_tokens, block_size):
    raise ValueError("no idea")


def leaves_a_thread(num_tokens, block_size):
    import threading

    threading.Thread(target=time.sleep, args=(60,)).start()
    return -(-num_tokens // block_size)


def gives_nan(num_tokens, block_size):
    return float("nan")


@pytest.mark.parametrize(
    "answer, mistake, words",
    [
        (endless, "timed-out", "did not come to an end within 5 s"),
        (leaves_python, "exited", "exit(3)"),
        (ends_the_process, "exited", "exit code 4"),
        (segfaults, "crashed", "Segmentation fault"),
        (floods, "wrong", "Your code printed:\ntokens tokens"),
        (raises, "wrong", "got:      ValueError: no idea"),
        (gives_nan, "wrong", "nan"),
    ],
)
def test_python_that_does_harm_becomes_a_message(answer, mistake, words):
    result = checks.run("0.1", answer)
    assert (result.passed, result.mistake) == (False, mistake)
    assert words in result.message and len(result.message) < 2_000


def test_a_python_thread_left_running_does_no_harm():
    assert checks.run("0.1", leaves_a_thread).passed


@pytest.mark.parametrize("answer", [None, ...])
def test_nothing_written_is_its_own_outcome(answer):
    assert checks.run("0.1", answer).mistake == "not-attempted"


@pytest.mark.parametrize("exercise", every_exercise(), ids=lambda exercise: exercise.id)
def test_every_stub_is_not_attempted(exercise):
    result = checks.run(exercise.id, stub(exercise))
    assert (result.passed, result.mistake) == (False, "not-attempted"), result.message


def test_an_answer_that_calls_an_earlier_stub_says_which():
    def block_attention(q, k, v, num_valid):
        raise NotImplementedError("Exercise 4.2")

    def forward_decoding_loop(layer, x, seq_ids, manager):
        q, k, v = layer.project(x)
        return layer.output(block_attention(q, k[:, None], v[:, None], None)[0])

    result = checks.run("4.4", forward_decoding_loop)
    assert (result.passed, result.mistake) == (False, "not-attempted")
    assert result.message == "It calls exercise 4.2, which is still the stub."


def test_nbgraders_own_stub_is_not_attempted():
    assert (
        checks.run(
            "1.1", "class FreeList {\n# YOUR CODE HERE\nraise NotImplementedError()\n};"
        ).mistake
        == "not-attempted"
    )


@pytest.mark.parametrize(
    "exercise, answer, words",
    [
        ("0.1", "a string", "expects the function `blocks_needed`, and got str"),
        ("0.1", 12, "expects the function `blocks_needed`, and got int"),
        ("1.1", len, "expects C++ source text, the string `free_list`"),
        ("1.1", b"bytes", "and got bytes"),
    ],
)
def test_something_else_than_an_answer_is_refused_with_what_was_expected(
    exercise, answer, words
):
    result = checks.run(exercise, answer)
    assert result.mistake == "not-an-answer" and words in result.message


def test_an_answer_that_carries_a_lock_along_says_so():
    import threading

    lock = threading.Lock()
    result = checks.run("0.1", lambda num_tokens, block_size: lock)
    assert result.mistake == "not-an-answer" and "should use its arguments" in result.message


def test_an_unknown_exercise_names_those_that_exist():
    with pytest.raises(KeyError, match="'1.9'; the ids here are 1.1, 1.2"):
        checks.run("1.9", len)
    with pytest.raises(KeyError, match="of the form '1.2', in the lessons 00, 01"):
        checks.run("nonsense", len)


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
        "#include <vector>\nclass FreeList {\n public:\n  int pop() { return 0; \n};",
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


@pytest.mark.heavy
def test_an_answer_that_leaves_no_memory_can_still_be_judged():
    def used_up():
        taken = []
        with contextlib.suppress(MemoryError):
            while True:
                taken.append(bytearray(1 << 24))
        one_call.use_reserve(True)
        ours = bytearray(one_call.MEMORY_RESERVE // 2)
        one_call.use_reserve(False)
        try:
            bytearray(1 << 24)
        except MemoryError:
            return len(taken) + len(ours)

    outcome = isolation.run_isolated(used_up, time_limit=60)
    assert outcome.value > one_call.MEMORY_RESERVE // 2


@pytest.mark.heavy
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


@pytest.mark.heavy
def test_a_hang_after_a_first_failure_is_a_result_like_any_other():
    def answer(num_tokens, block_size):
        while num_tokens:
            pass
        return 1

    assert checks.run("0.1", answer).mistake == "timed-out"


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


def test_a_missing_method_is_a_compiler_error_too():
    result = checks.run("1.1", "class FreeList { public: explicit FreeList(int) {} };")
    assert result.mistake == "does-not-compile" and "pop" in result.message


def test_a_wrong_answer_gets_the_same_message_each_time():
    messages = {
        checks.run("1.6", lambda manager, pool, blocks, position, value: None).message
        for _ in range(3)
    }
    assert len(messages) == 1


def narrowing(
    answer, monkeypatch, seconds: float = 0.0, mistakes=(), chancy=lambda case: False
):
    """The verdict on an answer to an exercise of 100 cases, 0 to 99, each of which takes
    `seconds` of work; and the cases on which it was tried.
    """
    work, tried = [0.0], []

    def observe(f, x):
        if f is answer:
            tried.append(x)
            work[0] += seconds
        return f(x)

    monkeypatch.setattr(checks.time, "thread_time", lambda: work[0])
    exercise = Exercise(
        id="9.9",
        title="t",
        answer_name="f",
        reference=lambda x: x,
        cases=lambda: range(100),
        size=lambda x: x,
        chancy=chancy,
        observe=observe,
        mistakes=tuple(mistakes),
        hints=("a", "b"),
    )
    return (
        checks.compare(
            exercise,
            lambda number, case: case,
            lambda number, case: observe(answer, case),
            lambda _: None,
        ),
        tried,
    )


def adds_one(x):
    return x + 1


ADDS_ONE = Mistake("adds-one", "It adds one.", lambda x: x + 1)
ADDS_ONE_UP_TO_50 = Mistake(
    "adds-one-up-to-50", "It adds one at times.", lambda x: x + (x <= 50)
)
NEVER_COMES_BACK = Mistake("stuck", "It never comes back.", lambda x: checks.Stuck("never"))


def test_all_cases_tell_mistakes_apart(monkeypatch):
    verdict, tried = narrowing(adds_one, monkeypatch, mistakes=(ADDS_ONE_UP_TO_50, ADDS_ONE))
    assert verdict.mistake == "adds-one" and tried == [*range(100)]


def test_no_further_case_is_tried_when_no_mistake_is_left(monkeypatch):
    verdict, tried = narrowing(
        lambda x: x + 1 + (x == 7), monkeypatch, mistakes=(ADDS_ONE, ADDS_ONE_UP_TO_50)
    )
    assert verdict.mistake == "wrong" and tried == [*range(8)]


def test_telling_mistakes_apart_ends_after_so_much_work(monkeypatch):
    verdict, tried = narrowing(adds_one, monkeypatch, 0.3, (ADDS_ONE, ADDS_ONE_UP_TO_50))
    # the first, and four of 0.3 s each: past the 1 s
    assert verdict.mistake == "adds-one" and tried == [*range(5)]


def test_telling_mistakes_apart_ends_after_some_waits_in_vain(monkeypatch):
    verdict, tried = narrowing(
        lambda x: checks.Stuck("never"), monkeypatch, mistakes=(NEVER_COMES_BACK,)
    )
    assert verdict.mistake == "stuck" and tried == [*range(1 + checks.NARROWING_WAITS)]


def test_how_long_it_takes_by_the_clock_changes_no_name(monkeypatch):
    clock = iter(range(0, 10**9, 1_000))
    monkeypatch.setattr(checks.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(checks.time, "perf_counter", lambda: next(clock))
    assert (
        narrowing(adds_one, monkeypatch, mistakes=(ADDS_ONE_UP_TO_50, ADDS_ONE))[0].mistake
        == "adds-one"
    )


def test_a_case_that_a_race_decides_tells_no_mistakes_apart(monkeypatch):
    verdict, tried = narrowing(
        lambda x: x + 1 - (x % 2),
        monkeypatch,
        mistakes=(ADDS_ONE,),
        chancy=lambda x: x % 2 == 1,
    )
    assert verdict.mistake == "adds-one" and tried == [*range(0, 100, 2)]


def test_a_further_form_of_a_mistake_explains_an_answer_too(monkeypatch):
    forms = Mistake(
        "two-forms", "Of two forms.", None, also=(lambda x: x + 2, lambda x: x + 1)
    )
    assert narrowing(adds_one, monkeypatch, mistakes=(forms,))[0].mistake == "two-forms"
    # what the first form, None, would give
    as_none = checks.Raised("TypeError: 'NoneType' object is not callable")
    assert narrowing(lambda x: as_none, monkeypatch, mistakes=(forms,))[0].mistake == "wrong"


@pytest.mark.parametrize(
    "words, message",
    [
        ("Exercise 9.9", "`f` is still the stub."),
        ("", "`f` is still the stub."),
        ("Exercise 1.2", "It calls exercise 1.2, which is still the stub."),
    ],
)
def test_a_stub_that_is_reached_is_named(monkeypatch, words, message):
    verdict, _ = narrowing(
        lambda x: checks.Raised(f"NotImplementedError: {words}"), monkeypatch
    )
    assert (verdict.mistake, verdict.message) == ("not-attempted", message)


def test_an_answer_that_is_wrong_later_is_not_given_an_earlier_mistakes_name():
    """Two faults at once fit no single mistake; the check says what it saw and guesses
    nothing.
    """
    exercise = Exercise(
        id="9.9",
        title="t",
        answer_name="f",
        reference=lambda x: x,
        cases=lambda: range(5),
        observe=lambda f, x: f(x),
        size=abs,
        mistakes=(
            Mistake("adds-one", "It adds one.", lambda x: x + 1, also=(lambda x: x + 7,)),
        ),
        hints=("a", "b"),
    )
    failure = checks.Failure(0, "0", "1", suspects=(("adds-one", 0),))
    assert checks._verdict(exercise, failure).mistake == "adds-one"
    candidates = ("adds-one", 0), ("adds-one", 1)
    assert checks._suspects(exercise, candidates, [(0, 0, 1), (1, 1, 7)]) == ()
    assert checks._suspects(exercise, candidates, [(0, 0, 1), (1, 1, 2)]) == (("adds-one", 0),)
    mixed = {0: 1, 1: 8}  # each of the two forms explains one of the cases, and neither both
    assert (
        checks.compare(
            replace(exercise, cases=lambda: mixed),
            lambda _, x: x,
            lambda _, x: mixed[x],
            lambda _: None,
        ).mistake
        == "wrong"
    )


def test_check_raises_for_headless_runs_and_shows_one_line(capsys):
    with pytest.raises(lessons_lib.CheckFailed) as caught:
        lessons_lib.check("0.1", lambda num_tokens, block_size: num_tokens // block_size)
    assert str(caught.value) == "exercise 0.1: floor-division"
    assert caught.value._render_traceback_() == ["CheckFailed: exercise 0.1: floor-division"]
    shown = capsys.readouterr().out
    assert shown.startswith("✗ Exercise 0.1, blocks needed: not yet (floor-division)")
    assert 'hint("0.1")' in shown


def test_check_raises_not_attempted_and_remembers_nothing_of_it():
    before = progress.load()
    with pytest.raises(lessons_lib.NotAttempted):
        lessons_lib.check("1.2", None)
    assert progress.load() == before


def test_progress_keeps_a_pass_and_the_mistakes_on_the_way(capsys):
    with pytest.raises(lessons_lib.CheckFailed):
        lessons_lib.check("0.1", lambda num_tokens, block_size: num_tokens / block_size)
    lessons_lib.check("0.1", lambda num_tokens, block_size: -(-num_tokens // block_size))
    with pytest.raises(lessons_lib.CheckFailed):
        lessons_lib.check("0.1", lambda num_tokens, block_size: num_tokens / block_size)
    entry = progress.load()["0.1"]
    assert entry["passed"] and entry["mistakes"].count("fraction-of-a-block") == 1
    lessons_lib.progress_bar("00")
    count = len(checks.exercises_of("00"))
    assert f"Lesson 00: 1 of {count} exercises passed" in capsys.readouterr().out


def test_a_spoilt_progress_file_is_no_obstacle():
    progress._file().write_text("{ not json")
    assert progress.load() == {}
    progress.remember("0.1", True, None)
    assert progress.load()["0.1"]["passed"]


@pytest.mark.parametrize(
    "entry",
    [
        '{"passed": true}',
        '{"mistakes": []}',
        '{"passed": 1, "mistakes": []}',
        '{"passed": true, "mistakes": null}',
        '{"passed": true, "mistakes": "none"}',
        "{}",
    ],
)
def test_an_entry_of_progress_that_lacks_something_is_forgotten_and_the_others_are_kept(entry):
    progress._file().write_text(
        f'{{"0.1": {entry}, "1.1": {{"passed": true, "mistakes": ["no-push"]}}}}'
    )
    assert progress.load() == {"1.1": {"passed": True, "mistakes": ["no-push"]}}
    progress.remember("0.1", False, "floor-division")
    assert progress.load() == {
        "0.1": {"passed": False, "mistakes": ["floor-division"]},
        "1.1": {"passed": True, "mistakes": ["no-push"]},
    }


@pytest.mark.parametrize("text", ["[]", "3", '"0.1"', '{"0.1": []}', '{"0.1": null}', "\xff"])
def test_a_progress_file_of_another_kind_is_no_obstacle(text):
    progress._file().write_bytes(text.encode("latin-1"))
    assert progress.load() == {}


def test_hints_come_one_at_a_time(capsys):
    verbs._hints_shown.clear()
    count = len(checks.find("1.2").hints)
    for number in range(1, count + 1):
        lessons_lib.hint("1.2")
        assert f"Hint {number} of {count} for exercise 1.2" in capsys.readouterr().out
    lessons_lib.hint("1.2")
    assert 'solution("1.2")' in capsys.readouterr().out


@pytest.mark.parametrize("exercise", every_exercise(), ids=lambda exercise: exercise.id)
def test_solution_shows_our_answer_without_markers(exercise, capsys):
    lessons_lib.solution(exercise.id)
    shown = capsys.readouterr().out
    assert exercise.answer_name in shown and "BEGIN SOLUTION" not in shown


def test_cards_read_as_text_and_as_html():
    from lessons_lib.display import Card

    card = Card("A <title>", "See `a < b`.\n  int x;\n  int y;", tone="failed")
    assert repr(card) == "✗ A <title>\n  See `a < b`.\n    int x;\n    int y;"
    assert (
        "A &lt;title&gt;" in card._repr_html_()
        and "<code>a &lt; b</code>" in card._repr_html_()
    )
    assert "int x;\nint y;</pre>" in card._repr_html_()


def cell_function(source: str, name: str):
    """A function as a cell of a notebook defines it: it has lines, and no file."""
    file, namespace = "/tmp/ipykernel_1/2.py", {}
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    exec(compile(source, file, "exec"), namespace)
    return namespace[name]


def test_an_exception_is_shown_with_the_learners_line():
    answer = cell_function(
        """\
        def blocks_needed(num_tokens, block_size):
            whole = num_tokens.lenght // block_size
            return whole
        """.replace("        def", "def").replace("            ", "    "),
        "blocks_needed",
    )
    message = checks.run("0.1", answer).message
    assert "got:      AttributeError: 'int' object has no attribute 'lenght'" in message
    assert "raised in line 2: `whole = num_tokens.lenght // block_size`" in message


def test_a_line_deep_in_a_library_is_not_the_learners():
    raised = None
    try:
        cell_function("import json\ndef f():\n    return json.loads('{')\n", "f")()
    except ValueError as error:
        raised = checks.raised(error)
    assert (
        raised.startswith("JSONDecodeError")
        and raised.where == "line 3: `return json.loads('{')`"
    )


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


@pytest.mark.parametrize(
    "exercise",
    [exercise for exercise in every_exercise() if exercise.language == "python"],
    ids=lambda exercise: exercise.id,
)
def test_the_learners_own_exception_is_shown_with_its_line(exercise):
    begin = f"def {exercise.answer_name}(*arguments, **named):"
    if isinstance(exercise.reference, type):
        begin = f"class {exercise.answer_name}:\n  def __init__(self, *arguments, **named):"
    source = f"{begin}\n    pass\n    arguments.lenght += 1\n"
    message = checks.run(exercise.id, cell_function(source, exercise.answer_name)).message
    assert "AttributeError: 'tuple' object has no attribute 'lenght'" in message
    number = source.split("\n").index("    arguments.lenght += 1") + 1
    assert f"raised in line {number}: `arguments.lenght += 1`" in message


def test_forms_without_a_record_are_tried_for_so_much_work(monkeypatch):
    work = [0.0]

    def slow(x):
        work[0] += 2.0
        return x + 1

    monkeypatch.setattr(checks.time, "thread_time", lambda: work[0])
    exercise = Exercise(
        id="9.9",
        title="t",
        answer_name="f",
        reference=lambda x: x,
        cases=lambda: range(5),
        observe=lambda f, x: f(x),
        size=abs,
        mistakes=[Mistake(name, "Slow.", slow) for name in "abcdef"],
        hints=("a", "b"),
    )
    found = checks._suspects(exercise, checks._every_form(exercise), [(0, 0, 1)])
    assert [slug for slug, _ in found] == ["a", "b", "c"] and work[0] > checks.NAMING_WORK


def test_naming_is_not_the_answers_time(monkeypatch):
    """The limit begins anew when an answer has failed, once."""
    given = []

    def run_isolated(*arguments, time_limit, on_report, **named):
        failure = checks.Failure(2, "0", "1")
        reports = (0, None), (2, None), (2, failure), (3, failure)
        given.extend(map(on_report, reports))
        return checks.isolation.Outcome("timed out", last_report=(3, failure), detail="5 s")

    monkeypatch.setattr(checks.isolation, "run_isolated", run_isolated)
    exercise = checks.find("0.1")
    assert not checks.run("0.1", lambda num_tokens, block_size: 0).passed
    assert given == [None, None, exercise.time_limit + checks.NAMING_WORK, None]
