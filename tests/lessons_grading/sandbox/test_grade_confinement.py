"""The words that start a sandbox, and the filter of system calls that it gets."""

import errno
import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from graded import open_files
from lessons_grading import confinement
from lessons_grading.confinement import REFUSED
from lessons_lib.paths import ROOT

COMPILERS = ("x86_64-linux-gnu-gcc", "aarch64-linux-gnu-gcc")
ALLOW, KILL, NO_SUCH_CALL = "allow", "kill", "no such call"


@pytest.mark.parametrize("place, compiler", list(enumerate(COMPILERS)), ids=COMPILERS)
def test_the_numbers_of_calls_are_those_of_the_systems_headers(place, compiler):
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    text = "#include <sys/syscall.h>\n" + "\n".join(f"{name} SYS_{name}" for name in REFUSED)
    made = subprocess.run(
        [compiler, "-E", "-P", "-"], input=text, capture_output=True, text=True, check=True
    ).stdout
    found = dict(line.split() for line in made.splitlines() if line.count(" ") == 1)
    # a header that is older than a call does not know it
    known = {name: int(number) for name, number in found.items() if number.isdigit()}
    assert len(known) > 12
    assert known == {name: REFUSED[name][place] for name in known}


def decision(program: bytes, architecture: int, number: int) -> str:
    """What the kernel does with a call, by its rules (linux/filter.h, seccomp.h)."""
    instructions = list(struct.iter_unpack("=HBBI", program))
    data = {0: number, 4: architecture}  # struct seccomp_data: nr, arch
    loaded = at = 0
    while True:
        code, if_so, if_not, value = instructions[at]
        at += 1
        if code in (0x20, 0x06):
            assert if_so == if_not == 0  # only jumps have them
        if code == 0x20:  # ld, absolute, a word
            loaded = data[value]
        elif code == 0x15:  # jump if equal
            at += if_so if loaded == value else if_not
        elif code == 0x35:  # jump if greater or equal
            at += if_so if loaded >= value else if_not
        else:
            assert code == 0x06  # return
            refused = 0x00050000 | errno.ENOSYS
            return {0x7FFF0000: ALLOW, 0x80000000: KILL, refused: NO_SUCH_CALL}[value]


# AUDIT_ARCH_X86_64 and AUDIT_ARCH_AARCH64 (linux/audit.h)
@pytest.mark.parametrize(
    "place, machine, architecture",
    [(0, "x86_64", 0xC000003E), (1, "aarch64", 0xC00000B7)],
)
def test_the_filter_refuses_these_calls_and_no_others(
    monkeypatch, place, machine, architecture
):
    monkeypatch.setattr(confinement.platform, "machine", lambda: machine)
    program = confinement.system_call_filter()
    refused = {numbers[place] for numbers in REFUSED.values()}
    for number in range(600):
        expected = NO_SUCH_CALL if number in refused else ALLOW
        assert decision(program, architecture, number) == expected
    # x32's calls have other numbers, and another processor's mean something else
    for number in (0x40000000, 0x40000000 + 16, 0x40000000 + min(refused)):
        assert decision(program, architecture, number) == NO_SUCH_CALL
    assert decision(program, architecture, 0x3FFFFFFF) == ALLOW
    for other in (0x40000003, architecture ^ 1):
        assert decision(program, other, 1) == KILL


def test_of_another_processor_no_calls_are_known(monkeypatch):
    monkeypatch.setattr(confinement.platform, "machine", lambda: "riscv64")
    assert confinement.system_call_filter() == b""


@pytest.fixture
def bubblewrap(monkeypatch):
    """A bubblewrap with these words in its help."""

    def has(*known: str):
        monkeypatch.setattr(confinement, "bubblewrap", lambda: "/opt/bwrap")
        monkeypatch.setattr(confinement, "words_of_bubblewrap", lambda: list(known))

    return has


@pytest.mark.parametrize("known", [(), ("--disable-userns",)])
def test_a_sandbox_shares_nothing_and_makes_none(bubblewrap, known):
    bubblewrap(*known)
    assert confinement._namespaces() == [
        "/opt/bwrap",
        *("--unshare-all", "--unshare-user", "--die-with-parent", "--new-session"),
        *("--cap-drop", "ALL", "--as-pid-1", "--uid", "1000", "--gid", "1000", *known),
    ]


def pairs(words: list[str], option: str) -> list[tuple[str, str]]:
    """The two words after each such option."""
    return [(words[at + 1], words[at + 2]) for at, word in enumerate(words) if word == option]


