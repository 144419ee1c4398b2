"""Installs FlashInfer on a GPU machine that cannot download anything.

On a machine with internet, for the other machine's Python and its x86-64 Linux:

    python -m tools.bench flashinfer_setup pack FOLDER --python 3.12

The package has about 30 MB. FlashInfer's wheel of 60 MB holds the sources of all its kernels.
Files that attention on an Ampere or Hopper GPU does not need are left out, so 12 MB remain.
The other wheels are packages that FlashInfer imports and that a machine with PyTorch and
transformers may lack. On the GPU machine, which needs nvcc and ninja:

    python -m tools.bench flashinfer_setup unpack FOLDER SITE
    export PYTHONPATH=SITE FLASHINFER_WORKSPACE_BASE=/tmp

A kernel is compiled when it is first called, which takes half a minute to several minutes. The
benchmarks `ladder` and `path_b` compile their kernels beforehand, several at once. Compiled
kernels are kept under FLASHINFER_WORKSPACE_BASE.
"""

import argparse
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

VERSION = "0.7.2.post1"
NEEDS = (
    "apache-tvm-ffi<0.2",
    "nvidia-cudnn-frontend",
    "click",
    "einops",
    "tabulate",
    "nvidia-ml-py",
)
PLATFORMS = tuple(
    f"manylinux{suffix}_x86_64" for suffix in ("_2_28", "_2_27", "_2_24", "_2_17", "2014")
)
ARCHIVE = "flashinfer.tar.xz"
# Files for kernels other than attention and for other cards; CUTLASS's tests and examples.
LEFT_OUT = (
    "data/csrc/cake_*",
    "data/csrc/kda",
    "data/csrc/gdn",
    "data/csrc/blackwell_*",
    "data/csrc/experimental",
    "data/csrc/alphamoe*",
    "data/csrc/generated",
    "data/csrc/nv_internal",
    "data/csrc/fused_moe",
    "data/cutlass/test",
    "data/cutlass/examples",
    "data/cutlass/python",
    "experimental/*/csrc",
)


def download(folder: Path, packages: Sequence[str], *options: str) -> None:
    """Downloads wheels of these packages without dependencies. Raises CalledProcessError."""
    _pip("download", "--dest", str(folder), *options, *packages)


def _pip(command: str, *words: str) -> None:
    pip = [sys.executable, "-m", "pip", command, "--quiet", "--no-deps"]
    subprocess.run([*pip, *words], check=True)


def wheels_for(python: str) -> list[str]:
    """pip's options for wheels of a Python such as "3.12" on x86-64 Linux."""
    platforms = (word for platform in PLATFORMS for word in ("--platform", platform))
    options = ["--only-binary=:all:", "--implementation", "cp", "--python-version", python]
    return [*options, *platforms]


def pack(folder: Path, python: str) -> None:
    """Writes the archive and the wheels for a Python such as "3.12". Makes the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    download(folder, NEEDS, *wheels_for(python))
    with tempfile.TemporaryDirectory() as scratch:
        download(Path(scratch), [f"flashinfer-python=={VERSION}"])
        (wheel,) = Path(scratch).glob("flashinfer_python-*.whl")
        site = Path(scratch, "site")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
        leave_out(site / "flashinfer", LEFT_OUT, f"FlashInfer {VERSION}")
        with tarfile.open(folder / ARCHIVE, "w:xz") as archive:
            archive.add(site, ".")


def leave_out(package: Path, patterns: Sequence[str], version: str) -> None:
    """Removes files. version: a name and a version, for the error.

    Raises FileNotFoundError if one is missing, because another version has other files.
    """
    for pattern in patterns:
        found = [*package.glob(pattern)]
        if not found:
            raise FileNotFoundError(
                f"{version} has no {pattern}; LEFT_OUT was written for another version"
            )
        for path in found:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def unpack(folder: Path, site: Path) -> None:
    """Installs the files of `pack` into the folder `site`, for PYTHONPATH.

    Raises CalledProcessError.
    """
    site.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / ARCHIVE) as archive:
        archive.extractall(site, filter="data")
    install(sorted(folder.glob("*.whl")), site)


def install(wheels: Sequence[Path], site: Path) -> None:
    """Installs wheels into the folder `site`. Raises CalledProcessError."""
    _pip("install", "--no-index", "--upgrade", "--target", str(site), *map(str, wheels))


Parsers = tuple[argparse.ArgumentParser, argparse.ArgumentParser]


def parsers(module: str, description: str | None) -> Parsers:
    """The parser of a command with `pack` and `unpack`, and the parser of its `pack`."""
    parser = argparse.ArgumentParser(
        f"python -m tools.bench.{module}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack")
    unpacking = commands.add_parser("unpack")
    for command in (packing, unpacking):
        command.add_argument("folder", type=Path)
    packing.add_argument(
        "--python",
        default=f"{sys.version_info.major}.{sys.version_info.minor}",
        metavar="3.12",
    )
    unpacking.add_argument("site", type=Path)
    return parser, packing


def main(words: Sequence[str] | None = None) -> None:
    parser, _ = parsers("flashinfer_setup", __doc__)
    arguments = parser.parse_args(words)
    if arguments.command == "pack":
        pack(arguments.folder, arguments.python)
    else:
        unpack(arguments.folder, arguments.site)


if __name__ == "__main__":
    main()
