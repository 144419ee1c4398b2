"""From an address in machine code to the learner's line, with each tool that may be there."""

import ctypes
import os
import shutil
import subprocess

import pytest

from lessons_lib.cuda_on_cpu.source_lines import (
    SourceLine,
    look_up,
    offset_in_library,
    source_line,
)


def test_a_file_of_the_compiler_is_matched_with_the_longest_name():
    texts = {"a.cu": "1\n2", "kernels/a.cu": "3\n  4"}
    assert source_line(texts, "/folder/kernels/a.cu", 2) == SourceLine("kernels/a.cu", 2, "4")
    assert source_line(texts, "/folder/a.cu", 1) == SourceLine("a.cu", 1, "1")
    assert source_line(texts, "/folder/b.cu", 1) is None
    assert source_line(texts, None, 1) is None
    past = source_line(texts, "a.cu", 9)
    assert past == SourceLine("a.cu", 9, "") and str(past) == "a.cu, line 9"


def built(folder, text: str, *flags: str):
    """A library and the addresses of its functions."""
    (folder / "code.cpp").write_text(text)
    library = folder / "library.so"
    compiled = ["c++", "-shared", "-fPIC", "-O1", *flags, "-o", library, folder / "code.cpp"]
    subprocess.run(compiled, check=True)
    listed = subprocess.run(["nm", library], capture_output=True, text=True, check=True).stdout
    words = [line.split() for line in listed.splitlines()]
    return library, {word[2]: int(word[0], 16) for word in words if word[1:2] == ["T"]}


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """The only folder in which programs are looked for."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for needed in ("sh", "cat"):
        (folder / needed).symlink_to(shutil.which(needed))
    monkeypatch.setenv("PATH", str(folder))
    return folder


def write_tool(folder, name: str, script: str):
    (folder / name).write_text(script)
    (folder / name).chmod(0o755)


TEXT = """static inline int twice(int* x) {
  return *x * 2;
}
extern "C" int f(int* x) {
  return twice(x);
}
"""


@pytest.mark.parametrize("name", ["addr2line", "llvm-symbolizer"])
def test_a_place_in_the_code_has_a_line(tmp_path, monkeypatch, name):
    if not (real := shutil.which(name)):
        pytest.skip(f"{name} is not installed")
    library, functions = built(tmp_path, f'#line 1 "your code"\n{TEXT}', "-g", "-gdwarf-4")
    monkeypatch.setenv("PATH", str(tmp_path))
    offsets = [functions["f"] + 1, 1, functions["f"] + 1]
    assert look_up(str(library), offsets, {"your code": TEXT}) == [None] * 3  # without a tool
    (tmp_path / name).symlink_to(real)
    first, none, again = look_up(str(library), offsets, {"your code": TEXT})
    assert none is None and first == again and first.number in (2, 4, 5)


ADDR2LINE = (
    "0x0f\n/usr/include/math.h:7\n/folder/your code:2 (discriminator 3)\n"
    "/folder/your code:5\n0x1f\n??:0\n"
)
ATOS = (
    "sqrt (in libm.so) (math.h:7)\nf(float*) (in library.so) (your code:2)\n"
    "k() (in library.so) (your code:5)\n",
    "0x1f (in library.so) + 12\n",
)


@pytest.mark.parametrize(
    "name, answers",
    [("addr2line", [ADDR2LINE]), ("llvm-symbolizer", [ADDR2LINE]), ("atos", ATOS)],
)
def test_each_tool_is_asked_for_the_instruction_before_and_its_innermost_line_of_ours_counts(
    tmp_path, tools, name, answers
):
    (tmp_path / "0xf").write_text(answers[0])
    (tmp_path / "0x1f").write_text(answers[-1])
    cases = f"*0xf*) cat {tmp_path}/0xf;; *0x1f*) cat {tmp_path}/0x1f;;"
    write_tool(tools, name, f'#!/bin/sh\ncase "$*" in {cases} esac\n')
    found = look_up("library.so", [0x10, 0x20], {"your code": "1\n  2\n3\n4\n5"})
    assert found == [SourceLine("your code", 2, "2"), None]


@pytest.mark.parametrize(
    "script, expected",
    [
        ("#!/bin/sh\nprintf '0x0f\\n/\\377/a: b:1\\n'", SourceLine("a: b", 1, "1")),
        ("#!/bin/sh\nexit 1", None),
        ("#!/bin/sh\necho a: b:1", None),
        ("#!/bin/sh\necho 0x0f; echo 0x1f", None),
        ("#!/no/such/shell\n", None),
    ],
)
def test_a_tool_that_fails_or_says_what_is_no_text_leaves_the_line_out(
    tools, script, expected
):
    write_tool(tools, "addr2line", script)
    assert look_up("library.so", [0x10], {"a: b": "1"}) == [expected]


@pytest.mark.parametrize("name", [b"here.so", b"th\xffre.so"])
def test_an_address_of_this_process_has_a_library(tmp_path, name):
    text = 'extern "C" { int first() { return 1; } int second() { return 2; } }'
    library, functions = built(tmp_path, text)
    copy = bytes(tmp_path) + b"/" + name
    shutil.copy(library, copy)
    code = ctypes.CDLL(os.fsdecode(copy))
    for function, offset in functions.items():
        address = ctypes.cast(code[function], ctypes.c_void_p).value
        assert offset_in_library(address) == (copy.decode(errors="replace"), offset)
    assert offset_in_library(0) is None
