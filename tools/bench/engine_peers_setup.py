"""Installs nano-vllm and Mini-SGLang on a GPU machine that cannot download anything.

On a machine with internet, for the other machine's Python and its x86-64 Linux:

    python -m tools.bench engine_peers_setup pack FOLDER --python 3.12

The package has about 30 MB: FlashInfer (see `flashinfer_setup`), both engines' sources, and
wheels that they import and that a machine with PyTorch and transformers may lack. On the GPU
machine, which needs nvcc and ninja:

    python -m tools.bench engine_peers_setup unpack FOLDER SITE
    export PYTHONPATH=SITE FLASHINFER_WORKSPACE_BASE=/tmp
    python -m tools.bench engine_peers
"""

import argparse
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.bench import flashinfer_setup


@dataclass(frozen=True)
class Source:
    """One version of a peer. tree: the folder of the repository that holds the package."""

    url: str
    commit: str
    tree: str
    package: str


SOURCES = {
    "nano-vllm": Source(
        "https://github.com/GeeeekExplorer/nano-vllm",
        "bb823b3e06983d71485a8e1f23715ebd87d98ef8",
        "",
        "nanovllm",
    ),
    "Mini-SGLang": Source(
        "https://github.com/sgl-project/mini-sglang",
        "20fcd7f3c6a1898a61139fae1c97cc7a40bd8d66",
        "python",
        "minisgl",
    ),
}
NEEDS = ("pyzmq", "msgpack", "xxhash")


def pack(folder: Path, python: str, mirrors: dict[str, str] | None = None) -> None:
    """Writes the package into a folder. Makes the folder.

    python: the other machine's version, such as "3.12".
    mirrors: by peer, a repository to use instead of GitHub's.
    Raises CalledProcessError if git or pip fails.
    """
    flashinfer_setup.pack(folder / "flashinfer", python)
    flashinfer_setup.download(folder, NEEDS, *flashinfer_setup.wheels_for(python))
    for name, source in SOURCES.items():
        _archive(
            source, (mirrors or {}).get(name, source.url), folder / f"{source.package}.tar"
        )


def _archive(source: Source, repository: str, path: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        clone = ["git", "clone", "--quiet", "--no-checkout", repository, scratch]
        subprocess.run(clone, check=True)
        tree = f"{source.commit}:{source.tree}"
        archive = ["git", "-C", scratch, "archive", "-o", str(path.absolute()), tree]
        subprocess.run([*archive, source.package], check=True)


def unpack(folder: Path, site: Path) -> None:
    """Installs the files of `pack` into the folder `site`, for PYTHONPATH.

    Raises FileNotFoundError for a folder that `pack` did not write.
    """
    archives = [folder / f"{source.package}.tar" for source in SOURCES.values()]
    for path in archives:
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing: `pack` writes it")
    flashinfer_setup.unpack(folder / "flashinfer", site)
    flashinfer_setup.install(sorted(folder.glob("*.whl")), site)
    for path in archives:
        with tarfile.open(path) as archive:
            archive.extractall(site, filter="data")


def mirror(text: str) -> tuple[str, str]:
    """NAME=REPOSITORY in two parts. Raises ArgumentTypeError."""
    name, equals, repository = text.partition("=")
    if name not in SOURCES or not equals or not repository:
        names = " or ".join(f"{name}=REPOSITORY" for name in SOURCES)
        raise argparse.ArgumentTypeError(f"{text!r} is not {names}")
    return name, repository


def main(words: Sequence[str] | None = None) -> None:
    parser, packing = flashinfer_setup.parsers("engine_peers_setup", __doc__)
    packing.add_argument(
        "--mirror",
        type=mirror,
        action="append",
        default=[],
        metavar="NAME=REPOSITORY",
        help="another place to clone a peer from",
    )
    arguments = parser.parse_args(words)
    if arguments.command == "pack":
        pack(arguments.folder, arguments.python, dict(arguments.mirror))
    else:
        unpack(arguments.folder, arguments.site)


if __name__ == "__main__":
    main()
