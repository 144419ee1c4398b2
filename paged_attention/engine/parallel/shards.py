"""The same engine on several processes, each with a share of the KV heads.

Every rank has all weights and runs the same scheduler on the same requests. So the ranks agree
on each step without talking to each other. Only the cache is divided, and attention over it.
The ranks exchange the heads' outputs and nothing else, once in each layer.
"""

import datetime
import json
import multiprocessing
import operator
import os
import pickle
import tempfile
import threading
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait

import torch
import torch.distributed as dist
from torch import Tensor
from tqdm.std import tqdm

from lessons_lib.processes.isolation import ensure_server, without_main_module
from paged_attention.engine.attention import PagedStep, paged_attention_forward
from paged_attention.engine.checkpoint import SMALL_MODEL, load_model
from paged_attention.engine.engine import Engine
from paged_attention.engine.fast.layers import local_of
from paged_attention.engine.request import Request, RequestError, SamplingParams


class ShardError(RuntimeError):
    """A rank failed without saying why, or the ranks took too long."""


def sharded_forward(
    module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask=None,
    *,
    paged: PagedStep,
    **others,
) -> tuple[Tensor, None]:
    """Runs paged_attention_forward() for this rank's heads, then collects all ranks' heads.

    The arguments and the result are those of all heads. The cache in `paged` has only this
    rank's KV heads.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    q, k, v = (heads.chunk(world_size, dim=1)[rank] for heads in (query, key, value))
    o, _ = paged_attention_forward(module, q, k, v, attention_mask, paged=paged, **others)
    parts = [
        torch.empty_like(o, memory_format=torch.contiguous_format) for _ in range(world_size)
    ]
    # each (1, num_tokens, num_q_heads / world_size, head_size)
    dist.all_gather(parts, o.contiguous())
    return torch.cat(parts, dim=2), None


def sharded_engine(model, **options) -> Engine:
    """Builds this rank's engine. Raises ValueError if the KV heads do not divide evenly."""
    num_kv_heads = model.config.num_key_value_heads
    world_size = dist.get_world_size()
    check_shares(num_kv_heads, world_size)
    return Engine(
        model, forward=sharded_forward, num_kv_heads=num_kv_heads // world_size, **options
    )


def check_shares(num_kv_heads: int, world_size: int) -> None:
    if num_kv_heads % world_size:
        raise ValueError(
            f"world_size must divide the model's {num_kv_heads} KV heads, "
            f"and {world_size} does not"
        )


def serve_sharded(
    prompts: list[list[int]],
    params: SamplingParams | list[SamplingParams] = SamplingParams(),
    world_size: int = 2,
    backend: str | None = None,
    load=load_model,
    time_limit: float = 300.0,
    **engine_options,
) -> list[list[int]]:
    """Serves all prompts on world_size processes. No process is left running.

    backend: "nccl", with a GPU for each rank, or "gloo", on the CPU. None takes NCCL if there
        are enough GPUs.
    load: called as load(device=…) on each rank; gives the model. It must be a function of a
        module.
    time_limit: seconds for the whole call.
    Returns the new tokens of each prompt.
    Raises ValueError for a world_size below 1, or one that does not divide the KV heads.
    Raises ValueError if NCCL has fewer GPUs than ranks.
    Raises ShardError, or the error of a rank that failed.
    """
    return run_sharded(
        prompts, params, world_size, backend, load, time_limit, **engine_options
    ).answers


@dataclass(frozen=True)
class ShardedRun:
    """The result of a run on several ranks.

    answers: the new tokens of each prompt.
    seconds: what the last turn took.
    cache_bytes: the size of one rank's cache.
    reasons: why each request ended.
    weight_bytes: the size of one rank's weights.
    """

    answers: list[list[int]]
    seconds: float
    cache_bytes: int
    reasons: list[str] | None = None
    weight_bytes: int = 0


def run_sharded(
    prompts,
    params=SamplingParams(),
    world_size: int = 2,
    backend: str | None = None,
    load=load_model,
    time_limit: float = 300.0,
    turns: int = 1,
    make_engine=sharded_engine,
    **engine_options,
) -> ShardedRun:
    """Does the same as serve_sharded(), several times, and measures the last turn.

    The turns before it warm up.

    make_engine: called as make_engine(model, **engine_options) on each rank; a function of a
        module.
    """
    backend = choose_backend(world_size, backend)
    if load is load_model:
        config = json.loads((SMALL_MODEL / "config.json").read_text(encoding="utf-8"))
        check_shares(config["num_key_value_heads"], world_size)
    # The server of the checks, which has imported PyTorch already.
    context = multiprocessing.get_context("forkserver")
    deadline = time.monotonic() + time_limit
    processes, pipes = [], []
    with tempfile.TemporaryDirectory() as folder:
        job = (
            world_size,
            backend,
            f"file://{folder}/store",
            time_limit,
            load,
            prompts,
            params,
            turns,
            make_engine,
            engine_options,
        )
        try:
            for rank in range(world_size):
                receive, send = context.Pipe(duplex=False)
                process = context.Process(
                    target=_serve_rank, args=(rank, send, *job), daemon=True
                )
                with without_main_module():
                    ensure_server()
                    process.start()
                send.close()
                processes.append(process)
                pipes.append(receive)
            runs = _collect(pipes, deadline, time_limit)
        finally:
            for process in processes:
                process.kill()
                process.join()
            for pipe in pipes:
                pipe.close()
    if any(run.answers != runs[0].answers for run in runs):
        raise ShardError(
            "the ranks gave different tokens; "
            "they must have the same weights and the same requests"
        )
    return runs[0]


