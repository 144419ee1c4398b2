"""Runs the model over a step's tokens: all sequences in one row."""

import torch
from torch import Tensor

from paged_attention.engine.attention import PagedStep, paged_attention_forward, plugged_in
from paged_attention.engine.request import Request
from paged_attention.metadata import build_metadata


def flatten_batch(scheduled: list[tuple[Request, int]]) -> tuple[list[int], list[int], list[int]]:
    """The step's new tokens in one row, their positions in their sequences, and where in the row each request's last one is.

    scheduled: requests and the number of their tokens to compute, from the first that is not computed. List and requests
    stay as they are: computed are these tokens only when the model has run.
    """
    # BEGIN SOLUTION 8.2
    tokens, positions, last = [], [], []
    for request, num_tokens in scheduled:
        new = range(request.num_computed, request.num_computed + num_tokens)
        tokens += [request.tokens[position] for position in new]
        positions += new
        last.append(len(tokens) - 1)
    return tokens, positions, last
    # END SOLUTION


class ModelRunner:
    """A model, its paged cache, and the path on which it attends.

    plan: a path; plan(metadata) gives attend(q, k_cache, v_cache), which every layer of the step calls. forward: what
    plugs a layer of the model into it.
    """

    build_metadata = staticmethod(build_metadata)
    flatten_batch = staticmethod(flatten_batch)

    def __init__(self, model, manager, plan, forward=paged_attention_forward):
        self.model, self.manager, self.plan, self.forward = model, manager, plan, forward

    @torch.inference_mode()
    def run(self, scheduled: list[tuple[Request, int]]) -> Tensor:
        """The logits behind each request's last token of the step: (len(scheduled), vocab_size)."""
        metadata = self.build_metadata(self.manager, [(request.id, num_tokens) for request, num_tokens in scheduled])
        batch = self.flatten_batch(scheduled)
        tokens, positions, last = (torch.tensor(numbers, device=self.model.device) for numbers in batch)
        step = PagedStep(self.manager.kv_cache, metadata.slot_mapping, self.plan(metadata))
        attention = self.model.config._attn_implementation
        try:
            with plugged_in(self.model, self.forward):  # and nowhere else: others may use the model between two steps
                return self.model(input_ids=tokens[None], position_ids=positions[None], logits_to_keep=last, use_cache=False,
                                  paged=step).logits[0]
        except BaseException:
            self.model.config._attn_implementation = attention  # Ctrl-C may have come while the plug was being taken away
            raise
