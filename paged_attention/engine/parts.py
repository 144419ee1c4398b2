"""Assembles an engine from the learner's own answers (lesson 08).

Where an answer is missing, the course's is used.
"""

import functools
import sys
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm

from lessons_lib import checks
from lessons_lib.compiler_errors import CannotBuild
from lessons_lib.cuda import build_cuda
from lessons_lib.inline import build_cpp, read_kernel
from lessons_lib.saved_answers import NoSavedAnswer, load
from lessons_processes.isolation import describe_error
from paged_attention.engine.engine import Engine
from paged_attention.engine.paths import PATHS
from paged_attention.paged_kernel import KERNEL_FILES

YOURS, THE_COURSES = "yours", "the course's"

# Exercises and the files under kernels/ that their answers replace, in the order in which they
# are compiled. 1.3 is 1.2 made safe for threads. The engine has only one, so 1.2 will do.
BLOCK_MANAGER = {
    "1.1": "free_list.h",
    "1.3": "block_manager.h",
    "1.4": "block_manager_binding.cpp",
}
WITHOUT_MUTEX = "1.2"
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
# The mistake of an answer from before its exercise changed. Its message says what to do.
OUTDATED = "old-generator"

# (exercise, digest) of the saved answers that this process has checked
_passed: set[tuple[str, str]] = set()


@dataclass(frozen=True)
class Part:
    """A part of an engine.

    `whose`: "yours" or "the course's".
    `reason`: why it is the course's; "" for yours.
    """

    exercise: str
    name: str
    whose: str
    reason: str = ""


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
    answers = _Answers([*of_manager, *PLACES, *of_path, *forward])
    if of_manager:
        _install_block_manager(engine, answers)
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


def show_parts(parts: list[Part]) -> None:
    """Prints the parts as a table."""
    rows = [
        ("exercise", "part", "whose", "why"),
        *((part.exercise, part.name, part.whose, part.reason) for part in parts),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print(
            "  ".join(
                f"{text:{width}}" for text, width in zip(row, widths, strict=True)
            ).rstrip()
        )


class _Answers:
    """The learner's answers to some exercises.

    `yours`: the answers that pass their checks, by exercise.
    `reasons`: for each other exercise, why its answer is missing here.
    """

    def __init__(self, exercises: list[str]):
        self.yours: dict[str, Any] = {}  # texts and functions
        self.reasons: dict[str, str] = {}
        with ThreadPoolExecutor(2) as pool:
            # To stdout: a bar on stderr leaves an empty red line in JupyterLab.
            found = tqdm(
                pool.map(_find, exercises),
                "checking your parts",
                len(exercises),
                leave=False,
                delay=3,
                file=sys.stdout,
            )
            for exercise, (answer, reason) in zip(exercises, found, strict=True):
                if reason:
                    self.reasons[exercise] = reason
                else:
                    self.yours[exercise] = answer

    def stand_in(self, exercise: str, missing: str) -> None:
        """Uses the answer to `exercise` in place of the missing one, if it passes."""
        answer, reason = _find(exercise)
        if not reason:
            self.yours[exercise] = answer
            del self.reasons[missing]

    def build(self, files: dict[str, str], build: Callable[[dict[str, str]], object]):
        """Builds the learner's texts, together with the course's where one is missing.

        build: called with the learner's texts by file name.
        Returns None if no text is the learner's. Returns None, too, if the texts cannot be
            built together; then all of them count as the course's.
        """
        texts = {
            file: self.yours[exercise]
            for exercise, file in files.items()
            if exercise in self.yours
        }
        try:
            return build(texts) if texts else None
        except Exception as error:
            reason = (
                f"this machine cannot build them: {error}"
                if isinstance(error, CannotBuild)
                else f"your texts cannot be built together: {describe_error(error)}"
            ).splitlines()[0]
            for exercise in [exercise for exercise in files if exercise in self.yours]:
                del self.yours[exercise]
                self.reasons[exercise] = reason
            return None

    def parts(self) -> list[Part]:
        rows = [Part(exercise, _name(exercise), YOURS) for exercise in self.yours]
        rows += [
            Part(exercise, _name(exercise), THE_COURSES, reason)
            for exercise, reason in self.reasons.items()
        ]
        return sorted(
            rows, key=lambda part: [int(number) for number in part.exercise.split(".")]
        )


def _find(exercise: str) -> tuple[Any, str]:
    """Returns the saved answer if it passes its check, else None and the reason."""
    try:
        saved = load(exercise)
        if (exercise, saved.digest) not in _passed:
            result = checks.run(exercise, saved.answer)
            if result.mistake == OUTDATED:
                return None, result.message.partition("\n")[0]
            if result.mistake == checks.NOT_JUDGED:
                return None, result.message.splitlines()[1]
            if not result.passed:
                return None, f"it does not pass its check now: {result.mistake}"
            _passed.add((exercise, saved.digest))
    except NoSavedAnswer as error:
        return None, str(error)
    except Exception as error:
        return None, f"its check could not be run: {describe_error(error)}"
    return (
        saved.answer if isinstance(saved.answer, str) else _signed(exercise, saved.answer)
    ), ""


def _name(exercise: str) -> str:
    return checks.find(exercise).answer_name


def _signed(exercise: str, function: Callable) -> Callable:
    """Wraps a function so that its errors say which exercise they come from.

    The notebook that held its text may be closed.
    """

    @functools.wraps(function)
    def call(*arguments, **named):
        try:
            return function(*arguments, **named)
        except Exception as error:
            error.add_note(
                f"It came out of your answer to exercise {exercise}, `{_name(exercise)}`."
            )
            raise

    return call


def _install_block_manager(engine: Engine, answers: _Answers) -> None:
    """Gives the engine the C++ block manager built from the learner's texts."""

    def build(texts):
        files = {
            file: texts.get(file) or read_kernel(file)
            for file in ("block_errors.h", *BLOCK_MANAGER.values())
        }
        module = build_cpp(*files.values(), names=tuple(files), name="block_manager")
        return module.BlockManager(engine.manager.kv_cache.shape[2])

    files = BLOCK_MANAGER
    if "1.3" in answers.reasons:
        answers.stand_in(WITHOUT_MUTEX, "1.3")
        files = {WITHOUT_MUTEX: "block_manager.h", **files}
    built = answers.build(files, build)
    if built is not None:
        engine.prefix_cache.begin(built)


def _install_kernel(engine: Engine, answers: _Answers) -> None:
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
