"""Turns a report into the error to raise, with sentences for each kind of fault."""

import math
import re
from dataclasses import replace

from lessons_lib.cuda_on_cpu.elements import (
    allocated_name,
    inner_sizes,
    shared_element,
    tensor_element,
)
from lessons_lib.cuda_on_cpu.reports import KernelError, Report, block_entry, refine
from lessons_lib.cuda_on_cpu.source_lines import look_up, source_line

_PRESENT = {"read": "reads", "write": "writes", "atomic": "updates"}
_OUTSIDE = ("out-of-bounds", "shared-out-of-bounds")
_PAST = {"read": "read", "write": "wrote", "atomic": "updated atomically"}


def explain(report: Report, texts: dict[str, str], tensors: dict) -> KernelError:
    """The error to raise for a report.

    texts: the learner's texts by name.
    tensors: the tensors of the call, by the name of the parameter.
    """
    report = refine(_with_lines(report, texts), tensors, texts)
    here, there = report.here, report.there
    return KernelError(
        _message(report, texts, tensors),
        report.kind,
        report.kernel,
        here and here.source,
        here and here.number,
        report.block,
        report.thread,
        report.name,
        there and there.source,
        there and there.number,
        report.other_thread,
    )


def _with_lines(report: Report, texts: dict[str, str]) -> Report:
    here = source_line(texts, report.file, report.line)
    there = source_line(texts, report.other_file, report.other_line)
    if report.pc:
        offset, library = report.pc
        (here,) = look_up(library, [offset], texts)
    if report.other_pc:
        offset, library = report.other_pc
        (there,) = look_up(library, [offset], texts)
    if report.memory == "allocated":
        name = _allocated_name(report, texts)
        report = replace(report, values=report.values | {"name": name})
    return replace(report, here=here, there=there)


def _allocated_name(report: Report, texts: dict[str, str]) -> str:
    made = source_line(texts, report.made_file, report.made_line)
    name = made and allocated_name(made.text)
    return name or (f"memory from line {made.number}" if made else "memory from cudaMalloc")


def _message(report: Report, texts: dict[str, str], tensors: dict) -> str:
    """A sentence; the lines; what to look at; the kernel, block and thread."""
    scene = _Scene(report, texts, tensors)
    what, advice = _SENTENCES.get(report.kind, _other)(scene)
    return "\n".join(
        [what, *scene.lines(), " ".join(part for part in (advice, scene.where()) if part)]
    ).strip()


def position(index: tuple[int, ...]) -> str:
    """`5` for (5, 0, 0) and `(0, 1)` for (0, 1, 0): only the dimensions that are used."""
    if index[2]:
        return str(tuple(index))
    return str(tuple(index[:2])) if index[1] else str(index[0])


