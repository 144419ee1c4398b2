"""A script in the place of the C++ compiler: it notes how it is called."""

from pathlib import Path

PASS_ON = 'exec c++ "$@"'


class CompilerScript:
    """The compiler until the test ends. commands: shell lines that do the work."""

    def __init__(self, monkeypatch, folder: Path, commands: str = PASS_ON):
        self.log, script = folder / "calls", folder / "compiler"
        script.write_text(f'#!/bin/sh\necho "$@" >> "{self.log}"\n{commands}\n')
        script.chmod(0o700)
        monkeypatch.setenv("CXX", str(script))

    def calls(self) -> list[list[str]]:
        """The words of each call."""
        text = self.log.read_text() if self.log.exists() else ""
        return [line.split() for line in text.splitlines()]

    def compiled(self) -> list[list[str]]:
        return [words for words in self.calls() if "-c" in words]
