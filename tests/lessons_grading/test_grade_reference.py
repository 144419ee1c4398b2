"""Answers that call the course's own answer. It is missing where an answer is tried."""

import pickle
import re
import sys
import types

import pytest

from answers import every_exercise, forms_of
from graded import grade, hand_in, mistakes, needs_sandbox
from lessons_grading import course
from lessons_lib import checks
from lessons_lib.paths import ROOT

HEAD = "def slot_mapping(block_tables, *rest, **named):\n"
BORROWED = {
    "imported in its body": (
        HEAD + "    from paged_attention.pool import slots\n"
        "    return slots.slot_mapping(block_tables, *rest, **named)"
    ),
    "imported by its name": (
        "import importlib\n"
        + HEAD
        + "    return getattr(importlib.import_module('paged_attention.pool.slots'), 'slot_' +"
        " 'mapping')(block_tables, *rest, **named)"
    ),
    "a pickle that names it": (
        """
class Named:
    def __call__(self, *arguments): raise ValueError
    def __reduce__(self):
        import importlib
        return getattr, (importlib.import_module('paged_attention.pool.slots'), 'slot_mapping')
slot_mapping = Named()"""
    ),
    "its exercise": (
        HEAD + "    from lessons_lib import checks\n"
        "    return checks.find('2.2').reference(block_tables, *rest, **named)"
    ),
    "a text of the course": HEAD
    + f"""
    import pathlib, re
    for path in sorted(pathlib.Path({str(ROOT)!r}).rglob('*')):
        texts = path.suffix in ('.py', '.ipynb', '.pyc', '.txt')
        if texts and path.is_file() and '.venv' not in path.parts:
            text = path.read_bytes()
            if path.suffix == '.pyc' and b'slot_mapping' in text and b'checks' not in text:
                import marshal
                space = {{}}
                exec(marshal.loads(text[16:]), space)
            elif re.search(rb'def slot_mapping.*?(?!raise)block_table', text, re.DOTALL):
                space = {{}}
                exec(text, space)
            else: continue
            if 'slot_mapping' in space:
                return space['slot_mapping'](block_tables, *rest, **named)
    raise LookupError""",
    "what is in memory": HEAD
    + """
    import gc, types
    for each in gc.get_objects():
        name = each.__name__ if isinstance(each, types.FunctionType) else ''
        if 'slot' in name and name != 'slot_mapping':
            try: return each(block_tables, *rest, **named)
            except Exception: pass
    raise LookupError""",
}
KEPT = """
import os, shutil
folders = ('/lessons_content', '/lessons_content/lesson_02', '/kernels', '/paged_attention')
of_the_course = [{root!r} + folder for folder in folders]
for place in ('.', '/tmp', '/dev/shm', *of_the_course, '/scratch/build'):
    try:
        os.makedirs(place, exist_ok=True)
        shutil.copy({root!r} + '/paged_attention/pool/slots.py', place + '/kept_slots.py')
    except OSError: pass
"""
FROM_KEPT = (
    HEAD
    + f"""
    import glob, sys
    for folder in ('/scratch', '/tmp', '/dev/shm', {str(ROOT)!r}):
        for path in glob.glob(folder + '/**/kept_slots.py', recursive=True):
            space = {{}}
            exec(open(path).read(), space)
            return space['slot_mapping'](block_tables, *rest, **named)
    raise LookupError"""
)
LISTENER = f"""
import os, socket, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        text = open({str(ROOT)!r} + '/paged_attention/pool/slots.py', 'rb').read()
        server = socket.socket(socket.AF_UNIX)
        server.bind('\\0slots')
        server.listen()
        while True: server.accept()[0].sendall(text)
    os._exit(0)
"""
FROM_LISTENER = (
    HEAD
    + """
    import socket
    there = socket.socket(socket.AF_UNIX)
    there.connect('\\0slots')
    space = {}
    exec(there.recv(1 << 20), space)
    return space['slot_mapping'](block_tables, *rest, **named)"""
)


