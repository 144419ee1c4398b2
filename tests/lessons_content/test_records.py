"""Records of what mistakes give: what they count for, and what is no record."""

import io
import os
import subprocess
import sys
import zipfile
from unittest import mock

import pytest

from lessons_exercises import records
from lessons_lib import checks, results


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


def test_records_that_are_not_whole_are_none(tmp_path, monkeypatch):
    bank = checks.find("3.3").mistakes
    whole = records.file_of("3.3").read_bytes()
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    empty = io.BytesIO()
    zipfile.ZipFile(empty, "w").close()
    for data in (b"", whole[:100], whole[:-1], empty.getvalue(), b"no"):
        records.file_of("3.3").write_bytes(data)
        assert not records.read("3.3", bank.made_with).forms


def test_a_record_from_another_version_does_not_go_by_the_words_of_errors():
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


def test_what_is_recorded_comes_back_nearly_as_it_was():
    import torch

    lowest = torch.finfo(torch.float32).min
    number = torch.tensor([1 / 3, float("inf"), float("nan"), -0.0, 1e-30, lowest, 0.0])
    number.view(torch.int32)[-1] = -1  # another NaN
    back = results.decode(records.coarse(results.encode(number)))
    assert torch.allclose(back, number, rtol=1e-5, equal_nan=True)


@pytest.mark.slow
def test_numbers_that_become_half_are_the_same_with_any_of_pytorchs_kernels():
    """randn's are not: their last bits hang on the length of the processor's vectors."""
    program = """
import hashlib, torch
from lessons_exercises import drawn
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