@pytest.mark.parametrize("known", [(), ("--size",)])
def test_what_can_be_written_has_a_size_where_it_can_have_one(bubblewrap, known):
    bubblewrap(*known)
    words = confinement._mounts(123 << 20, ())
    places = [words[at + 1] for at, word in enumerate(words) if word == "--tmpfs"]
    assert {"/dev/shm", "/tmp", confinement.SCRATCH} <= set(places)
    assert {f"{ROOT}/{name}" for name in confinement.WRITTEN} <= set(places)
    sizes = {
        words[at + 1]: words[at - 1]
        for at, word in enumerate(words)
        if word == "--tmpfs" and words[at - 2] == "--size"
    }
    assert sorted(sizes) == (sorted(places) if known else [])
    if known:
        assert sizes.pop(confinement.SCRATCH) == str(123 << 20)
        assert set(sizes.values()) == {str(64 << 20)}
    assert words[-4:] == ["--remount-ro", "/", "--chdir", confinement.SCRATCH]
    assert not {"--bind", "--bind-try", "--dev-bind"} & set(words)  # nothing of ours


def test_runtimes_that_are_built_are_seen_and_no_others(bubblewrap, monkeypatch, tmp_path):
    bubblewrap()
    monkeypatch.setattr(confinement, "build_folder", lambda: tmp_path)
    for name in ("cuda_on_cpu_a", "cuda_on_cpu_b", "answer_c"):
        (tmp_path / name).mkdir()
        if name != "cuda_on_cpu_b":
            (tmp_path / name / "finished").touch()
    words = confinement._mounts(1 << 20, ())
    assert words[:2] == ["--proc", "/proc"]
    own = [pair for pair in pairs(words, "--ro-bind") if pair[0].startswith(str(tmp_path))]
    assert own == [(f"{tmp_path}/cuda_on_cpu_a", f"{confinement.SCRATCH}/build/cuda_on_cpu_a")]


def test_what_is_not_to_be_seen_is_empty(bubblewrap, tmp_path):
    bubblewrap("--size")
    seen, elsewhere = ROOT / confinement.COURSE[0], tmp_path
    unseen = (str(seen), str(elsewhere), str(ROOT / "not there"))
    words = confinement._mounts(1 << 20, unseen)
    assert words[:2] == ["--proc", "/proc"]
    assert words[-12:-8] == ["--size", "4096", "--tmpfs", str(seen)]
    assert str(elsewhere) not in words and str(ROOT / "not there") not in words


@pytest.fixture
def systemd(monkeypatch):
    """A systemd-run whose probe ends so. `asked` has the words of the probes."""

    def runs(code: int | None, user: int = 0):
        asked = []

        def run(words, **named):
            assert named == {"capture_output": True, "stdin": subprocess.DEVNULL}
            asked.append(words)
            return SimpleNamespace(returncode=code)

        found = None if code is None else "/opt/systemd-run"
        monkeypatch.setattr(confinement.shutil, "which", lambda name: found)
        monkeypatch.setattr(confinement.subprocess, "run", run)
        monkeypatch.setattr(confinement.os, "getuid", lambda: user)
        confinement.systemd_scope.cache_clear()
        return asked

    yield runs
    confinement.systemd_scope.cache_clear()


@pytest.mark.parametrize("code", [None, 1])
def test_without_a_scope_that_works_there_is_none(systemd, code):
    asked = systemd(code)
    assert confinement.systemd_scope() is None and confinement.in_scope(1 << 20, 5) == []
    assert len(asked) == (code is not None)


@pytest.mark.parametrize("user, manager", [(0, []), (1000, ["--user"])])
def test_a_scope_has_these_limits(systemd, monkeypatch, user, manager):
    asked = systemd(0, user)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)

    def scope(memory, tasks):
        return [
            *("env", "XDG_RUNTIME_DIR=/run/user/7", "/opt/systemd-run", *manager),
            *("--scope", "--quiet", "--collect", f"--property=MemoryMax={memory}"),
            *("--property=MemorySwapMax=0", f"--property=TasksMax={tasks}", "--"),
            *("sh", "-c", confinement.IN_ITS_CGROUP, "sh"),
        ]

    assert confinement.in_scope(3 << 20, 17) == scope(3 << 20, 17)
    assert confinement.in_scope(3 << 20, 17) and len(asked) == 1  # it is asked once
    assert asked == [[*scope(1 << 30, 64), "true"]]


SCRIPT = """#!/bin/sh
if [ "$1" = --help ]; then echo "--seccomp FD"; echo "--size BYTES"; exit; fi
printf '%%s\\n' "$@" > %s
echo %s >&2
exit %d
"""


@pytest.mark.parametrize("code, words", [(0, "a warning"), (1, "no namespaces")])
def test_a_bubblewrap_is_tried_before_it_is_used(monkeypatch, tmp_path, code, words):
    program, seen = tmp_path / "bwrap", tmp_path / "seen"
    program.write_text(SCRIPT % (seen, words, code))
    program.chmod(0o755)
    monkeypatch.setattr(confinement, "bubblewrap", lambda: str(program))
    for cached in (confinement.words_of_bubblewrap, confinement.missing):
        cached.cache_clear()
    try:
        assert confinement.words_of_bubblewrap() == ["--seccomp", "FD", "--size", "BYTES"]
        missing = confinement.missing()
        with confinement.command_line(64 << 20) as (expected, _):
            at = expected.index("--seccomp")
            assert seen.read_text().splitlines()[:at] == expected[1 : at + 1]
    finally:
        for cached in (confinement.words_of_bubblewrap, confinement.missing):
            cached.cache_clear()
    assert seen.read_text().splitlines()[-1] == "true"
    if code:
        assert missing == (
            f"bubblewrap is here and does not work (no namespaces). {confinement.INSTALL}"
        )
    else:
        assert missing is None


