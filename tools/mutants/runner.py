"""Runs mutants. Each run is a fork of this process, because importing PyTorch takes long."""

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

from .child import run_tests
from .mutant import Mutant
from .trees import Tree

_NOT_BUILT = 99


@dataclass(frozen=True)
class Verdict:
    """The result of a mutant's run.

    outcome: "killed", "survived", or "not built" for C++ that does not compile.
    by: the test that failed, or the reason why the run ended.
    seconds: from start to end.
    """

    outcome: str
    by: str
    seconds: float


@dataclass
class Baseline:
    """The tests' run without a fault.

    seconds: of each test.
    lines: for each file, each line with the tests that ran it.
    cpu: processor seconds in all.
    kills: how many mutants each test has killed.
    """

    tests: list[str]
    seconds: dict[str, float]
    lines: dict[str, dict[str, list[str]]]
    cpu: float
    wall: float
    kills: Counter = field(default_factory=Counter)

    def chosen(self, mutant: Mutant, elsewhere: bool) -> dict[str, float]:
        """The tests for a mutant, each with its rank: the tests that ran its lines.

        Tests that kill often or are quick come first.
        elsewhere: whether other processes run the file too. Then any test may notice the
            mutant.
        """
        lines = self.lines.get(mutant.path, {})
        ran = {
            test
            for line in range(mutant.line, mutant.last_line + 1)
            for test in lines.get(str(line), ())
            if test
        }
        ran &= self.seconds.keys()
        wanted = self.seconds.keys() if elsewhere or not ran else ran
        return {
            test: rank
            for rank, test in enumerate(
                sorted(
                    wanted,
                    key=lambda test: (test not in ran, -self.kills[test], self.seconds[test]),
                )
            )
        }


class BrokenBaseline(Exception):
    """The tests fail without a fault, or there are no tests."""


class Runner:
    """Runs one mutant at a time in each of `workers` copies of the course.

    patience: processor seconds, as in concerns.toml.
    """

    def __init__(self, root: Path, folder: Path, workers: int, patience: float):
        self.patience = patience
        self.locks, self.trees = [], []
        for number in count():
            if len(self.trees) == workers:
                break
            # another run of this tool may use the tree
            if lock := _locked(folder / f"tree-{number}.lock"):
                self.locks.append(lock)
                self.trees.append(Tree(root, folder / f"tree-{number}"))
        self.scratch = Path(tempfile.mkdtemp(prefix="mutants-"))

    def close(self):
        shutil.rmtree(self.scratch, ignore_errors=True)
        for lock in self.locks:
            lock.close()

    def baseline(self, tests: list[str], trace: list[str], kept: bool = False) -> Baseline:
        """Runs `tests` once in each tree, so that each tree has the builds that they need.

        Raises BrokenBaseline.
        """
        for tree in self.trees:
            tree.keep_kernels(kept)
        jobs = [
            _Job(
                self,
                tree,
                None,
                dict(tests=tests, first_failure=False, trace=trace),
                limit=7200,
            )
            for tree in self.trees
        ]
        try:
            for job in jobs:
                job.wait()
        finally:
            for job in jobs:
                job.end()
        for job in jobs:
            if job.result.get("code") != 0:
                raise BrokenBaseline(
                    f"{tests} must pass first: {job.result.get('failed') or job.ending}\n"
                    f"{job.log()[-3000:]}"
                )
        result = jobs[0].result
        return Baseline(
            tests, result["seconds"], result["lines"], result["cpu"], jobs[0].seconds
        )

    def run(
        self,
        mutants: list[Mutant],
        baseline: Baseline,
        elsewhere: Callable[[str], bool],
        kept: bool = False,
    ) -> Iterator[tuple[Mutant, Verdict]]:
        """The verdict on each mutant, as soon as there is one."""
        waiting = deque(mutants)
        free = list(self.trees)
        running = []
        prepare = partial(_build_runtime, free[0].runtime_texts()) if kept else None
        try:
            while waiting or running:
                while waiting and free:
                    running.append(
                        self._start(
                            free.pop(), waiting.popleft(), baseline, elsewhere, prepare
                        )
                    )
                for job in [job for job in running if job.ended()]:
                    running.remove(job)
                    free.append(job.tree)
                    verdict = job.verdict()
                    if verdict.outcome == "killed":
                        baseline.kills[verdict.by] += 1
                    yield job.mutant, verdict
                time.sleep(0.01)
        finally:
            for job in running:
                job.end()
            for tree in self.trees:
                tree.keep_kernels(False)

    def _start(self, tree, mutant, baseline, elsewhere, prepare):
        order = baseline.chosen(mutant, elsewhere(mutant.path))
        files = [
            name
            for name in baseline.tests
            if any(test.startswith(f"{name}::") for test in order)
        ]
        # A compiler has the same limit as a test.
        patience = self.patience if mutant.path.endswith(".py") else 6 * self.patience
        limits = {test: patience + 3 * seconds for test, seconds in baseline.seconds.items()}
        words = dict(
            tests=files or baseline.tests,
            order=order,
            limits=limits | {"": patience + 3 * baseline.cpu},
        )
        return _Job(self, tree, mutant, words, limit=300 + 20 * baseline.wall, prepare=prepare)


