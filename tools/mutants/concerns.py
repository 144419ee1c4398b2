"""Reads concerns.toml: the files that get mutants, and the tests that concern each file."""

import tomllib
from pathlib import Path

KINDS = {".py", ".h", ".cpp", ".cu", ".cuh"}


class Concerns:
    """The table in concerns.toml.

    tests: the tests of each file or folder, quickest first.
    elsewhere: files that other processes run too.
    imports: modules that tests need and that take long to import.
    patience: processor seconds that a test may take on top of three times its usual time.
    """

    def __init__(self, root: Path):
        self.root = root
        data = tomllib.loads((root / "tools/mutants/concerns.toml").read_text())
        self.imports, self.patience = data.get("imports", []), data["patience"]
        self._tests, self._elsewhere = data["tests"], data.get("elsewhere", [])

    def files(self, chosen: list[str] = ()) -> list[str]:
        """The files under each of `chosen` (a file or a folder), or all files in the table.

        Raises ValueError for a name that is not in the table.
        """
        files = []
        for name in chosen or self._tests:
            path = self.root / name
            inside = sorted(path.rglob("*")) if path.is_dir() else [path]
            found = [
                str(file.relative_to(self.root))
                for file in inside
                if file.is_file() and file.suffix in KINDS
            ]
            found = [file for file in found if self._entry(self._tests, file)]
            if not found:
                raise ValueError(f"{name}: no file there that concerns.toml gives tests to")
            files += found
        return [*dict.fromkeys(files)]

    def tests(self, file: str) -> list[str]:
        return self._tests[self._entry(self._tests, file)]

    def elsewhere(self, file: str) -> bool:
        return any(file == name or file.startswith(f"{name}/") for name in self._elsewhere)

    def names(self) -> list[str]:
        """Every file, folder and test in the table."""
        return [
            *self._tests,
            *self._elsewhere,
            *(test for tests in self._tests.values() for test in tests),
        ]

    @staticmethod
    def _entry(table: dict, file: str) -> str:
        """The longest name in the table that is the file or a folder above it, or ""."""
        return max(
            (name for name in table if file == name or file.startswith(f"{name}/")),
            key=len,
            default="",
        )
