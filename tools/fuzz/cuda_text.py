"""Fuzzes the code that reads a learner's CUDA text before a compiler does, guided by coverage
(Atheris).

    python tools/fuzz/cuda_text.py -max_total_time=60 CORPUS_FOLDER

For any text, each reader gives a result or raises CompileError, whose line exists, and the
rewritten text keeps its lines. The corpus folder is filled with the course's own kernels
first, so that the fuzzer begins with real CUDA.
"""

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["lessons_lib"]):
    from lessons_lib.cuda.compiler_errors import CompileError, explain
    from lessons_lib.cuda.signatures import functions
    from lessons_lib.cuda_on_cpu.rewrite import kernels_launched, rewrite
    from lessons_lib.paths import KERNELS


def read(data: bytes) -> None:
    text = data.decode("utf-8", errors="replace")
    num_lines = text.count("\n") + 1
    for reader in (rewrite, kernels_launched, lambda text: functions({"text": text})):
        try:
            result = reader(text)
        except CompileError as error:
            assert error.line is None or 1 <= error.line <= num_lines, error
        else:
            assert reader is not rewrite or result.count("\n") + 1 == num_lines
    explain(text, {"main.cpp": text})  # a compiler's output is another text from outside


def main() -> None:
    folders = [Path(argument) for argument in sys.argv[1:] if not argument.startswith("-")]
    for path in [*KERNELS.glob("*.cu*"), *KERNELS.glob("ladder/*.cu*")] if folders else []:
        (folders[0] / path.name).write_bytes(path.read_bytes())
    atheris.Setup(sys.argv, read)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
