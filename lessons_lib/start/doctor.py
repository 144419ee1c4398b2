"""Shows what this machine can do: `python -m lessons_lib.start.doctor`, and lesson 00."""

import html
import importlib.metadata
import platform
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from lessons_lib import installation
from lessons_lib.cuda.compiler import compiler


@dataclass(frozen=True)
class Finding:
    """One part of the machine: what was found ("" if nothing), and why lessons need it."""

    name: str
    found: str
    needed: bool
    without_it: str
    remedy: str

    @property
    def mark(self) -> str:
        return "✓" if self.found else "✗" if self.needed else "–"


@dataclass(frozen=True)
class Report:
    """All findings. `ready` says whether the machine has everything that lessons need."""

    findings: tuple[Finding, ...]

    @property
    def ready(self) -> bool:
        return all(finding.found or not finding.needed for finding in self.findings)

    def __repr__(self):
        lines = []
        for finding in self.findings:
            lines.append(f"{finding.mark} {finding.name:15} {finding.found or 'not found'}")
            if not finding.found:
                lines += [
                    f"    without it: {finding.without_it}",
                    f"    to get it:  {finding.remedy}",
                ]
        return "\n".join([*lines, self.summary])

    def _repr_html_(self):
        rows = "".join(
            f"<tr><td>{finding.mark}</td><td><b>{html.escape(finding.name)}</b></td>"
            f"<td style='text-align:left'>{_words(finding)}</td></tr>"
            for finding in self.findings
        )
        return f"<table><tbody>{rows}</tbody></table><p>{html.escape(self.summary)}</p>"

    @property
    def summary(self) -> str:
        if self.ready:
            return "Ready: everything that the lessons need is here."
        return "Not ready: the rows marked ✗ say what to install."


def doctor() -> Report:
    """Looks at this machine and changes nothing."""
    return Report(
        (
            Finding(
                "Python",
                _python(),
                True,
                "nothing runs",
                f"Python 3.11 or newer, then {installation.INSTALL}",
            ),
            Finding(
                "the course",
                ""
                if (damage := installation.faults())
                else _version(installation.NAME) or "a copy",
                True,
                damage,
                installation.remedy(),
            ),
            Finding("PyTorch", _version("torch"), True, "nothing runs", installation.INSTALL),
            Finding(
                "transformers",
                _version("transformers"),
                True,
                "lesson 08 has no model to serve",
                installation.INSTALL,
            ),
            Finding(
                "C++ compiler",
                _first_line(*compiler(), "--version"),
                True,
                "lessons 01, 02, 06, 07 and 08 cannot compile their C++ and CUDA",
                "sudo apt-get install g++ (Fedora: sudo dnf install gcc-c++;"
                " macOS: xcode-select --install)",
            ),
            Finding(
                "Python headers",
                _headers(),
                True,
                "C++ cannot be made into a Python module",
                "sudo apt-get install python3-dev (Fedora: sudo dnf install python3-devel;"
                " macOS: brew install python)",
            ),
            Finding(
                "ninja",
                _ninja(),
                True,
                "PyTorch cannot run the compiler",
                installation.INSTALL,
            ),
            Finding(
                "CUDA on the CPU",
                _cuda_on_cpu(),
                True,
                "lessons 06, 07 and 08 need a GPU here",
                "Linux on x86-64 or arm64 (Windows: WSL), or macOS on arm64",
            ),
            Finding(
                "addr2line",
                _line_finder(),
                False,
                "reports about kernels name no line of your code",
                "sudo apt-get install binutils (Fedora: sudo dnf install binutils;"
                " macOS: xcode-select --install)",
            ),
            Finding(
                "nvcc",
                _nvcc(),
                False,
                "kernels run on the CPU, also where there is a GPU",
                "NVIDIA's CUDA toolkit, or conda env create -f environment.yml",
            ),
            Finding(
                "GPU",
                _gpu(),
                False,
                "kernels run on the CPU; lesson 05 skips PyTorch's own paged call",
                "a machine with an NVIDIA GPU and its driver",
            ),
        )
    )


def _python() -> str:
    return platform.python_version() if sys.version_info >= (3, 11) else ""


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _first_line(*command: str) -> str:
    """The first line that a command prints, or "" if it is missing or fails."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout.strip().split("\n")[0] if result.returncode == 0 else ""


def _headers() -> str:
    header = Path(sysconfig.get_path("include"), "Python.h")
    return header.name if header.is_file() else ""


# The result of test_platforms.py and of the course's own tests for each platform.
_PLATFORMS = {
    ("Linux", "x86_64"): "fast and checked, tested in full",
    ("Linux", "aarch64"): "fast and checked, tested in an emulator",
    ("Darwin", "arm64"): "fast and checked, compiled but never run; tell us how it goes",
}


def _cuda_on_cpu() -> str:
    return _PLATFORMS.get((platform.system(), platform.machine()), "")


def _line_finder() -> str:
    """The program that cuda_on_cpu/source_lines.py calls: addr2line, LLVM's, or macOS's."""
    versions = (_first_line(name, "--version") for name in ("addr2line", "llvm-symbolizer"))
    return next(filter(None, versions), shutil.which("atos") or "")


def _ninja() -> str:
    beside_python = Path(sys.executable).with_name("ninja")
    return _first_line(
        str(beside_python) if beside_python.is_file() else shutil.which("ninja") or "ninja",
        "--version",
    )


def _nvcc() -> str:
    try:
        lines = subprocess.run(
            ["nvcc", "--version"], capture_output=True, text=True, timeout=120
        ).stdout.split("\n")
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return next((line.strip() for line in lines if "release" in line), "")


def _gpu() -> str:
    try:
        import torch
    except ImportError:
        return ""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else ""


def _words(finding: Finding) -> str:
    if finding.found:
        return html.escape(finding.found)
    return (
        f"not found. Without it: {html.escape(finding.without_it)}.<br>To get it: "
        f"{html.escape(finding.remedy)}."
    )


def main() -> int:
    report = doctor()
    print(report)
    return 0 if report.ready else 1


if __name__ == "__main__":
    sys.exit(main())