class _Scene:
    """A report, and the words that most sentences need."""

    def __init__(self, report: Report, texts: dict[str, str], tensors: dict):
        self.report = report
        self.tensor = tensors.get(report.name) if report.memory == "tensor" else None
        self.entry = block_entry(report, tensors)
        here = report.here
        self.inner = (
            inner_sizes(report.name, texts, here.source, here.number)
            if here and report.name and report.memory != "allocated"
            else ()
        )
        self.thread = f"thread {position(report.thread)}" if report.thread else "a thread"
        self.Thread = self.thread[0].upper() + self.thread[1:]
        self.block = f"block {position(report.block)}" if report.block else "a block"
        self.other = (
            f"thread {position(report.other_thread)}"
            if report.other_thread
            else "another thread"
        )
        self.other_block = (
            f"block {position(report.other_block)}" if report.other_block else None
        )
        self.other_did = _PAST.get(report.other_access, "used")
        self.element = self._element() if report.byte is not None else "memory"
        self.does = (
            f"{_PRESENT.get(report.access, 'uses')} "
            f"{self.element}{' atomically' * (report.access == 'atomic')}"
        )

    def _element(self) -> str:
        report = self.report
        if self.tensor is not None:
            element = tensor_element(
                report.name, self.tensor, self.entry.byte if self.entry else report.byte
            )
        else:
            element = shared_element(
                report.name, report.byte, report.element, report.bytes, self.inner
            )
        if report.kind not in _OUTSIDE:
            return element  # in a wide access, this is the element at fault
        after = report.size // report.element - 1
        return f"{element} and the {after} after it" if after > 0 else element

    def lines(self) -> list[str]:
        here, there = self.report.here, self.report.there
        if here and there and here != there:
            mine, others = (
                (self.block, self.other_block)
                if self.other_block
                else (self.thread, self.other)
            )
            return [f"    {here}    ({mine})", f"    {there}    ({others})"]
        return [f"    {line}" for line in (here or there,) if line]

    def where(self) -> str:
        known = (
            self.report.kernel,
            self.report.block and self.block,
            self.report.thread and self.thread,
        )
        return f"({', '.join(part for part in known if part)})" if any(known) else ""

    def far(self) -> str:
        """Says that an int overflowed if an index is far outside every tensor; else ""."""
        is_far = abs(self.report.byte) > self.report.element << 30
        return (
            " So far away: does the calculation fit into an int, up to 2147483647?"
            if is_far
            else ""
        )

    def extent(self) -> str:
        """Says which elements the variable or tensor has."""
        report = self.report
        if self.tensor is not None:
            return f"{report.name} has the shape {tuple(self.tensor.shape)}"
        count = report.bytes // report.element
        if report.memory == "allocated" and count * report.element != report.bytes:
            return f"{report.name} has {_counted(report.bytes, 'byte')}"
        if self.inner:
            sizes = (count // math.prod(self.inner), *self.inner)
            return f"{report.name} is {report.name}{''.join(f'[{size}]' for size in sizes)}"
        return (
            f"{report.name} has the elements 0 to {count - 1}"
            if count > 1
            else f"{report.name} is one element long"
        )


def _race(scene):
    return (
        (
            f"{scene.Thread} {scene.does}, which {scene.other} {scene.other_did}, "
            "and no __syncthreads() lies between the two."
        ),
        (
            "On a GPU either may come first. "
            "Which of the two has to, and what makes the other wait?"
        ),
    )


def _missing_syncwarp(scene):
    return (
        (
            f"{scene.Thread} {scene.does}, "
            f"which {scene.other} of the same warp {scene.other_did}, "
            "and neither __syncwarp() nor __syncthreads() lies between the two."
        ),
        "The lanes of a warp need not run in step, so either may come first.",
    )


def _non_atomic_update(scene):
    if scene.other_block:
        who = f"{scene.Thread} of {scene.block} and a thread of {scene.other_block}"
    else:
        who = f"{scene.Thread} and {scene.other}"
    return (
        f"{who} both update {scene.element}, and nothing keeps them apart.",
        (
            "An update reads the old value, then writes the new one. "
            "When both read before either writes, one is lost."
        ),
    )


def _race_between_blocks(scene):
    return (
        (
            f"{scene.Thread} of {scene.block} {scene.does}, "
            f"which {scene.other_block} {scene.other_did} in the same launch."
        ),
        (
            "Blocks run in any order, and __syncthreads() holds for one block only. "
            "Which block is this element's?"
        ),
    )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _divergent_barrier(scene):
    report = scene.report
    barrier = f"{report.what or '__syncthreads'}()"
    if report.returned:
        wait = (
            f"{report.waiting} threads wait at {barrier}, {scene.thread} among them"
            if report.waiting != 1
            else f"{scene.Thread} waits at {barrier}"
        )
        gone = (
            f"{report.returned} have returned from the kernel, {scene.other} among them"
            if report.returned != 1
            else f"{scene.other} has returned from the kernel"
        )
        what = f"{wait}, and {gone}."
    else:
        another = "another" if report.other_what == report.what else f"{report.other_what}()"
        what = f"{scene.Thread} waits at one {barrier} and {scene.other} at {another}."
    return (
        what,
        (
            f"Every thread of a block must come to the same {barrier}. "
            "Look at the conditions, loops and returns on the way to it."
        ),
    )


def lanes(mask: int) -> str:
    """`lanes 0, 2 to 5` for the bits of a mask."""
    runs = re.finditer("1+", f"{mask:032b}"[::-1])
    words = [
        f"{run.start()} to {run.end() - 1}" if len(run[0]) > 1 else str(run.start())
        for run in runs
    ]
    return f"lane{'s' * (mask.bit_count() > 1)} {', '.join(words)}"


def _absent_lane(scene):
    report = scene.report
    calls = (
        f"Lane {report.lane} "
        f"({scene.thread}) calls {report.what} with the mask 0x{report.mask}"
    )
    if report.text == "source lane":
        return (
            (
                f"{calls} and asks for the value of lane {report.source}, "
                "which does not take part."
            ),
            (
                "A shuffle reads only lanes that call it too, with the same mask, "
                "and have not returned."
            ),
        )
    if report.text == "caller is not in the mask":
        return (
            f"{calls}, which leaves out lane {report.lane} itself.",
            "The mask has a bit for each lane that calls, the caller's included.",
        )
    other = (
        f" {scene.other[0].upper()}{scene.other[1:]} waits at {report.other_what} instead."
        if report.other_what
        else ""
    )
    return (
        f"{calls}, and waits for {lanes(report.lanes_missing or 0)}.{other}",
        (
            "Each lane that the mask names has to come to this call. "
            "Is it in a branch that not all of them take?"
        ),
    )


def _shared_out_of_bounds(scene):
    return (
        f"{scene.Thread} {scene.does}, but {scene.extent()}.",
        "What lies there on a GPU is another variable, or nothing.",
    )


def _dynamic_too_small(scene):
    report = scene.report
    gave = f"gave {_counted(report.bytes, 'byte')}" if report.bytes else "gave none"
    return (
        (
            f"{scene.Thread} {scene.does}, which ends at byte {report.byte + report.size} "
            f"of the dynamic shared memory, but the launch {gave}."
        ),
        (
            "The third value between <<< and >>> is its length in bytes. "
            "Compare it with all that the kernel keeps there."
        ),
    )


def _shared_uninitialised(scene):
    return (
        f"{scene.Thread} {scene.does} before any thread of the block has written it.",
        "Shared memory does not begin with zeros: what it holds is left from another block.",
    )


def _block_table(scene):
    padding = (
        " A row is filled with -1 after its sequence's last block."
        if scene.entry.value == -1
        else ""
    )
    return (
        (
            f"{scene.entry.element} holds {scene.entry.value}, "
            f"which is no block of {scene.report.name} "
            f"(blocks 0 to {scene.tensor.shape[0] - 1}), and {scene.thread} {scene.does}."
        ),
        f"Is this the row and the column that the thread should read?{padding}",
    )


def _out_of_bounds(scene):
    who = scene.Thread if scene.report.thread else "The launcher"
    where = "tensor" if scene.tensor is not None else "memory that was allocated"
    return (
        f"{who} {scene.does}, outside of the {where}: {scene.extent()}.",
        "How is the index made, and for which threads is it too large or negative?"
        + scene.far(),
    )


def _write_to_input(scene):
    return (
        f"{scene.Thread} {scene.does}, but {scene.report.name} is an input (const).",
        "The caller, and other threads, rely on it to stay as it is.",
    )


def _output_unwritten(scene):
    report = scene.report
    others = report.missing // report.element - 1
    also = (
        f"{'were' if others > 1 else 'was'} {others} other "
        f"element{'s' * (others > 1)} of {report.name}"
    )
    nor = f", nor {also}" if others > 0 else ""
    advice = (
        "The function launched no kernel."
        if report.launches == 0
        else (
            "On a GPU it keeps whatever was in memory before. "
            "Which thread should write it, and does it always?"
        )
    )
    return f"{scene.element} was never written{nor}.", advice


def _output_read(scene):
    return (
        f"{scene.Thread} {scene.does} before it was written.",
        (
            f"{scene.report.name} is an output: "
            "on a GPU it begins with whatever was in memory before."
        ),
    )


def _uninitialised(scene):
    return (
        f"{scene.Thread} {scene.does} before anything was written there.",
        "cudaMalloc does not clear memory: what it holds is left from something else.",
    )


def _copies_unwritten(scene):
    return (
        f"{scene.report.what} reads {scene.element}, which nothing has written.",
        "Which thread should write it, and does it always? cudaMalloc does not clear memory.",
    )


def _use_after_free(scene):
    who = scene.Thread if scene.report.thread else "The launcher"
    return (
        f"{who} {scene.does} after it was freed in line {scene.report.freed_line}.",
        "On a GPU the memory may belong to something else by then.",
    )


def _host_too_early(scene):
    return (
        f"The launcher {scene.does}, which a kernel may still be using.",
        "A launch returns at once. What makes the host wait until the kernel has ended?",
    )


def _bad_call(scene):
    report = scene.report
    text = report.text.replace("{name}", report.name or "")
    return f"{report.what}: {text}{'' if text.endswith('?') else '.'}", ""


def _trap(scene):
    return f"{scene.Thread} called __trap().", ""


def _no_address(scene):
    if scene.report.address is None:
        return (
            f"{scene.Thread} uses memory at an address that cannot be right.",
            (
                "It is far from all memory, "
                "or no multiple of the size that is read or written at once."
            ),
        )
    address = int((scene.report.address or "0").replace("(nil)", "0"), 16)
    does = f"{scene.Thread} {_PRESENT.get(scene.report.access, 'uses')} memory through"
    if address < 1 << 20:
        near = (
            f"the address {address:#x}, next to a null pointer"
            if address
            else "a null pointer"
        )
        return (
            f"{does} {near}.",
            "Where does the pointer come from? An argument that is None is a null pointer.",
        )
    # The address itself is different on every run.
    return (
        f"{does} a pointer that leads to no tensor, and to no variable of the kernel.",
        (
            "Where does the pointer come from? "
            "A kernel cannot reach variables of the function that launches it."
        ),
    )


def _misaligned(scene):
    size = scene.report.size
    return (
        (
            f"{scene.Thread} {scene.does} and what follows as {size} bytes at once, "
            f"but their address is no multiple of {size}."
        ),
        (
            "A GPU refuses that. "
            "Is the index, or the offset of the tensor, a multiple of the vector's length?"
        ),
    )


def _host_access(scene):
    remedy = (
        "cudaMemcpy brings it to the host."
        if scene.report.memory == "allocated"
        else "Pass numbers that the host needs as numbers."
    )
    return (
        f"The launcher itself {scene.does}, in code that runs on the host.",
        f"On a GPU this lies in the GPU's memory, which only kernels reach. {remedy}",
    )


def _no_end(scene):
    steps = (
        f"was still running after {scene.report.steps} steps"
        if scene.report.steps
        else "runs in a loop that does nothing"
    )
    return (
        f"{scene.Thread} {steps}.",
        "Which condition ends this loop, and what makes it true?",
    )


def _division_by_zero(scene):
    return (
        f"{scene.Thread} divides an integer by zero (or the smallest integer by -1).",
        (
            "A GPU does not stop there: it goes on with a number that means nothing. "
            "Where does the divisor come from?"
        ),
    )


def _stack_overflow(scene):
    return (
        f"The stack of {scene.thread} is full.",
        "Which function calls itself, and what ends that? Else its arrays are too large.",
    )


def _assertion(scene):
    return f"The assertion `{scene.report.text}` does not hold for {scene.thread}.", ""


def _bad_launch(scene):
    report = scene.report
    if not report.grid:
        asked = (
            f"It was asked for {_counted(report.shared_bytes, 'byte')}."
            if report.shared_bytes
            else ""
        )
        if not report.kernel:
            return f"{report.text}.", asked
        return f"The launch of {report.kernel} failed: {report.text}.", asked
    shared = (
        f" and {_counted(report.shared_bytes, 'byte')} of dynamic shared memory"
        if report.shared_bytes
        else ""
    )
    return (
        f"{report.kernel} cannot be launched: {report.text}.",
        f"The launch asks for {report.grid} blocks of {report.threads} threads{shared}.",
    )


def _other(scene):
    return f"The kernel failed: {scene.report.kind}. {scene.report.text or ''}".strip(), ""


_SENTENCES = {
    "race": _race,
    "missing-syncwarp": _missing_syncwarp,
    "non-atomic-update": _non_atomic_update,
    "race-between-blocks": _race_between_blocks,
    "divergent-barrier": _divergent_barrier,
    "absent-lane": _absent_lane,
    "shared-out-of-bounds": _shared_out_of_bounds,
    "dynamic-shared-too-small": _dynamic_too_small,
    "shared-uninitialised": _shared_uninitialised,
    "block-table": _block_table,
    "out-of-bounds": _out_of_bounds,
    "write-to-input": _write_to_input,
    "output-unwritten": _output_unwritten,
    "output-read": _output_read,
    "no-address": _no_address,
    "division-by-zero": _division_by_zero,
    "stack-overflow": _stack_overflow,
    "misaligned": _misaligned,
    "host-access": _host_access,
    "no-end": _no_end,
    "assertion": _assertion,
    "bad-launch": _bad_launch,
    "uninitialised": _uninitialised,
    "copies-unwritten": _copies_unwritten,
    "use-after-free": _use_after_free,
    "host-too-early": _host_too_early,
    "bad-call": _bad_call,
    "trap": _trap,
}
