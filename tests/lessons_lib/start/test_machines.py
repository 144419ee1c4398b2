"""The same course on machines that differ from ours: full disks, folders that cannot be
written or have odd names, other locales, compilers and users.

On each one a right answer passes and a wrong one is named. Where that cannot be, both are told
what is wrong with the machine, and nothing is recorded. The disks and folders are real:
bubblewrap mounts them. Most machines are for `make test-all`; `make test` takes a few.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from compiler_script import CompilerScript
from lessons_grading import confinement
from lessons_lib.paths import ROOT, SOLUTIONS
from python_process import python
from tools.notebooks.lesson_files import read_lesson

# Checks right and wrong answers, in Python and in C++, and tells what a learner would see.
LEARNER = """
import contextlib, io, json, sys
sys.path[:0] = sys.argv[1:]
from lessons_content.mistakes.edits import our_answers
from lessons_lib import CompileError, check, progress
from lessons_lib.cuda.inline import preprocess
from lessons_lib.notebook_api import CheckFailed

def blocks_needed(num_tokens, block_size):
    return -(-num_tokens // block_size)

def rounded_down(num_tokens, block_size):
    return num_tokens // block_size

rounded_down.__name__ = "blocks_needed"
ours = our_answers()["1.1"]
seen = []
for exercise, answer in (
    ("0.1", blocks_needed), ("0.1", rounded_down),
    ("1.1", ours), ("1.1", ours + "\\nint f() { return 1 }  // …"),
):
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            check(exercise, answer)
            seen.append(["passed", ""])
        except CheckFailed as failed:
            seen.append([failed.result.mistake, failed.result.message])
try:  # as a cell of lesson 06 does
    assert "int" in preprocess("#define A(b) b\\nA(int)  // …").splitlines()[-1]
    collected = ""
except CompileError as error:
    collected = str(error)
print(json.dumps([seen, progress.load(), collected]))
"""
WORKS = [
    ("0.1", "passed"),
    ("0.1", "floor-division"),
    ("1.1", "passed"),
    ("1.1", "does-not-compile"),
]
ODD = "a:b$c;d&e|f'g\"h`i j,k"


@dataclass(frozen=True)
class Machine:
    """What is different on it.

    mounts: bubblewrap's words, in which {tmp} is a folder of the test, {course} the course.
    before: shell commands that are run on it first.
    variables: of the environment; None takes one away.
    says: what the learner reads where C++ cannot be built; "" where all works.
    stops_python: whether no process can be started at all.
    """

    name: str
    mounts: str = ""
    before: str = ""
    variables: dict[str, str | None] = field(default_factory=dict)
    says: str = ""
    stops_python: bool = False
    course: str = str(ROOT)
    needs: str = ""


FULL = "--size 1048576 --tmpfs {tmp}/full"
FILL = "dd if=/dev/zero of={tmp}/full/all bs=1k 2>{tmp}/dd; true"
OURS = "paged-attention-course-$(id -u)"
READ_ONLY = "--ro-bind {course} {course} --bind {tmp} {tmp}"
NOT_SET = {"LESSONS_BUILD_DIR": None, "LESSONS_PROGRESS_DIR": None}
MACHINES = [
    Machine("nothing is different"),
    Machine(
        "the disk of builds is full",
        FULL,
        f"mkdir {{tmp}}/full/b; {FILL}",
        {"LESSONS_BUILD_DIR": "{tmp}/full/b"},
        "{tmp}/full/b cannot be written: No space left",
    ),
    Machine("the temporary folder is full", FULL, FILL, {"TMPDIR": "{tmp}/full"}),
    Machine(
        "the temporary folder is read-only",
        "--ro-bind {tmp} {tmp}/full --bind {tmp}/b {tmp}/b",
        "",
        {"TMPDIR": "{tmp}/full"},
    ),
    Machine(
        "the temporary folder has a long name",
        before="mkdir -p {tmp}/" + "long" * 50,
        variables={"TMPDIR": "{tmp}/" + "long" * 50},
    ),
    Machine(
        "the temporary folder has an odd name",
        before="mkdir -p {tmp}/" + "'odd:$x;&|`,'",
        variables={"TMPDIR": "{tmp}/odd:$x;&|`,"},
    ),
    Machine(
        "the course has an odd name",
        "--bind {course} {odd}",
        course="{odd}",
        variables={"LESSONS_BUILD_DIR": None},
    ),
    Machine("the course is read-only", READ_ONLY, variables=NOT_SET),
    Machine(
        "nothing can be written",
        "--ro-bind / / --dev /dev",
        variables=NOT_SET,
        says="cannot be written",
        stops_python=True,
    ),
    Machine(
        "CXX names what is no compiler",
        variables={"CXX": "/bin/false"},
        says="`/bin/false` (CXX names it) does not compile an empty program: unset CXX",
    ),
    Machine("there is no compiler", variables={"PATH": "{tmp}"}, says="apt-get install g++"),
    Machine(
        "the locale is Latin-1",
        before="localedef -i en_US -f ISO-8859-1 {tmp}/en_US",
        variables={"LOCPATH": "{tmp}", "LC_ALL": "en_US"},
        needs="localedef",
    ),
    Machine(
        "the locale is ASCII",
        variables={"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    ),
    Machine(
        "there are no locks",
        before="echo 'int flock(int a, int b) {{ return -1; }}' | "
        "c++ -x c - -shared -fPIC -o {tmp}/f.so",
        variables={"LD_PRELOAD": "{tmp}/f.so"},
    ),
    Machine(
        "there is no home and no account",
        "--unshare-user --uid 12345 --gid 12345",
        variables={"HOME": None, "USER": None, "LOGNAME": None},
    ),
    Machine(
        "installed, and there is no home and no account",
        "--unshare-user --uid 12345 --gid 12345 --ro-bind /dev/null {course}/pyproject.toml",
        variables={"HOME": None, "USER": None, "LOGNAME": None} | NOT_SET,
    ),
    Machine(
        "another user was first",
        READ_ONLY,
        f"mkdir -m 777 {{tmp}}/{OURS}; chown 12345 {{tmp}}/{OURS}",
        NOT_SET,
        needs="root",
    ),
    Machine(
        "our temporary folder is open to all",
        READ_ONLY,
        f"mkdir -m 777 {{tmp}}/{OURS}",
        NOT_SET,
    ),
    Machine(
        "a link is in the place of our temporary folder",
        READ_ONLY,
        f"mkdir {{tmp}}/there; ln -s there {{tmp}}/{OURS}",
        NOT_SET,
    ),
    Machine(
        "a proxy is set",
        variables={"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"},
    ),
    Machine(
        "the learner's folder has files that Python has too",
        before="cd {tmp}/learner; for name in queue copy heapq random email logging torch; "
        "do echo 'raise SystemExit(3)' > $name.py; done",
    ),
]


@pytest.mark.slow
@pytest.mark.skipif(confinement.missing() is not None, reason="needs bubblewrap")
@pytest.mark.sampled(8)
@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_an_answer_is_judged_by_what_it_does(tmp_path, machine):
    if machine.needs == "root" and os.getuid():
        pytest.skip("only root makes a folder of another user")
    if machine.needs == "localedef" and not shutil.which("localedef"):
        pytest.skip("needs localedef")
    seen, record, collected = learn_on(machine, tmp_path)
    assert not collected or machine.says and machine.says.format(tmp=tmp_path) in collected
    verdicts = [verdict for verdict, _ in seen]
    if not machine.says:
        assert verdicts == [verdict for _, verdict in WORKS], seen
        assert record == {
            "0.1": {"passed": True, "mistakes": ["floor-division"], "tries": 1},
            "1.1": {"passed": True, "mistakes": ["does-not-compile"], "tries": 1},
        }
        return
    told = slice(0 if machine.stops_python else 2, 4)
    assert verdicts[told] == ["not-judged"] * len(verdicts[told]), seen
    for _, message in seen[told]:
        assert "our own answer" in message
        assert machine.says.format(tmp=tmp_path) in message
    assert "1.1" not in record


def learn_on(machine: Machine, folder: Path) -> tuple[list, dict, str]:
    """What the learner sees there, what is recorded, and why no text can be collected."""
    for name in ("b", "learner", "full"):
        (folder / name).mkdir()
    places = {"tmp": str(folder), "odd": str(folder / ODD), "course": str(ROOT)}
    course = machine.course.format_map(places)
    python = sys.executable
    if course != str(ROOT) and Path(python).is_relative_to(ROOT):
        python = f"{course}/{Path(python).relative_to(ROOT)}"
    environment = dict(os.environ)
    usual = {
        "TMPDIR": "{tmp}",
        "LESSONS_BUILD_DIR": "{tmp}/b",
        "LESSONS_PROGRESS_DIR": "{tmp}/progress",
        "OMP_NUM_THREADS": "1",
    }
    for name, value in (usual | machine.variables).items():
        environment.pop(name, None)
        if value is not None:
            environment[name] = value.format_map(places)
    words = [word.format_map(places) for word in machine.mounts.split()]
    before = machine.before.format_map(places) or "true"
    # what comes before has the usual environment
    shell = f'( {before} ) && cd {folder}/learner && exec env "$@"'
    changed = [
        f"{key}={value}" for key, value in environment.items() if os.environ.get(key) != value
    ]
    gone = [
        word for name in machine.variables if name not in environment for word in ("-u", name)
    ]
    (folder / "learner.py").write_text(LEARNER, encoding="utf-8")
    program = [python, "-P", str(folder / "learner.py"), course]
    run = subprocess.run(
        [confinement.bubblewrap(), "--dev-bind", "/", "/", *words, "sh", "-c", shell, "sh"]
        + [*gone, *changed, *program],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, f"{run.stdout}{run.stderr}"
    return json.loads(run.stdout.splitlines()[-1])


COUNTED = """
import sys
from pathlib import Path
from lessons_content.mistakes.edits import our_answers
from lessons_lib import checks
ours, log = our_answers()["1.1"], Path(sys.argv[1])
for wrong in (
    ours + "\\nint f() { return 1 }",
    ours + "\\nint g(); int f() { return g(); }",
    "#include <vectr>\\n" + ours,
    "#include <vectorr>\\n" + ours,
):
    log.write_text("")
    verdict = checks.run("1.1", wrong).mistake
    print(verdict, len(log.read_text().splitlines()))
"""


@pytest.mark.slow
def test_only_what_may_be_the_machines_fault_is_tried_with_our_answer_and_only_once(
    monkeypatch, tmp_path
):
    """A build is two calls of the compiler, and one if the text does not compile."""
    compiler = CompilerScript(monkeypatch, tmp_path)
    builds = {"LESSONS_BUILD_DIR": str(tmp_path / "builds")}
    told = python("-c", COUNTED, compiler.log, **builds).stdout.splitlines()
    wrong = "does-not-compile"
    # a syntax error; a function without a body; a header that might be missing here; one more
    assert told == [f"{wrong} 1", f"{wrong} 2", f"{wrong} 3", f"{wrong} 1"]


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "all_proxy"])
def test_a_lessons_questions_to_its_own_server_go_through_no_proxy(monkeypatch, variable):
    """The function that lesson 11 asks with. Nothing listens where the proxy should be."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    (source,) = (
        cell.source
        for cell in read_lesson(next(SOLUTIONS.glob("11_*.py"))).cells
        if "def ask(" in cell.source
    )
    definitions = source.partition("\n\nprint(")[0]
    with HTTPServer(("127.0.0.1", 0), Echo) as server:
        Thread(target=server.handle_request, daemon=True).start()
        namespace = {"address": f"http://127.0.0.1:{server.server_port}"}
        exec(definitions, namespace)
        assert b"a prompt" in namespace["ask"](prompt="a prompt").read()


class Echo(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass
