"""Installs vLLM on a GPU machine that cannot download anything.

On a machine with internet, for the other machine's Python and its x86-64 Linux:

    python -m tools.bench vllm_setup pack FOLDER --python 3.12

The package has about 36 MB; vLLM's wheel has 304 MB. Machine code for cards other than Hopper
is left out, and so are libraries that a dense model in bfloat16 does not need. Small packages
that vLLM imports are added; others have stand-ins (`vllm_stand_ins.py`). On the GPU machine,
which has PyTorch, transformers and Triton:

    python -m tools.bench vllm_setup unpack FOLDER SITE
    export PYTHONPATH=$PWD:SITE/course
    python -m tools.bench engine_peers --peers vllm --site SITE

SITE/vllm is for vLLM's process alone. SITE/course has what the course needs besides PyTorch.
"""

import shutil
import struct
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tools.bench import flashinfer_setup

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
LIBRARY = "vllm/_C_stable_libtorch.abi3.so"  # with code for many cards
FATBIN = struct.pack("<IHH", 0xBA55ED50, 1, 16)  # how a container of kernels begins
ARCHIVE = "vllm.tar.xz"


def pack(folder: Path, python: str) -> None:
    """Writes the archive and the course's wheels for a Python such as "3.12".

    Raises CalledProcessError if pip fails, and FileNotFoundError for another vLLM.
    """
    options = flashinfer_setup.wheels_for(python)
    folder.mkdir(parents=True, exist_ok=True)
    flashinfer_setup.download(folder, COURSE_NEEDS, *options)
    with tempfile.TemporaryDirectory() as scratch:
        wheels, site = Path(scratch, "wheels"), Path(scratch, "site")
        flashinfer_setup.download(wheels, [f"vllm=={VERSION}", *NEEDS], *options)
        for wheel in wheels.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(site)
        flashinfer_setup.leave_out(site / "vllm", LEFT_OUT, f"vLLM {VERSION}")
        code = bytearray((site / LIBRARY).read_bytes())
        keep_card(code)
        (site / LIBRARY).write_bytes(code)
        with tarfile.open(folder / ARCHIVE, "w:xz") as archive:
            archive.add(site, ".")


def keep_card(library: bytearray, card: int = 90) -> None:
    """Of each container of kernels, the card's own code (ELF) stays, or else what fits best.

    The others, which the card does not load, become zeros, which compress to nothing.
    """
    at = -1
    while (at := library.find(FATBIN, at + 1)) >= 0:
        (size,) = struct.unpack_from("<Q", library, at + 8)
        codes, begin, end = [((0, 0), 0, 0)], at + 16, at + 16 + size
        while begin < end:
            kind, _, header, size = struct.unpack_from("<HHIQ", library, begin)
            (made_for,) = struct.unpack_from("<I", library, begin + 28)
            # ELF (kind 2) runs on cards of its own generation, PTX (1) on all later ones.
            is_near = made_for <= card and (kind == 1 or made_for // 10 == card // 10)
            codes.append(((kind, made_for) if is_near else (0, 0), begin + header, size))
            begin += header + size
        for fit, begin, size in codes:
            if fit != max(codes)[0] or fit == (0, 0):
                library[begin : begin + size] = bytes(size)


def unpack(folder: Path, site: Path) -> None:
    """Installs the files of `pack` into SITE/vllm and SITE/course, or raises as it does."""
    with tarfile.open(folder / ARCHIVE) as archive:
        archive.extractall(site / "vllm", filter="data")
    # Python imports a module of this name in each process that has the folder on its path.
    stand_ins = Path(__file__).with_name("vllm_stand_ins.py")
    shutil.copy(stand_ins, site / "vllm" / "sitecustomize.py")
    flashinfer_setup.install(sorted(folder.glob("*.whl")), site / "course")


def main(words: Sequence[str] | None = None) -> None:
    parser, _ = flashinfer_setup.parsers("vllm_setup", __doc__)
    arguments = parser.parse_args(words)
    if arguments.command == "pack":
        pack(arguments.folder, arguments.python)
    else:
        unpack(arguments.folder, arguments.site)
