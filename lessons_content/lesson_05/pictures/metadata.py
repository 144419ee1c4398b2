"""Pictures of lesson 05: visible keys, queries without padding, a gather's bytes, traces."""

import matplotlib.pyplot as plt
import torch
from matplotlib.colors import LogNorm
from matplotlib.patches import Rectangle
from torch import Tensor

from lessons_lib.drawing import EDGE, FREE, LINES, SEVERAL, WASTED, empty_hatch, ink
from paged_attention.attention.metadata import BatchMetadata, visible_keys

GAP = 0.8  # between the keys of two sequences


def opening():
    """The opening's batch: a sequence decodes, one gets part of its prompt, one all of it."""
    metadata = BatchMetadata(
        torch.tensor([0, 1, 4, 8], dtype=torch.int32),
        torch.tensor([7, 5, 4], dtype=torch.int32),
        torch.tensor([[4, 0], [1, 5], [2, -1]], dtype=torch.int32),
        torch.tensor([2, 6, 7, 20, 8, 9, 10, 11]),
    )
    return batches(
        [("A decodes, B gets a chunk of its prompt, C its whole prompt", "ABC", metadata)],
        visible_keys,
    )


def batches(pictures: list[tuple], visible):
    """Which query sees which key, in a panel for each batch, with its four tensors below.

    pictures: (title, names, BatchMetadata) each.
    visible: the function visible_keys(q_len, kv_len).
    """
    lengths = [_lengths(metadata) for _, _, metadata in pictures]
    widths = [
        max(sum(kv_len for _, kv_len in batch) + GAP * len(batch) + 3, 11) for batch in lengths
    ]
    height = max(sum(q_len for q_len, _ in batch) for batch in lengths)
    scale = min(0.33, 8.8 / sum(widths))
    figure, panels = plt.subplots(
        1,
        len(pictures),
        figsize=(sum(widths) * scale, (height + 2.2) * scale + 1.3),
        squeeze=False,
        width_ratios=widths,
        layout="constrained",
    )
    for axes, batch, width, (title, names, metadata) in zip(
        panels[0], lengths, widths, pictures, strict=True
    ):
        _draw_batch(axes, names, batch, visible)
        axes.set_title(title, loc="left", fontsize=10)
        axes.text(
            -2.6,
            height + 0.4,
            tensors_text(metadata, wrap=len(pictures) > 1),
            va="top",
            fontsize=8.5,
            family="monospace",
        )
        axes.set(
            xlim=(-2.7, width - 2.7), ylim=(height + 0.4, -2.2), aspect="equal", anchor="NW"
        )
        axes.axis("off")
    return figure


def tensors_text(metadata: BatchMetadata, wrap: bool = False) -> str:
    """The four tensors, one in each line.

    wrap: whether each row of the table has its own line.
    """
    rows = [str(row) for row in metadata.block_table.tolist()]
    table = f"[{(',' + chr(10) + ' ' * 14).join(rows)}]" if wrap else f"[{', '.join(rows)}]"
    return (
        f"cu_seqlens_q {metadata.cu_seqlens_q.tolist()}\n"
        f"seq_lens_kv  {metadata.seq_lens_kv.tolist()}\nblock_table  {table}\n"
        f"slot_mapping {metadata.slot_mapping.tolist()}"
    )


def _lengths(metadata: BatchMetadata) -> list[tuple[int, int]]:
    return list(
        zip(metadata.cu_seqlens_q.diff().tolist(), metadata.seq_lens_kv.tolist(), strict=True)
    )


def _draw_batch(axes, names, batch: list[tuple[int, int]], visible) -> None:
    top, left = 0, 0.0
    for name, (q_len, kv_len), colour in zip(names, batch, SEVERAL * len(batch)):
        seen = visible(q_len, kv_len).tolist()
        axes.text(
            left + kv_len / 2,
            -1.35,
            f"keys of {name}" if kv_len > 3 else name,
            ha="center",
            va="bottom",
            fontsize=9,
        )
        for key in range(kv_len):
            new = key >= kv_len - q_len
            axes.text(
                left + key + 0.5,
                -0.35,
                key,
                ha="center",
                va="bottom",
                fontsize=8,
                weight="bold" if new else "normal",
            )
            for query in range(q_len):
                axes.add_patch(
                    Rectangle(
                        (left + key, top + query),
                        1,
                        1,
                        edgecolor=EDGE,
                        linewidth=0.8,
                        facecolor=colour if seen[query][key] else FREE,
                    )
                )
                if seen[query][key]:
                    axes.text(
                        left + key + 0.5,
                        top + query + 0.5,
                        "•",
                        ha="center",
                        va="center",
                        fontsize=8,
                    )
        for query in range(q_len):
            axes.text(
                -0.25,
                top + query + 0.5,
                f"{name}{kv_len - q_len + query}",
                ha="right",
                va="center",
                fontsize=8,
            )
        top, left = top + q_len, left + kv_len + GAP
        axes.plot([-2.2, left - GAP], [top, top], color=EDGE, linewidth=0.5, linestyle=":")
        axes.text(-2.3, top, top, ha="right", va="center", fontsize=8)
    axes.text(-2.3, 0, 0, ha="right", va="center", fontsize=8)


