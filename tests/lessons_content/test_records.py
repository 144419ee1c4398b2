"""Records of what mistakes give: what they count for, and what is no record."""

import lzma
import math
import os
import re
import shutil
import subprocess
import sys
import textwrap
from unittest import mock

import numpy as np
import pytest
import torch

from lessons_content.mistakes import packing, records
from lessons_lib import checks
from lessons_lib.checks import result_codec
from lessons_lib.paths import ROOT


def test_a_record_counts_only_for_the_exercise_that_it_was_made_with(tmp_path):
    bank = checks.find("3.3").mistakes
    assert records.read("3.3", bank.made_with).forms
    assert not records.read("0.1", bank.made_with).forms
    changed = tmp_path / "copy.py"
    changed.write_text(bank.file.read_text() + "\n")  # white space does not count
    assert records.harness(changed, {}) == records.harness(bank.file, {})
    changed.write_text(bank.file.read_text() + "pass\n")
    assert records.harness(changed, {}) != records.harness(bank.file, {})
    assert not records.read("3.3", records.harness(changed, bank.scope)).forms


def test_a_record_still_counts_when_a_private_name_changes(tmp_path):
    file, digests = tmp_path / "exercise.py", set()
    for one, other in (("_total", "_count"), ("_sum", "_total"), ("_total", "_total")):
        file.write_text(f"{one} = 1\n{other} = 2\nprint({one} - {other})\n")
        digests.add(records.harness(file, {}))
    assert len(digests) == 2


def test_a_private_name_of_one_file_is_not_one_of_another(tmp_path):
    (tmp_path / "beside.h").write_text("int _total;\n")
    file, digests = tmp_path / "exercise.py", set()
    for name in ("_total", "_sum"):
        file.write_text(f"{name} = 1\n")
        digests.add(records.harness(file, {}, is_built=True))
    assert len(digests) == 1


def test_records_that_are_not_whole_are_none(tmp_path, monkeypatch):
    bank = checks.find("3.3").mistakes
    whole = records.file_of("3.3").read_bytes()
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    for data in (
        b"",
        whole[:100],
        whole[:-1],
        lzma.compress(b""),
        lzma.compress(b"{}"),
        b"no",
    ):
        records.file_of("3.3").write_bytes(data)
        assert not records.read("3.3", bank.made_with).forms


def test_a_python_without_xz_has_no_records_and_names_mistakes_by_trying_them():
    program = """
        import sys
        sys.modules["lzma"] = None  # as where Python was built without it
        from lessons_content.mistakes import records
        from lessons_lib import checks
        bank = checks.find("0.1").mistakes
        assert not records.read("0.1", bank.made_with).forms
        verdict = checks.run("0.1", bank.own[0].wrong.load())
        assert verdict.mistake == bank.own[0].slug, verdict
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, cwd=ROOT)


def test_a_record_from_another_version_goes_by_names_and_not_by_other_words_of_errors():
    one = checks.Raised("ValueError: in these words")
    two = checks.Raised("ValueError: in others")
    form = checks.find("3.3").mistakes.own[0].wrong
    same = checks.find("3.3").same
    with mock.patch.object(records, "versions", lambda: form.bank.records.versions):
        assert not form.gives(same, one, two)
    with mock.patch.object(records, "versions", lambda: "Python 4.0, PyTorch 3.0"):
        assert form.gives(same, one, two)
        assert not form.gives(same, one, checks.Raised("TypeError: in these words"))
        assert not form.gives(same, (one, 1), (two, 2))
        row, other, anew = map(
            checks.Raised, ("NameError: no 'row'", "NameError: no 'col'", "NameError: 'row'?")
        )
        assert form.gives(same, row, anew) and not form.gives(same, row, other)


def test_what_is_recorded_comes_back_nearly_as_it_was():
    lowest = torch.finfo(torch.float32).min
    number = torch.tensor([1 / 3, float("inf"), float("nan"), -0.0, 1e-30, lowest, 0.0])
    number.view(torch.int32)[-1] = -1  # another NaN
    back = result_codec.decode(records.coarse(result_codec.encode(number)))
    assert torch.allclose(back, number, rtol=1e-5, equal_nan=True)


def test_results_come_out_of_a_file_bit_for_bit():
    nan = torch.tensor([0.5, math.nan])
    other_nan = nan.view(torch.int32).add(1).view(torch.float32)
    kinds = [
        *(nan, other_nan, -nan, torch.zeros(0, 3), torch.tensor(3), torch.tensor([True])),
        *(torch.ones(2, dtype=torch.complex128), torch.ones(2, 2, dtype=torch.bfloat16)),
        *(np.float64(0.1), np.arange(3, dtype=">i4"), (nan, nan), (nan, "two\nlines"), None),
    ]
    cases = [
        [*map(result_codec.encode, kinds), records.HANGS],
        [result_codec.encode((torch.arange(number, number + 3),)) for number in range(300)],
        [],
    ]
    file = packing.write({"about": "this"}, cases)
    head, packed = packing.read(file)
    assert head == {"about": "this"}
    assert cases == [
        [packing.encoded(*result) for result in packing.unpacked(case)] for case in packed
    ]
    assert packing.write(head, cases) == file


@pytest.mark.slow
def test_numbers_that_become_half_are_the_same_with_any_of_pytorchs_kernels():
    """randn's are not: their last bits hang on the length of the processor's vectors."""
    program = """
