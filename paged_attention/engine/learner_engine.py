"""Assembles an engine from the learner's own answers (lesson 08).

Where an answer is missing, the course's is used.
"""

import functools
import types

from lessons_lib.cuda.inline import read_kernel
from lessons_lib.cuda.library import build_cuda
from paged_attention.attention.paged_kernel import KERNEL_FILES
from paged_attention.engine.engine import Engine
from paged_attention.engine.paths import PATHS
from paged_attention.own_answers import (
    BLOCK_MANAGER,
    THE_COURSES,
    Answers,
    Part,
    build_own_manager,
    show_parts,
)

__all__ = ["Part", "assemble", "show_parts"]

# Exercises and the files under kernels/ that their answers replace, in the order in which they
# are compiled.
KERNEL = {
    "6.2": "paged_address.cuh",
    "6.3": "block_reduce.cuh",
    "6.4": "paged_scores.cuh",
    "6.5": "paged_values.cuh",
    "6.6": "paged_attention.cu",
}
# Paths, and the exercises with answers that are arguments of the path's function.
PATH_FUNCTIONS = {
    "paged_torch": {"5.5": "attn_paged_torch"},
    "blockwise": {"4.1": "dispatch", "4.2": "block_attention", "4.5": "combine_segments"},
}
# Exercise: the engine's part that has the function, its name there, and if it is a method.
PLACES = {
    "2.5": ("manager", "append_token", True),
    "2.7": ("manager", "free_sequence", True),
    "5.2": ("manager", "append_tokens", True),
    "5.3": ("runner", "build_metadata", False),
    "8.2": ("runner", "flatten_batch", False),
    "8.3": ("scheduler", "schedule", True),
    "8.4": ("scheduler", "preempt", True),
    "8.5": ("prefix_cache", "block_hashes", False),
    "8.6": ("scheduler", "start", True),
    "8.7": (None, "sample", False),
    "8.8": (None, "postprocess", True),
    "8.9": ("scheduler", "make_room", True),
}
FORWARD = "8.1"


def assemble(model, **options) -> tuple[Engine, list[Part]]:
    """Builds an engine from the learner's own parts, and says which parts those are.

    Every saved answer is checked again before it is used. If none passes, the part is the
    course's.

    options: as for Engine, except that `path` is "paged_torch" unless another is named. A
        block_manager or a forward that is given here is used as it is.
    """
    path = options.setdefault("path", "paged_torch")
    engine = Engine(model, **options)
    of_path = KERNEL if path == "kernel" else PATH_FUNCTIONS.get(path, {})
    of_manager = {} if "block_manager" in options else BLOCK_MANAGER
    forward = [] if "forward" in options else [FORWARD]
    answers = Answers([*of_manager, *PLACES, *of_path, *forward])
    if of_manager and (own := build_own_manager(answers)):
        engine.prefix_cache.begin(own.BlockManager(engine.manager.kv_cache.shape[2]))
    if path == "kernel":
        _install_kernel(engine, answers)
    elif of_path:
        yours = {
            name: answers.yours[exercise]
            for exercise, name in of_path.items()
            if exercise in answers.yours
        }
        engine.runner.plan = functools.partial(PATHS[path], **yours)
    for exercise, (owner, name, is_method) in PLACES.items():
        if exercise in answers.yours:
            place = getattr(engine, owner) if owner else engine
            function = answers.yours[exercise]
            setattr(place, name, types.MethodType(function, place) if is_method else function)
    if FORWARD in answers.yours:
        engine.runner.forward = answers.yours[FORWARD]
    parts = answers.parts()
    if not of_path and path in PATHS:
        parts.append(Part("", f"path {path}", THE_COURSES, "no exercise is a part of it"))
    return engine, parts


def _install_kernel(engine: Engine, answers: Answers) -> None:
    """Gives the engine the kernel built from the learner's texts, for the model's device."""

    def build(texts):
        files = {file: texts.get(file) or read_kernel(file) for file in KERNEL_FILES}
        target = "gpu" if engine.runner.model.device.type == "cuda" else "fast"
        return build_cuda(
            *files.values(), names=KERNEL_FILES, target=target, name="paged_attention"
        )

    engine.runner.plan = functools.partial(
        PATHS["kernel"], library=answers.build(KERNEL, build)
    )