class _Job:
    """A child process with the tests, in a tree with or without a fault."""

    def __init__(
        self,
        runner: Runner,
        tree: Tree,
        mutant: Mutant | None,
        words: dict,
        limit: float,
        prepare=None,
    ):
        self.tree = tree
        self.mutant = mutant
        self.limit = limit
        self.result = {}
        self.ending = ""
        self._files = runner.scratch / tree.folder.name
        self._builds = tree.builds()
        self._files.with_suffix(".json").unlink(missing_ok=True)
        if mutant:
            tree.write(mutant.path, mutant.text)
        self.started, self.seconds = time.monotonic(), 0.0
        sys.stdout.flush()
        self.process = os.fork()
        if not self.process:
            self._be_child(words, prepare)

    def _be_child(self, words: dict, prepare):
        code = 1
        try:
            os.setsid()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            log = os.open(
                self._files.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            )
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0), os.dup2(log, 1), os.dup2(log, 2)
            if prepare and not prepare(self.tree):
                os._exit(_NOT_BUILT)
            run_tests(self.tree.folder, result=self._files.with_suffix(".json"), **words)
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)

    def ended(self) -> bool:
        done, status = os.waitpid(self.process, os.WNOHANG)
        if not done and time.monotonic() - self.started > self.limit:
            os.killpg(self.process, signal.SIGKILL)
            done, status = os.waitpid(self.process, 0)
            self.ending = "wall-clock limit"
        if done:
            self._finish(status)
        return bool(done)

    def wait(self):
        while not self.ended():
            time.sleep(0.05)

    def end(self):
        """Ends the process if it has not ended yet."""
        if not self.seconds:
            _kill_group(self.process)
            self._finish(os.waitpid(self.process, 0)[1])

    def _finish(self, status: int):
        _kill_group(self.process)
        self.seconds = time.monotonic() - self.started
        code = os.waitstatus_to_exitcode(status)
        if code:
            how = f"exit {code}" if code > 0 else signal.Signals(-code).name
            self.ending = self.ending or ("not built" if code == _NOT_BUILT else how)
        result = self._files.with_suffix(".json")
        if result.exists():
            self.result = json.loads(result.read_text())
        shutil.rmtree(self._files.with_suffix(".tmp"), ignore_errors=True)
        if self.mutant:
            self.tree.restore(self.mutant.path)
            for folder in self.tree.builds() - self._builds:
                shutil.rmtree(folder, ignore_errors=True)

    def verdict(self) -> Verdict:
        if self.ending == "not built" or (self.ending == "" and self._does_not_compile()):
            return Verdict("not built", "", self.seconds)
        failed = self.result.get("failed")
        outcome = "survived" if self.result.get("code") == 0 and not failed else "killed"
        by = failed[0] if failed else self.ending or f"pytest's code {self.result.get('code')}"
        return Verdict(outcome, by if outcome == "killed" else "", self.seconds)

    def _does_not_compile(self) -> bool:
        """Whether the run first failed because our own changed C++ text does not compile."""
        return (
            not self.mutant.path.endswith(".py")
            and re.search(r"^E +[\w.]*CompileError: ", self.log(), re.MULTILINE) is not None
        )

    def log(self) -> str:
        path = self._files.with_suffix(".log")
        return path.read_text(errors="replace") if path.exists() else ""


def _locked(path: Path):
    """The open file, locked against other processes, or None if one of them has the lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = open(path, "w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def _kill_group(process: int):
    try:
        os.killpg(process, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _build_runtime(originals: dict[bool, bytes], tree: Tree) -> bool:
    """Compiles the changed runtimes in the places of the old ones. Returns False if it fails,
    or if there is nothing to try.

    Much of the text is only for checked mode, or for another processor. A runtime stays if the
    preprocessor's output for it has not changed. There is nothing to try if both outputs equal
    those in `originals`.
    """
    texts = tree.runtime_texts()
    if texts == originals:
        return False
    for folder in sorted(path for path in tree.build.glob("cuda_on_cpu_*") if path.is_dir()):
        built, text = folder / "built_from", texts["checked" in folder.name]
        if built.exists() and built.read_bytes() == text:
            continue
        (folder / "finished").unlink(missing_ok=True)
        program = "from lessons_lib.cuda.builds import runtime_library as build; build({})"
        again = subprocess.run(
            [sys.executable, "-c", program.format("checked" in folder.name)],
            cwd=tree.folder,
            env=os.environ | {"LESSONS_BUILD_DIR": str(tree.build)},
        )
        if again.returncode != 0:
            return False
        built.write_bytes(text)
    return True