def padded_and_packed(names, query_lens: list[int]):
    """The same queries twice: as a rectangle with padding, and packed with borders."""
    figure, (padded, packed) = plt.subplots(
        2,
        1,
        figsize=(8, 0.45 * len(query_lens) + 2.2),
        layout="constrained",
        height_ratios=[len(query_lens) + 0.3, 1.9],
    )
    longest, start = max(query_lens), 0
    for s, (name, q_len) in enumerate(zip(names, query_lens, strict=True)):
        for token in range(longest):
            _square(
                padded,
                token,
                s,
                f"{name}{token}" if token < q_len else "",
                SEVERAL[s] if token < q_len else WASTED,
            )
        for token in range(q_len):
            _square(packed, start + token, 0, f"{name}{token}", SEVERAL[s])
        packed.text(start, 1.15, start, ha="center", va="top", fontsize=10)
        start += q_len
    packed.text(start, 1.15, start, ha="center", va="top", fontsize=10)
    places = len(query_lens) * longest
    padded.set_title(
        f"Padded to a rectangle: {places} places, {places - start} of them padding (hatched)",
        loc="left",
        fontsize=10,
    )
    packed.set_title(
        f"One after the other: {start} places; below them cu_seqlens_q, the borders",
        loc="left",
        fontsize=10,
    )
    for axes, height in ((padded, len(query_lens)), (packed, 1.7)):
        axes.set(
            xlim=(-0.3, max(start, longest) + 0.3),
            ylim=(height + 0.05, -0.05),
            aspect="equal",
            anchor="W",
        )
        axes.axis("off")
    return figure


def _square(axes, x: float, y: float, text: str, colour: str) -> None:
    axes.add_patch(
        Rectangle(
            (x, y),
            1,
            1,
            facecolor=colour,
            edgecolor=EDGE,
            linewidth=0.8,
            hatch=empty_hatch(colour, text),
        )
    )
    axes.text(x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=8)


def gather_traffic(context_lens: list[int], batch_sizes: list[int], bytes_of_one):
    """GiB that a gather moves in one step, against the context. A line for each batch size.

    bytes_of_one: bytes_of_one(context_len) gives the bytes of one sequence.
    """
    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    for num_seqs, colour, marker in zip(batch_sizes, LINES[1:], "osD^"):
        gib = [num_seqs * bytes_of_one(context_len) / 2**30 for context_len in context_lens]
        axes.plot(context_lens, gib, color=colour, marker=marker, markeredgecolor=EDGE)
        axes.annotate(
            f"{num_seqs} sequence{'s' if num_seqs > 1 else ''}",
            (context_lens[-1] * 1.08, gib[-1]),
            va="center",
            fontsize=9,
        )
    axes.axhline(15.3, color=EDGE, linestyle="--", linewidth=1)
    axes.annotate("the model's weights", (context_lens[-1] * 1.08, 14), va="top", fontsize=9)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(context_lens, [f"{context_len:,}" for context_len in context_lens])
    axes.set(
        xlim=(context_lens[0] * 0.9, context_lens[-1] * 2.5),
        xlabel="context of each sequence (tokens)",
        ylabel="keys and values gathered (GiB)",
        title="What a gather moves in every step, Qwen3-8B in 16 bits",
    )
    return figure


def divergence(traces: list[tuple], expected: list[Tensor]):
    """Heat maps of the largest difference from `expected`, by layer and position.

    traces: (title, trace) each.
    """
    figure, panels = plt.subplots(
        1, len(traces), figsize=(8.8, 2.9), squeeze=False, layout="constrained", sharey=True
    )
    for axes, (title, trace) in zip(panels[0], traces, strict=True):
        differences = torch.stack(
            [
                (ours - theirs).abs().amax(-1)
                for ours, theirs in zip(expected, trace, strict=True)
            ]
        )
        image = axes.imshow(
            differences.clamp(min=1e-7), norm=LogNorm(1e-7, 10), cmap="cividis", origin="lower"
        )
        axes.set_title(title, fontsize=10)
        axes.set(
            xlabel="position (token)",
            xticks=range(differences.shape[1]),
            yticks=range(len(trace)),
        )
        for (layer, position), difference in zip(
            torch.cartesian_prod(*map(torch.arange, differences.shape)).tolist(),
            differences.flatten().tolist(),
        ):
            text = f"{difference:.1f}" if difference >= 0.05 else "≈ 0"
            axes.text(
                position,
                layer,
                text,
                ha="center",
                va="center",
                fontsize=8,
                color=ink(image.cmap(image.norm(max(difference, 1e-7)))),
            )
    panels[0, 0].set_ylabel("layer")
    figure.colorbar(image, ax=panels[0], label="largest difference", shrink=0.8)
    return figure