def test_the_bubblewrap_that_is_tried_gets_the_filter_and_nothing_else(
    bubblewrap, monkeypatch
):
    bubblewrap()
    monkeypatch.setattr(confinement.platform, "machine", lambda: "x86_64")
    program, seen = confinement.system_call_filter(), []

    def run(words, stdin, pass_fds, **named):
        (end,) = pass_fds
        assert words[words.index("--seccomp") + 1] == str(end)
        seen.append((stdin, os.read(end, 1 << 16)))
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(confinement.subprocess, "run", run)
    confinement.missing.cache_clear()
    assert confinement.missing() is None and seen == [(subprocess.DEVNULL, program)]
    confinement.missing.cache_clear()


@pytest.mark.parametrize("has_limits", [True, False])
def test_in_its_cgroup_all_ends_together_and_no_manager_is_found(tmp_path, has_limits):
    group = tmp_path / "a/scope"
    group.mkdir(parents=True)
    (tmp_path / "own").write_text("0::/a/scope\n")
    if has_limits:
        (group / "pids.max").touch()
    script = confinement.IN_ITS_CGROUP.replace("/proc/self/cgroup", f"{tmp_path}/own")
    script = script.replace("/sys/fs/cgroup", str(tmp_path))
    given = dict.fromkeys(confinement.MANAGER, "x") | {"PATH": os.environ["PATH"]}
    words = ["sh", "-c", script, "sh", "env"]
    ran = subprocess.run(words, env=given, capture_output=True, text=True)
    assert (ran.returncode == 0) == has_limits == (group / "memory.oom.group").exists()
    if has_limits:
        assert (group / "memory.oom.group").read_text() == "1\n"
        assert f"PATH={given['PATH']}" in ran.stdout.splitlines()
        assert not [name for name in confinement.MANAGER if name in ran.stdout]


def test_without_bubblewrap_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setattr(confinement, "bubblewrap", lambda: None)
    confinement.missing.cache_clear()
    assert "sudo apt-get install bubblewrap" in confinement.missing()
    confinement.missing.cache_clear()


@pytest.mark.parametrize("machine", ["x86_64", "riscv64"])
def test_the_filter_is_read_from_a_descriptor_that_is_closed_again(monkeypatch, machine):
    monkeypatch.setattr(confinement, "_namespaces", lambda: ["bwrap"])
    monkeypatch.setattr(confinement, "_mounts", lambda disk, unseen: [str(disk), *unseen])
    monkeypatch.setattr(confinement.platform, "machine", lambda: machine)
    program, before = confinement.system_call_filter(), open_files()
    with confinement.command_line(7, ("folder",)) as (words, descriptors):
        if program:
            (end,) = descriptors
            assert words == ["bwrap", "7", "folder", "--seccomp", str(end)]
            os.set_blocking(end, False)  # it would wait for whatever else may be written
            assert os.read(end, 1 << 16) == program and os.read(end, 1) == b""
        else:
            assert (words, descriptors) == (["bwrap", "7", "folder"], ())
    assert open_files() <= before


@pytest.mark.parametrize("compiler", [None, "clang++-17"])
def test_of_our_environment_a_submission_gets_the_compiler_alone(monkeypatch, compiler):
    monkeypatch.setenv("SECRET", "42")
    monkeypatch.delenv("CXX", raising=False)
    if compiler:
        monkeypatch.setenv("CXX", compiler)
    found = confinement.environment("/scratch", {"RLIMIT_NPROC": 5})
    assert found.get("CXX") == compiler and "SECRET" not in found
    assert found["PATH"] == f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    assert found["PYTHONPATH"] == str(ROOT) and found["LESSONS_GRADE_FOLDER"] == "/scratch"
    assert found["LESSONS_BUILD_DIR"] == "/scratch/build"
    assert found["LESSONS_PROGRESS_DIR"] == "/scratch/progress"
    assert json.loads(found["LESSONS_GRADE_LIMITS"]) == {"RLIMIT_NPROC": 5}


def test_bubblewrap_is_found_wherever_one_is(monkeypatch):
    for found, expected in (
        (None, None),
        ("/opt/bwrap", "/opt/bwrap"),
        ("bin/bwrap", os.path.abspath("bin/bwrap")),
    ):
        monkeypatch.setattr(confinement.shutil, "which", lambda name, found=found: found)
        confinement.bubblewrap.cache_clear()
        assert confinement.bubblewrap() == expected
    confinement.bubblewrap.cache_clear()
