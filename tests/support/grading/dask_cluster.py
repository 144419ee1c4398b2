"""A scheduler of Dask and its workers, on this machine."""

import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def site() -> str:
    """Where Dask is installed."""
    return str(Path(importlib.util.find_spec("distributed").origin).parent.parent)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class DaskCluster:
    """Processes that end with the `with` statement. Kept by the names of the workers."""

    def __init__(self, folder: Path):
        self.folder, self.processes = folder, {}
        self.port = free_port()
        self.address = f"tcp://127.0.0.1:{self.port}"

    def __enter__(self):
        self.start_scheduler()
        return self

    def __exit__(self, *_):
        for name in [*self.processes]:
            self.kill(name)

    def start_scheduler(self, path=None, **environment):
        # they end by themselves where a test was killed and cannot end them
        words = ["--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard"]
        words += ["--idle-timeout", "600"]
        self._start(
            "scheduler", [sys.executable], "dask_scheduler", words, path, **environment
        )

    def start_worker(
        self, name: str, *words: str, python=(sys.executable,), path=None, **environment
    ):
        """path: PYTHONPATH, if it is not ours."""
        words = [
            self.address,
            *("--name", name, "--nthreads", "1", "--no-dashboard", "--no-nanny"),
            *("--death-timeout", "600"),
            *("--local-directory", str(self.folder / name)),
            *words,
        ]
        self._start(name, python, "dask_worker", words, path, **environment)

    def _start(self, name, python, program, words, path=None, **environment):
        path = [str(HERE), *sys.path] if path is None else path
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                [*python, "-m", f"distributed.cli.{program}", *words],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(path)} | environment,
                start_new_session=True,
            )

    def kill(self, name: str):
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")