def choose_backend(world_size: int, backend: str | None = None) -> str:
    """Chooses NCCL if every rank can have a GPU, else gloo.

    Raises ValueError for a choice that cannot work.
    """
    num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if operator.index(world_size) < 1:
        raise ValueError(f"world_size must be 1 or more, not {world_size}")
    if backend not in (None, "gloo", "nccl"):
        raise ValueError(f"backend must be 'gloo', 'nccl' or None, not {backend!r}")
    if backend == "nccl" and world_size > num_gpus:
        raise ValueError(
            f"NCCL needs a GPU for each of the {world_size} ranks, "
            f"and PyTorch sees {num_gpus} here; backend='gloo' runs on the CPU"
        )
    return backend or ("nccl" if num_gpus >= world_size else "gloo")


def _collect(pipes: list[Connection], deadline: float, time_limit: float) -> list[ShardedRun]:
    """Returns each rank's run. Raises the first error that a rank reports."""
    runs: dict[int, ShardedRun] = {}
    while len(runs) < len(pipes):
        ready = wait(
            [pipe for rank, pipe in enumerate(pipes) if rank not in runs],
            max(0.0, deadline - time.monotonic()),
        )
        if not ready:
            raise ShardError(
                f"{len(pipes) - len(runs)} of {len(pipes)} ranks have not answered "
                f"after {time_limit:g} s"
            )
        # A rank that died comes first: the errors of the others are only that it is gone.
        for rank, message in sorted(
            ((rank, _receive(pipe)) for rank, pipe in enumerate(pipes) if pipe in ready),
            key=lambda pair: pair[1] is not None,
        ):
            if message is None:
                raise ShardError(f"rank {rank} ended without an answer")
            if isinstance(message, Exception):
                message.add_note(f"on rank {rank} of {len(pipes)}")
                raise message
            runs[rank] = message
    return [runs[rank] for rank in range(len(pipes))]


def _receive(pipe: Connection) -> ShardedRun | Exception | None:
    """Returns what a rank has sent, or None if it ended without a word."""
    try:
        return pickle.loads(pipe.recv_bytes())
    except EOFError:
        return None


def _serve_rank(
    rank: int,
    send,
    world_size: int,
    backend: str,
    store: str,
    time_limit: float,
    load,
    prompts,
    params,
    turns: int,
    make_engine,
    engine_options: dict,
) -> None:
    """Runs one rank's process. It sends its run, or its error."""
    try:
        device = f"cuda:{rank}" if backend == "nccl" else "cpu"
        tqdm.set_lock(threading.RLock())  # tqdm's own is between processes and would be left
        if backend == "nccl":
            torch.cuda.set_device(rank)
        else:
            torch.set_num_threads(max(1, (os.cpu_count() or 1) // world_size))
        dist.init_process_group(
            backend,
            init_method=store,
            rank=rank,
            world_size=world_size,
            timeout=datetime.timedelta(seconds=time_limit),
        )
        model = load(device=device)
        for _ in range(turns):
            engine = make_engine(model, **engine_options)
            start = time.perf_counter()
            results = engine.generate(prompts, params)
            seconds = time.perf_counter() - start
        requests = _served(results)
        message: ShardedRun | Exception = ShardedRun(
            [request.output for request in requests],
            seconds,
            engine.manager.kv_cache.nbytes,
            [str(request.reason) for request in requests],
            weight_bytes=sum(local_of(each).nbytes for each in model.parameters()),
        )
        dist.barrier()
    except Exception as error:
        message = error
    try:
        content = pickle.dumps(message)
        pickle.loads(content)
    except Exception:  # an error that cannot be sent, as text
        content = pickle.dumps(ShardError(f"{type(message).__name__}: {message}"))
    send.send_bytes(content)
    os._exit(0)  # at once: the other ranks may hang in a call that this one will never join


def _served(results: list[Request | RequestError | TypeError]) -> list[Request]:
    """Returns the requests. Raises the error of the first one that was refused."""
    requests = []
    for result in results:
        if not isinstance(result, Request):
            raise result
        requests.append(result)
    return requests