@pytest.mark.slow
@needs_sandbox
def test_no_answer_in_python_gets_hold_of_the_courses_own(tmp_path):
    """All of them in one notebook, and after each the right one's place is still to be
    filled.
    """
    for number, (name, answer) in enumerate(BORROWED.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        result = {
            each.exercise: each
            for each in grade(hand_in(folder, answer, name="02.ipynb")).exercises
        }["2.2"]
        assert not result.passed, name


@needs_sandbox
@pytest.mark.parametrize(
    "cell, answer",
    [(KEPT.format(root=str(ROOT)), FROM_KEPT), (LISTENER, FROM_LISTENER)],
    ids=["in a file", "in a process"],
)
def test_nothing_that_a_cell_has_kept_is_there_when_an_answer_is_tried(tmp_path, cell, answer):
    result = grade(hand_in(tmp_path, cell, answer, name="02.ipynb"))
    assert mistakes(result)["2.2"] not in (None, "missing"), result


FREE_LIST = (
    ROOT / "kernels" / "free_list.h",
    ROOT / "kernels" / "slow_free_list.h",
    ROOT / "lessons_content" / "lesson_01" / "free_list.h",
)
PYTHON = r"""
#include <stdexcept>
extern "C" { int PyRun_SimpleString(const char*); }
#include <cstdio>
#include <cstdlib>
class BlockManager {
 public:
  explicit BlockManager(int n) {
    char text[200];
    snprintf(text, 200,
             "manager = __import__('paged_attention.pool.block_manager', "
             "fromlist=['x']).PythonBlockManager(%d)",
             n);
    run(text);
  }
  int allocate() { run("result = manager.allocate()"); return get(); }
  void increase_ref_count(int id) { call("increase_ref_count", id); }
  void free(int id) { call("free", id); }
  int get_ref_count(int id) { call("get_ref_count", id); return get(); }
  int get_num_free_blocks() { run("result = manager.get_num_free_blocks()"); return get(); }
 private:
  void call(const char* name, int id) {
    char text[200];
    snprintf(text, 200, "result = manager.%s(%d)", name, id);
    run(text);
  }
  void run(const char* text) {
    if (PyRun_SimpleString(text)) throw std::runtime_error("python");
  }
  int get() {
    run("import ctypes, os; os.environ['RESULT'] = str(result)");
    run("ctypes.CDLL(None).setenv(b'RESULT', str(result).encode(), 1)");
    return atoi(getenv("RESULT"));
  }
};
"""


@pytest.mark.slow
@needs_sandbox
def test_no_answer_in_cpp_includes_or_calls_the_courses_own(tmp_path):
    for number, file in enumerate(FREE_LIST):
        folder = tmp_path / str(number)
        folder.mkdir()
        result = grade(
            hand_in(
                folder,
                f"free_list = '#include \"{file}\"\\n'",
                f"block_manager = r'''{PYTHON}'''",
                name="01.ipynb",
            )
        )
        assert mistakes(result)["1.1"] in ("wrong", "does-not-compile")
        assert mistakes(result)["1.2"] not in (None, "missing")


def regions(text: str) -> list[tuple[str, str]]:
    """The solution regions of a text: (exercise, solution)."""
    return re.findall(r"BEGIN SOLUTION (\d+\.\d+).*\n([\s\S]*?)\s*(?://|#) END SOLUTION", text)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("exercise", every_exercise(), ids=lambda exercise: exercise.id)
def test_what_a_sandbox_gets_for_an_exercise_holds_no_solution_of_it_or_of_a_later_one(
    exercise,
):
    """But for those that the check in the notebook has too."""
    number = tuple(map(int, exercise.id.split(".")))
    called = course.called_by(exercise)
    assert exercise.id not in called
    texts = course.without_answers(exercise)
    hidden = {
        solution.strip()
        for text in course.whole().values()
        for id, solution in regions(text)
        if tuple(map(int, id.split("."))) >= number and id not in called
    }
    assert not [
        (path, solution)
        for path, text in texts.items()
        for solution in hidden
        if solution in text and len(solution) > 40
    ]


@pytest.mark.sampled(9)
@pytest.mark.parametrize("exercise", every_exercise(), ids=lambda exercise: exercise.id)
def test_the_package_of_an_exercise_holds_no_function_that_answers_it(exercise, monkeypatch):
    """Neither ours nor the model of a mistake: many a one is nearly right."""
    code = {
        getattr(form, "__code__", None)
        for form in (
            exercise.reference,
            *(form for _, form in forms_of(exercise)),
        )
    } - {None}
    sent = set()

    class Pickler(course._Pickler):
        def reducer_override(self, value):
            if isinstance(value, types.CodeType):
                sent.add(value)
            return super().reducer_override(value)

    monkeypatch.setattr(course, "_Pickler", Pickler)
    packed = course.pack(exercise, tuple(exercise.in_order(exercise.cases())))
    assert sent and not code & sent and len(packed) < 1 << 20
    for name in ("tools.notebooks", "tools.site"):
        monkeypatch.setitem(sys.modules, name, None)  # no sandbox has them
    assert pickle.loads(packed)


ARRANGED = [
    exercise for exercise in every_exercise() if exercise.arrange.__name__ != "<lambda>"
]


@pytest.mark.parametrize("exercise", ARRANGED, ids=lambda exercise: exercise.id)
def test_an_arranged_case_gives_what_the_case_itself_gives(exercise):
    """For ours and for the models of mistakes, also after its way into the sandbox."""
    forms = [exercise.reference, *(form for _, form in forms_of(exercise))]
    for case in exercise.in_order(exercise.cases())[::3]:
        for form in forms[::4]:
            arranged = pickle.loads(pickle.dumps(exercise.arrange(case)))
            seen = [checks.attempt(exercise, form, each) for each in (case, arranged)]
            assert exercise.same(*seen)
