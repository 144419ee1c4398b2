"""Times the player of recorded steps in Chromium: `python -m tools.bench player --record`.

The page times itself and writes the result into its document, which Chromium prints.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lessons_content.bench_records.command import Command
from lessons_content.bench_records.where import facts_for
from lessons_lib.drawing.player import Cell, Cells, Recording, Row, View
from lessons_lib.drawing.player.recording import script, style
from tools.bench.player_runs import PlayerRun, table

NUM_STEPS, NUM_BLOCKS = 2000, 256
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--dump-dom")
TIMED = """<pre id="result"></pre><script>
const root = document.querySelector(".pool-player");
const { player } = root;
const took = (step) => {
  const start = performance.now();
  player.show(step);
  root.offsetHeight; // lays it out
  return performance.now() - start;
};
player.show(0);
const times = [...Array(player.count).keys()].slice(1).map(took);
player.show(0);
const leap = took(player.count - 1);
const opens = opened - before;
document.querySelector("#result").textContent = JSON.stringify({ times, leap, opens });
</script>"""


def recording() -> Recording:
    """A pool in which each step fills a block and begins another."""
    pool = Cells("pool", "The pool", [Row("", range(NUM_BLOCKS))], 16, columns=32)
    made = Recording("A large pool", [View("", [pool])], "ABCDEFGH")
    blocks: dict[int, Cell] = {}
    for step in range(NUM_STEPS):
        for place in (step * 7 % NUM_BLOCKS, step * 11 % NUM_BLOCKS):
            blocks[place] = Cell("ABCDEFGH"[step % 8], 1 + step % 16)
        made.step(f"Step {step}.", pool.at(blocks))
    return made


def page(made: Recording) -> str:
    clock = "<script>const {} = performance.now();</script>"
    output = made.player("A large pool.", still=0)._repr_html_()
    parts = (clock.format("before"), output, clock.format("opened"), TIMED)
    return f'<!doctype html><meta charset="utf-8">{"".join(parts)}'


def measured(browser: str, made: Recording) -> dict:
    """The times that a page measures of itself, in milliseconds: times, leap, opens."""
    with tempfile.TemporaryDirectory(prefix="player-") as folder:
        path = Path(folder, "page.html")
        path.write_text(page(made), encoding="utf-8")
        words = [browser, *FLAGS, f"--user-data-dir={folder}/profile", path.as_uri()]
        document = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    result = re.search(r'<pre id="result">(.+?)</pre>', document)
    if not result:
        raise RuntimeError(f"The page has not timed itself: {document[-300:]}")
    return json.loads(result[1])


def main(words: Sequence[str] | None = None) -> int:
    command = Command("player", __doc__, PlayerRun, table)
    arguments = command.parse(words)
    if arguments.recorded:
        return command.show(arguments)
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        command.parser.error(f"there is none of {', '.join(BROWSERS)} here")
    made = recording()
    found = measured(browser, made)
    version = subprocess.run([browser, "--version"], capture_output=True, text=True).stdout
    run = PlayerRun(
        **facts_for(PlayerRun, "cpu"),
        num_cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0,
        browser=" ".join(version.split()[:2]),
        command=command.line(arguments),
        num_steps=NUM_STEPS,
        num_blocks=NUM_BLOCKS,
        changes=sum(len(step["set"]) for step in made.steps[1:]) / (NUM_STEPS - 1),
        opens=found["opens"],
        steps_per_second=1000 * len(found["times"]) / sum(found["times"]),
        slowest=max(found["times"]),
        leap=found["leap"],
        script_bytes=len((script() + style(0)).encode()),
    )
    return command.keep(run, arguments)


if __name__ == "__main__":
    sys.exit(main())
