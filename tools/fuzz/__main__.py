"""Searches for texts and calls that break something: `python -m tools.fuzz [SECONDS]`.

Both fuzzers are guided by coverage: libFuzzer for the block manager's C++ (it needs clang),
and Atheris for the code that reads a learner's CUDA. Each runs for that many seconds.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from lessons_lib.paths import ROOT
from tools.extras import ready

HERE = Path(__file__).parent
CLANG = (
    *("clang++", "-std=c++17", "-g", "-O1", "-fsanitize=fuzzer,address,undefined"),
    *("-fno-sanitize-recover=all", "-Ikernels"),
)


def main(words: list[str]) -> int:
    """Returns 0 if nothing broke."""
    ready("fuzz")
    options = [f"-max_total_time={words[0] if words else 60}", "-print_final_stats=1"]
    options.append("-artifact_prefix=fuzz-")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("blocks", "texts"):
            Path(folder, name).mkdir()
        program = f"{folder}/block_manager"
        steps = (
            [*CLANG, str(HERE / "block_manager.cpp"), "-o", program],
            [program, *options, "-max_len=400", f"{folder}/blocks"],
            [sys.executable, str(HERE / "cuda_text.py"), *options, "-max_len=4000"]
            + ["-timeout=10", f"-dict={HERE / 'cuda.dict'}", f"{folder}/texts"],
        )
        for step in steps:
            run = subprocess.run(step, cwd=ROOT)
            if run.returncode:
                return run.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
