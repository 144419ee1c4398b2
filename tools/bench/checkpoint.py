"""Loads a large checkpoint and serves it: `python -m tools.bench checkpoint --at FOLDER`.

If the folder has no checkpoint, one with the shapes of Qwen3-8B and random weights is made
there: 16 GB of bfloat16, in files of at most 4 GB.
"""

import os
import random
import resource
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import torch
from safetensors import safe_open

from lessons_content.bench_records.command import Command, say
from lessons_content.bench_records.where import facts_for
from paged_attention.engine.checkpoint import load_model
from paged_attention.engine.engine import Engine
from paged_attention.engine.fast import fast_engine
from paged_attention.engine.files import weight_files
from paged_attention.engine.logprobs import LogprobsWatch, prompt_logprobs
from paged_attention.engine.request import SamplingParams
from tools.bench.checkpoint_maker import DTYPE, make_apart
from tools.bench.checkpoint_runs import Row, Run, table
from tools.bench.two_gpus_ranks import GIB

BLOCK_SIZE = 16
BATCHES = ((1, 512, 128), (32, 512, 128))  # sequences, tokens of a prompt, new tokens
TINY_BATCHES = ((1, 20, 4), (3, 20, 4))


def forget(files: Sequence[Path]) -> None:
    """Makes the system forget its cached content of these files, so that it reads the disk."""
    for file in files if hasattr(os, "posix_fadvise") else ():
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def host_memory() -> float:
    """The largest memory of this process so far, in GiB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / GIB


def card_memory() -> float:
    return torch.cuda.max_memory_allocated() / GIB if torch.cuda.is_available() else 0.0


def wrong_weights(model, files: dict[str, Path]) -> list[str]:
    """The names of the model's weights that differ from the files in any number."""
    wrong = []
    for name, own in model.state_dict().items():
        if name in files:
            with safe_open(files[name], "pt", device=str(own.device)) as opened:
                if not torch.equal(opened.get_tensor(name), own):
                    wrong.append(name)
    return wrong


def serve(model, num_seqs: int, prompt: int, new: int) -> Row:
    """Serves a batch of random tokens three times.

    The second time is timed, and the third is compared with transformers' own attention.
    """
    chance = random.Random(0)
    vocab_size = model.config.vocab_size
    prompts = [[chance.randrange(vocab_size) for _ in range(prompt)] for _ in range(num_seqs)]
    params = SamplingParams(max_new_tokens=new, ignore_end=True)
    sizes = {"num_blocks": num_seqs * -(-(prompt + new) // BLOCK_SIZE)}
    sizes |= {"block_size": BLOCK_SIZE, "max_num_seqs": num_seqs}
    if model.device.type == "cuda":
        sizes |= {"token_budget": 8192}
    engine = (fast_engine if model.device.type == "cuda" else Engine)(
        model, prefix_sharing=False, **sizes
    )
    for result in engine.generate(prompts, params):
        if isinstance(result, Exception):
            raise result
    start = time.perf_counter()
    engine.generate(prompts, params)
    seconds = time.perf_counter() - start
    watch = LogprobsWatch(engine)
    request, *_ = [engine.add(number, each, params) for number, each in enumerate(prompts)]
    watch.ask(request, 0)
    engine.run()
    theirs = [each for piece in prompt_logprobs(model, request.tokens, 0) for each in piece]
    pairs = zip(watch.take(request, new), theirs[-new:], strict=True)
    apart = max(abs(ours.logprob - own.logprob) for ours, own in pairs)
    return Row(num_seqs, prompt, new, seconds, apart)


def main(words: Sequence[str] | None = None) -> int:
    """Returns 0; 1 if there is no such checkpoint, or if nothing is recorded."""
    command = Command(
        "checkpoint",
        "Loads a large checkpoint, by default one with the shapes of Qwen3-8B, and serves it.",
        Run,
        table,
    )
    add = command.parser.add_argument
    add("--at", type=Path, metavar="FOLDER", help="of the checkpoint; made if there is none")
    add("--tiny", action="store_true", help="a small one instead, to try this command")
    arguments = command.parse(words, partial=("tiny",))
    if arguments.recorded:
        return command.show(arguments)
    if arguments.at is None:
        command.parser.error("--at names the folder, with room for 16 GB")
    try:
        line = f"{command.line(arguments, 'tiny')} --at FOLDER"
        run = measure(arguments.at, arguments.tiny, line)
    except (OSError, ValueError) as error:
        print(f"Nothing is measured: {error}", file=sys.stderr)
        return 1
    return command.keep(run, arguments)


def measure(folder: Path, is_tiny: bool, line: str) -> Run:
    """Raises ValueError if the model's weights differ from the files'."""
    if not (folder / "config.json").exists():
        say(f"making a checkpoint in {folder}")
        make_apart(folder, is_tiny)
    files = weight_files(folder)
    paths = sorted({*files.values()})
    forget(paths)
    on_card = torch.cuda.is_available()
    start = time.perf_counter()
    model = load_model(folder, DTYPE, "cuda" if on_card else "cpu")
    if on_card:
        torch.cuda.synchronize()
    load, host, after_loading = time.perf_counter() - start, host_memory(), card_memory()
    say(f"loaded in {load:.1f} s")
    if wrong := wrong_weights(model, files):
        raise ValueError(f"weights differ from those of the files: {', '.join(wrong[:3])}")
    rows = []
    for batch in TINY_BATCHES if is_tiny else BATCHES:
        rows.append(serve(model, *batch))
        say(str(rows[-1]))
    return Run(
        **facts_for(Run, "cuda" if on_card else "cpu"),
        safetensors=version("safetensors"),
        command=line,
        model=getattr(model.config, "about", folder.name),
        files=len(paths),
        weights_gib=sum(path.stat().st_size for path in paths) / GIB,
        load_seconds=load,
        host_gib=host,
        card_gib=after_loading,
        most_gib=card_memory(),
        rows=tuple(rows),
    )


if __name__ == "__main__":
    sys.exit(main())
