"""Mistakes that a launcher's text shows once a case has failed, for 6.6."""

import math
import re
from dataclasses import dataclass, replace

import torch

from lessons_content.exercises import kernels
from lessons_content.exercises.kit import Text
from lessons_content.lesson_06 import batches
from lessons_content.lesson_06.batches import Batch, Case
from paged_attention.attention.paged_kernel import KERNEL_FILES
from paged_attention.pool.block_table import NO_BLOCK

# bytes of dynamic shared memory that a kernel gets without asking, its static part included
LARGEST = 48 * 1024
ALL = 227 * 1024  # what a kernel can get, as on an H100; static shared memory counts as well
# A number is assigned where a condition belongs: in an if, or before the ? of a ternary.
NUMBER = r"\s*=(?!=)\s*(?:\d+|nullptr|NULL)\s*"
ASSIGNED = (
    rf"\b(?:if|while)\s*\(\s*\w+(?:(?:\.|->)\w+)*{NUMBER}(?:\)|&&|\|\|)"
    rf"|\bparams\.\w+{NUMBER}\)?\s*\?"
)


def shared_bytes_of(launch: str, text: str) -> int:
    """The shared memory of a launch: a number, or a variable with one value. Otherwise 0."""
    arguments = [argument.strip() for argument in re.split(r",(?![^(]*\))", launch)]
    value = arguments[2] if len(arguments) > 2 else ""
    if re.fullmatch(r"[a-zA-Z_]\w*", value):
        given = re.findall(rf"\b{value}\s*[-+*/]?=(?!=)([^;]*);", text)
        only = given[0] if len(given) == 1 else ""
        value = re.sub(r"^[^?]*\?(?:\s*0\s*:)?|:\s*0\s*$", "", only)
    value = value.replace("sizeof(float)", "4").strip()
    if not re.fullmatch(r"\(*\d+(?:\s*\*\s*\d+)*\)*", value):
        return 0
    return math.prod(map(int, re.findall(r"\d+", value)))


def name_from_text(source: str) -> str | None:
    """Mistakes of which the results can be anything."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.DOTALL)
    if re.search(ASSIGNED, text):
        return "assigned-not-compared"
    launches = re.findall(r"<<<(.*?)>>>", text, flags=re.DOTALL)
    is_fixed = any(LARGEST <= shared_bytes_of(launch, text) < ALL for launch in launches)
    return "fixed-score-buffer" if is_fixed else None


BEFORE = " ".join(name.removesuffix(".cuh") for name in KERNEL_FILES[:-1])
TOO_MANY_HEADS = 65_536  # a grid has 65,535 blocks in y


@dataclass(frozen=True)
class RefusedCase(Case):
    """A batch that cannot be launched.

    number: of its dtype, which may be no dtype at all.
    fails: whether the batch is a right one, and the launch is made to fail.
    """

    number: int = 0
    fails: bool = False

    def describe(self, result: str = "") -> str:
        if self.num_q_heads >= TOO_MANY_HEADS:
            heads = f"a batch with {self.num_q_heads:,} query heads"
            return f"{heads}, and a grid has at most 65,535 blocks in y"
        if self.fails:
            return f"{super().describe()}; the launch is made to fail"
        return f"params.dtype is {self.number}, which is no type"


@dataclass(frozen=True)
class WideCase(Case):
    """The table is made for much longer sequences: it has more entries in a row."""

    entries: int = 0

    def batch(self) -> Batch:
        batch = super().batch()
        spare = torch.full((len(batch.q), self.entries), NO_BLOCK, dtype=torch.int32)
        return replace(batch, block_table=torch.cat((batch.block_table, spare), dim=1))


def reference(case):
    if isinstance(case, RefusedCase):
        raise kernels.KernelError("This batch cannot be launched.", "bad-launch")
    return batches.attention(case.batch())


def prepare(answer):
    library = kernels.build(answer, BEFORE)

    def launch(batch, **others):
        out = torch.empty(batch.q.shape, dtype=batch.q.dtype)
        scores = batch.new_scores() if batch.workspace else None
        library.paged_attention(**batch.fields(out=out, scores=scores, **others))
        return out

    def attend(case):
        batch = case.batch()
        if isinstance(case, RefusedCase):
            return launch_refused(case, batch)
        stream = 0 if len(batch.q) == 3 else kernels.STREAM
        with kernels.on_stream(library, stream) as launches:
            try:
                out = launch(batch)
            except kernels.KernelError as error:
                error.kind = kind_by_launches(error, launches, batch)
                raise
        attend.num_launches = len(launches) if several_kernels(launches) else 0
        return out

    def launch_refused(case, batch):
        with library.launches(stream=kernels.STREAM, failing=int(case.fails)) as launches:
            try:
                launch(batch, dtype=case.number)
            except kernels.KernelError:  # though the launcher may have returned 0
                if launches.returned:
                    raise

    return attend


def several_kernels(launches) -> bool:
    return len({launch.function for launch in launches}) > 1


def kind_by_launches(error, launches, batch) -> str:
    """The kind of an error, or what went wrong in a launch, as far as numbers show it."""
    grid = tuple(batch.q.shape[:2])
    if any(each.block[:2] == grid and each.grid[0] % 32 == 0 for each in launches):
        return "launch-numbers-swapped"
    if "cudaFuncSetAttribute allowed so much" in str(error):
        return "all-memory-asked-for"
    return "falls-through" if several_kernels(launches) else error.kind


def same(expected, actual) -> bool:
    """As for all kernels. Several launches in a row may give the right numbers.

    If they do not, a switch went on into its next case. Any two of those are the same, since
    their numbers depend on the launch.
    """
    given = getattr(actual, "result", None)
    return kernels.same(expected, given) or kernels.same(expected, actual)


def observe(subject, case):
    """The output or what was found; of what cannot be launched, what the launcher returned."""
    if not isinstance(case, RefusedCase):
        result = kernels.result_of(lambda: subject(case))
        if isinstance(result, kernels.Finding) or not getattr(subject, "num_launches", 0):
            return result
        words = f"{subject.num_launches} kernels were launched, one after the other."
        finding = kernels.Finding(kernels.KernelError(words, "falls-through"))
        finding.result = result
        return finding
    try:
        subject(case)
    except kernels.KernelError as error:
        is_refused = error.kind == "bad-launch"
        return Text("returns an error code") if is_refused else kernels.Finding(error)
    return Text("returns 0, as if all were well")


def describe(case):
    if isinstance(case, RefusedCase):
        return case.describe()
    batch = case.batch()
    words = f"{case.describe()}, max_context_len {batch.max_context_len}"
    if isinstance(case, WideCase):
        words += f", {batch.block_table.shape[1]:,} entries in a row of the block table"
    return words
