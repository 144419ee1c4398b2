"""The benchmark of a large checkpoint, with a tiny one on the CPU."""

import pytest

from tools.bench import checkpoint, checkpoint_runs

TINY = ["--tiny", "--at"]


@pytest.mark.slow
def test_a_checkpoint_is_made_once_then_loaded_and_served(tmp_path, capfd):
    folder, file = tmp_path / "made", tmp_path / "run.json"
    words = [*TINY, str(folder), "--json", str(file)]
    for is_first in (True, False):
        assert checkpoint.main(words) == 0
        shown, told = capfd.readouterr()
        assert (f"making a checkpoint in {folder}" in told) == is_first
        assert "a tiny model: 0.00 GiB in 4 files" in shown
    run = checkpoint_runs.Run.load(file)
    assert run.files == len(list(folder.glob("model-*.safetensors"))) > 1
    assert [(row.num_seqs, row.prompt, row.new) for row in run.rows] == [
        (1, 20, 4),
        (3, 20, 4),
    ]
    for row in run.rows:
        assert row.apart < 0.01 and f"{row.rate:,.1f}" in shown
    assert run.command == "python -m tools.bench checkpoint --tiny --at FOLDER"
    (folder / "model-00002-of-00004.safetensors").unlink()
    assert checkpoint.main(words) == 1
    assert "Nothing is measured: " in (told := capfd.readouterr().err) and "lacks" in told
