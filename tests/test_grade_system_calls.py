"""The numbers of the system calls that a submission does not get are those of the system."""

import shutil
import subprocess

import pytest

from lessons_grading.confinement import REFUSED

COMPILERS = ("x86_64-linux-gnu-gcc", "aarch64-linux-gnu-gcc")


@pytest.mark.parametrize("place, compiler", list(enumerate(COMPILERS)), ids=COMPILERS)
def test_the_numbers_are_those_of_the_systems_headers(place, compiler):
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
