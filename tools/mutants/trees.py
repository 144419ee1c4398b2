"""Private copies of the course, in which files are changed."""

import hashlib
import re
import shutil
import subprocess
from importlib.util import cache_from_source
from pathlib import Path

_STAND_IN = "lessons_lib/cuda_on_cpu"


class Tree:
    """A copy of `root` in `folder`, brought up to date, without the files that git ignores."""

    def __init__(self, root: Path, folder: Path):
        self.folder, self._originals = folder, {}
        self.build = folder.with_name(f"{folder.name}-build")
        self.build.mkdir(parents=True, exist_ok=True)
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        names = {name for name in listed.split("\0") if name and (root / name).is_file()}
        for old in [
            path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()
        ]:
            if str(old.relative_to(folder)) not in names and "__pycache__" not in old.parts:
                old.unlink()
        for name in names:
            old, new = folder / name, root / name
            if not old.is_file() or old.read_bytes() != new.read_bytes():
                old.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(new, old)
                self._forget(old)
        if not (folder / ".venv").exists() and (root / ".venv").exists():
            (folder / ".venv").symlink_to(root / ".venv")
        self.forget_runtime()

    def write(self, name: str, text: str):
        path = self.folder / name
        self._originals.setdefault(name, path.read_text(encoding="utf-8"))
        path.write_text(text, encoding="utf-8")
        self._forget(path)

    def restore(self, name: str):
        if name in self._originals:
            self.write(name, self._originals[name])

    def keep_kernels(self, kept: bool):
        """Whether kernels stay built when a header changes that kernels do not include."""
        self.forget_runtime()
        builds = "lessons_lib/cuda/builds.py"
        self.restore(builds)
        if kept:  # a build then depends on headers that kernels include
            headers = "".join(
                path.read_text(encoding="utf-8")
                for path in sorted(_seen_by_kernels(self.folder))
            )
            mark = hashlib.sha256(headers.encode()).hexdigest()
            self.write(
                builds,
                (self.folder / builds).read_text(encoding="utf-8")
                + f'\n_own_text = lambda: "{mark}"\n',
            )

    def forget_runtime(self):
        """Deletes a changed runtime.

        A changed runtime is built where kernels find it, so it has to go afterwards.
        """
        for folder in self.build.glob("cuda_on_cpu_*"):
            shutil.rmtree(folder, ignore_errors=True) if folder.is_dir() else folder.unlink()

    def runtime_texts(self) -> dict[bool, bytes]:
        """The preprocessor's output for the stand-in's runtime, for checked mode or not."""
        folder = self.folder / _STAND_IN
        command = ["c++", "-std=c++17", "-E", "-P", f"-I{folder}", folder / "runtime.cpp"]
        return {
            checked: (
                subprocess.run(
                    [*command, f"-DCHECKED={int(checked)}"], capture_output=True
                ).stdout
            )
            for checked in (False, True)
        }

    def builds(self) -> set[Path]:
        return {path for path in self.build.iterdir() if path.is_dir()}

    @staticmethod
    def _forget(path: Path):
        """Makes Python compile again: it looks only at a file's size and its whole seconds."""
        if path.suffix == ".py":
            Path(cache_from_source(str(path))).unlink(missing_ok=True)


def keeps_kernels(root: Path, path: str) -> bool:
    """Whether the file is part of the stand-in's runtime and no kernel includes it."""
    if not path.startswith(f"{_STAND_IN}/") or path.endswith(".py"):
        return False
    return (root / path).resolve() not in _seen_by_kernels(root)


def _seen_by_kernels(root: Path) -> set[Path]:
    return _included([*(root / _STAND_IN / "include").rglob("*")], set())


def _included(files: list[Path], found: set[Path]) -> set[Path]:
    """`files` and everything that they include, except for `found`; adds them to `found`."""
    for file in files:
        if file.is_file() and file.resolve() not in found:
            found.add(file.resolve())
            names = re.findall(
                r'^#include "(.+)"', file.read_text(encoding="utf-8"), re.MULTILINE
            )
            _included([file.parent / name for name in names], found)
    return found
