"""All mutants of a file."""

from pathlib import Path

from .cpp_text import cpp_mutants
from .mutant import Mutant


def mutants_of(root: Path, file: str) -> list[Mutant]:
    text = (root / file).read_text(encoding="utf-8")
    if not file.endswith(".py"):
        return cpp_mutants(file, text)
    from .python_text import python_mutants  # needs mutmut; C++ does not

    return python_mutants(file, text)
