"""Installs vLLM on a GPU machine that cannot download anything.

On a machine with internet, for the other machine's Python and its x86-64 Linux:

    python -m tools.bench vllm_setup pack FOLDER --python 3.12

The package has about 36 MB; vLLM's wheel has 304 MB. Machine code for cards other than Hopper
is left out, and so are libraries that a dense model in bfloat16 does not need. Small packages
that vLLM imports are added. Some that it imports and does not use have stand-ins:
`vllm_stand_ins.py`. On the GPU machine, which has PyTorch, transformers and Triton:

    python -m tools.bench vllm_setup unpack FOLDER SITE
    export PYTHONPATH=$PWD:SITE/course
    python -m tools.bench engine_peers --peers vllm --site SITE

SITE/vllm is for vLLM's process alone. SITE/course has what the course needs and a machine with
PyTorch may lack.
"""

import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tools.bench import flashinfer_setup
from tools.bench.fatbins import keep_card

VERSION = "0.26.0"
NEEDS = (
    *("pydantic==2.14.4", "pydantic-core==2.50.5", "annotated-types==0.8.0"),
    *("typing-inspection==0.4.5", "msgspec==0.22.0", "pyzmq==27.3.0", "cachetools==8.0.2"),
    *("blake3==1.0.11", "cbor2==6.3.0", "pybase64==1.5.1", "fastapi<0.137", "starlette"),
)
COURSE_NEEDS = ("msgspec", "tornado")
LEFT_OUT = (
    *("vllm-rs", "vllm_flash_attn/_vllm_fa2_C*", "_qutlass_C.abi3.so"),
    "_moe_C_stable_libtorch.abi3.so",
    *("third_party/deep_gemm", "third_party/fmha_sm100", "third_party/tml_fa4"),
)
LIBRARY = "_C_stable_libtorch.abi3.so"  # with code for many cards
ARCHIVE = "vllm.tar.xz"
STAND_INS = Path(__file__).with_name("vllm_stand_ins.py")


def pack(folder: Path, python: str) -> None:
    """Writes the archive, and the course's wheels, into a folder. Makes the folder.

    python: the other machine's version, such as "3.12".
    Raises CalledProcessError if pip fails, and FileNotFoundError for another vLLM.
    """
    options = flashinfer_setup.wheels_for(python)
    folder.mkdir(parents=True, exist_ok=True)
    flashinfer_setup.download(folder, COURSE_NEEDS, *options)
    with tempfile.TemporaryDirectory() as scratch:
        wheels, site = Path(scratch, "wheels"), Path(scratch, "site")
        flashinfer_setup.download(wheels, [f"vllm=={VERSION}", *NEEDS], *options)
        for wheel in wheels.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(site)
        flashinfer_setup.leave_out(site / "vllm", LEFT_OUT, f"vLLM {VERSION}")
        library = site / "vllm" / LIBRARY
        code = bytearray(library.read_bytes())
        keep_card(code)
        library.write_bytes(code)
        with tarfile.open(folder / ARCHIVE, "w:xz") as archive:
            archive.add(site, ".")


def unpack(folder: Path, site: Path) -> None:
    """Installs the files of `pack` into SITE/vllm and SITE/course.

    Raises FileNotFoundError for a folder that `pack` did not write, and CalledProcessError.
    """
    with tarfile.open(folder / ARCHIVE) as archive:
        archive.extractall(site / "vllm", filter="data")
    # Python imports a module of this name in each process that has the folder on its path.
    shutil.copy(STAND_INS, site / "vllm" / "sitecustomize.py")
    flashinfer_setup.install(sorted(folder.glob("*.whl")), site / "course")


def main(words: Sequence[str] | None = None) -> None:
    parser, _ = flashinfer_setup.parsers("vllm_setup", __doc__)
    arguments = parser.parse_args(words)
    if arguments.command == "pack":
        pack(arguments.folder, arguments.python)
    else:
        unpack(arguments.folder, arguments.site)


if __name__ == "__main__":
    main()