import hashlib, torch
from lessons_content.exercises import drawn
numbers = drawn.normal(3, 1000, generator=torch.Generator().manual_seed(5))
assert numbers.dtype == torch.float32
assert abs(numbers.mean()) < 0.1 and 0.9 < numbers.std() < 1.1
print(hashlib.sha256(numbers.numpy().tobytes()).hexdigest()[:16])
"""
    for kernels in ("default", "avx2", "avx512"):  # one that is not here is not taken
        run = subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"ATEN_CPU_CAPABILITY": kernels},
            capture_output=True,
            text=True,
        )
        assert run.stdout.strip() == "21f2f6e4c2ba0c41", run.stdout + run.stderr


def run_copy(folder, *command, **changed) -> subprocess.CompletedProcess:
    """What a command prints in a copy of the course that has no solutions.

    changed: what is added to the `.mistakes` of an exercise, by the file's name.
    """
    for name in ("lessons_content", "lessons_lib", "paged_attention"):
        shutil.copytree(ROOT / name, folder / name)
    for name, added in changed.items():
        (file,) = folder.glob(f"lessons_content/*/{name}.mistakes")
        file.write_text(file.read_text(encoding="utf-8") + textwrap.dedent(added))
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, *command]
    return subprocess.run(command, env=environment, text=True, capture_output=True, cwd=folder)


@pytest.mark.slow
def test_mistakes_are_named_in_a_copy_of_the_course_without_the_solutions(tmp_path):
    (tmp_path / "program.py").write_text(
        "from lessons_lib import checks\n"
        "from lessons_lib.paths import ROOT\n"
        "def blocks_needed(num_tokens, block_size):\n"
        "    return num_tokens // block_size\n"
        "assert not ROOT.joinpath('solutions').exists()\n"
        "if __name__ == '__main__':\n"
        "    print(checks.run('0.1', blocks_needed).mistake)\n"
    )
    run = run_copy(tmp_path, "program.py")
    assert run.stdout == "floor-division\n", run.stderr


THIRDS = """
        ## thirds{}
        Three thirds, twice.
            (num_tokens + block_size - 1) => 2 * int(torch.full((3,), num_tokens / 3).sum())
        """


def record_thirds(folder, remark: str) -> tuple[subprocess.CompletedProcess, list[list]]:
    """What recording a mistake says, and what is then recorded of its forms on all cases."""
    added = THIRDS.format(remark)
    run = run_copy(folder, "-m", "lessons_content.mistakes", "0.1", e0_1_blocks_needed=added)
    head, cases = packing.read(
        folder.joinpath("lessons_content/mistakes/records/0.1.xz").read_bytes()
    )
    results = [[packing.encoded(*each) for each in packing.unpacked(case)] for case in cases]
    return run, [
        [results[case][column[row]] for case, column in enumerate(head["columns"])]
        for slug, _, row in head["named"]
        if slug == "thirds"
    ]


@pytest.mark.slow
def test_what_other_roundings_would_change_is_not_recorded(tmp_path):
    """A third, three times, is 1 or a little less: the processor decides."""
    run, kept = record_thirds(tmp_path, "")
    assert run.returncode == 2
    assert re.match(
        r"0\.1: what thirds \(.*e0_1_blocks_needed\.mistakes:\d+\) gives on this case hangs "
        r"on roundings.*\n  blocks_needed\(num_tokens=\d+, .*\n  or: \d+\n  or: \d+\n",
        run.stdout,
    ), run.stdout + run.stderr
    assert not kept


@pytest.mark.slow
def test_a_result_that_is_too_large_to_be_recorded_is_refused(tmp_path):
    added = """
        ## a-number-of-four-thousand-digits
        How many blocks are needed for these tokens?
            (num_tokens + block_size - 1) // block_size => 10**4000
        """
    run = run_copy(tmp_path, "-m", "lessons_content.mistakes", "0.1", e0_1_blocks_needed=added)
    assert run.returncode == 2
    words = "gives on this case is too large to be recorded"
    assert words in run.stdout, run.stdout + run.stderr


@pytest.mark.slow
def test_a_mistake_that_may_hang_on_rounding_is_recorded_where_it_does_not(tmp_path):
    """Elsewhere it is tried, and so it is named all the same."""
    run, kept = record_thirds(tmp_path, " (hangs on rounding)")
    assert run.returncode == 0, run.stdout + run.stderr
    (given,) = kept
    assert records.HANGS in given and any(result != records.HANGS for result in given)
    program = """
        import torch
        from lessons_lib import checks

        def blocks_needed(num_tokens, block_size):
            thirds = int(torch.full((3,), num_tokens / 3).sum())
            return 2 * thirds // block_size

        exercise = checks.find("0.1")
        verdict = checks.compare(
            exercise,
            lambda _, case: exercise.reference(*case),
            lambda _, case: blocks_needed(*case),
            lambda _: None,
        )
        print(verdict.mistake)
        """
    (tmp_path / "program.py").write_text(textwrap.dedent(program))
    words = [sys.executable, "program.py"]
    found = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert found.stdout == "thirds\n", found.stdout + found.stderr
