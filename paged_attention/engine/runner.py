"""Runs the model over a step's tokens: all sequences in one row."""

import torch
from torch import Tensor

from paged_attention.attention.metadata import BatchMetadata, build_metadata
from paged_attention.engine.attention import PagedStep, paged_attention_forward, plugged_in
from paged_attention.engine.forks import logits_of_each
from paged_attention.engine.request import Request


def flatten_batch(
    scheduled: list[tuple[Request, int]],
) -> tuple[list[int], list[int], list[int]]:
    """Puts the step's new tokens into one row.

    The list and the requests are not changed: the tokens count as computed only after the
    model has run.

    scheduled: (request, num_tokens) pairs. A request computes its next num_tokens tokens, from
        the first one that is not computed.
    Returns (tokens, positions, last).
        tokens: the new tokens in one row.
        positions: each token's position in its own sequence.
        last: for each request, the place of its last new token in the row.
    """
    # BEGIN SOLUTION 8.2
    tokens = []
    positions = []
    last = []
    for request, num_tokens in scheduled:
        new = range(request.num_computed, request.num_computed + num_tokens)
        tokens += [request.tokens[position] for position in new]
        positions += new
        last.append(len(tokens) - 1)
    return tokens, positions, last
    # END SOLUTION


class ModelRunner:
    """A model, its paged cache, and the path by which it attends.

    plan: a path; plan(metadata) gives attend(q, k_cache, v_cache), which every layer of the
        step calls.
    forward: the function that a layer of the model calls for attention.
    """

    build_metadata = staticmethod(build_metadata)
    flatten_batch = staticmethod(flatten_batch)

    def __init__(self, model, manager, plan, forward=paged_attention_forward):
        self.model, self.manager, self.plan, self.forward = model, manager, plan, forward

    @torch.inference_mode()
    def run(self, scheduled: list[tuple[Request, int]]) -> Tensor:
        """Runs the model over a step.

        Returns (len(scheduled), vocab_size): the logits after each request's last token.
        """
        # A request that is forked from another in this step has nothing to compute.
        computing = [(request, num_tokens) for request, num_tokens in scheduled if num_tokens]
        metadata = self.build_metadata(
            self.manager, [(request.id, num_tokens) for request, num_tokens in computing]
        )
        *batch, ends = self.flatten_batch(computing)
        batch.append([ends[row] for row in logits_of_each(scheduled)])
        tokens, positions, last = (
            torch.tensor(numbers, device=self.model.device) for numbers in batch
        )
        return self.forward_step(tokens, positions, last, metadata)

    def forward_step(
        self, tokens: Tensor, positions: Tensor, last: Tensor, metadata: BatchMetadata
    ) -> Tensor:
        """Runs the model over tokens in one row.

        tokens, positions: (num_tokens,).
        last: (num_rows,), the tokens with logits.
        Returns (num_rows, vocab_size).
        """
        step = PagedStep(self.manager.kv_cache, metadata.slot_mapping, self.plan(metadata))
        attention = self.model.config._attn_implementation
        try:
            # Only here, because other code may use the model between two steps.
            with plugged_in(self.model, self.forward):
                return self.model(
                    input_ids=tokens[None],
                    position_ids=positions[None],
                    logits_to_keep=last,
                    use_cache=False,
                    paged=step,
                ).logits[0]
        except BaseException:
            # Ctrl-C may have come while the plug was being removed.
            self.model.config._attn_implementation = attention
            raise
