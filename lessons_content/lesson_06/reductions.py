"""A learner's maximum and sum over a block, as a function of tensors, for 6.3."""

import re

import torch

from lessons_content.exercises import kernels

WARP = 32


def reference(values):
    """The maximum and the sum of each block, once for each of its threads.

    values: (num_blocks, rounds, threads).
    """
    reduced = values.amax(-1), values.double().sum(-1).float()
    return tuple(each[..., None].expand_as(values).contiguous() for each in reduced)


def name_from_text(answer):
    """Each thread has its own array, and they share none."""
    text = re.sub(r"//.*", "", answer)
    is_own = "__shared__" not in text and re.search(r"^\s*float\s+\w+\[", text, re.M)
    return "array-not-shared" if is_own else None


def prepare(answer):
    library = kernels.build(answer, wrapper="reduce_check.cu")

    def reduce_checked(values):
        out_max, out_sum = torch.empty_like(values), torch.empty_like(values)
        try:
            kernels.with_misplaced_barriers(
                lambda: library.reduce(values, out_max, out_sum, *values.shape), answer
            )
        except kernels.KernelError as error:
            if never_written(str(error), answer, values.shape[-1]):
                error.kind = "never-written"
            mask = re.search(r"with the mask 0x([0-9a-f]+)", str(error))
            if error.kind == "absent-lane" and mask and int(mask[1], 16) != 0xFFFFFFFF:
                error.kind = "mask-too-small"
            if warp_of_another_size(answer):
                error.kind = "warp-size"
            raise
        return out_max, out_sum

    return reduce_checked


def warp_of_another_size(answer):
    """Whether warps have 16 or 64 threads. (blockDim.x / 64 may be half their number.)"""
    text = kernels.without_comments(answer)
    own = "|".join((r"threadIdx\.x", *re.findall(r"\b(\w+)\s*=\s*threadIdx\.x\s*[;,]", text)))
    divided = r"\s*(?:[/%]\s*(?:16|64)|>>\s*[46]|&\s*(?:15|63|0xf|0x3f))\b"
    warps_of_16 = r"\bblockDim\.x\s*(?:/\s*16|>>\s*4)\b"
    return bool(re.search(rf"\b(?:{own}){divided}|{warps_of_16}", text))


def never_written(report, answer, threads):
    """Whether no thread ever writes the place that is read. Then no barrier would help.

    An array of up to 32 places has one for each warp.
    """
    read = re.search(r" reads (\w+)\[(\d+)\] before any thread", report)
    size = read and re.search(rf"\b{read[1]}\s*\[\s*(\d+)\s*\]", answer)
    if not size:
        return False
    return int(read[2]) >= (threads // WARP if int(size[1]) <= WARP else threads)
