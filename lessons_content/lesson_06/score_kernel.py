"""A learner's scores as a function of a batch, for 6.4."""

import torch

from lessons_content.exercises import kernels
from lessons_content.exercises.drawn import normal
from lessons_content.lesson_06 import batches
from lessons_content.lesson_06.batches import Case


def reference(batch):
    """paged_scores() for every sequence and head, in float64, and 0 after the last token."""
    result = torch.zeros_like(batch.new_scores())
    for seq, (q, keys, _) in enumerate(batch.sequences()):
        products = torch.einsum("thd,hd->ht", keys, q)
        result[seq, :, : len(keys)] = (products * batch.scale).float()
    return result


def prepare(answer):
    before = "numbers paged_params paged_address block_reduce"
    library = kernels.build(answer, before, "scores_check.cu")

    def score(batch):
        result = batch.new_scores()
        fields = batch.fields(scores=batch.new_scores(), out=result)
        kernels.with_misplaced_barriers(lambda: library.scores(**fields), answer)
        past = torch.arange(batch.max_context_len) >= batch.context_lens[:, None, None]
        return result.masked_fill(past, 0.0)  # the numbers there do not matter

    score.look_far = score
    return score


class Narrow(Case):
    """A case of 16 bits, with numbers that are the same on every processor.

    The last bit of randn's numbers differs. So a number may round to another one of 16 bits,
    and scores are compared more closely than that.
    """

    def batch(self):
        assert self.spread == 1 and not self.shift
        batch = super().batch()
        generator = torch.Generator().manual_seed(self.seed)
        for numbers in (batch.q, batch.k_cache, batch.v_cache):
            is_real = numbers != torch.tensor(batches.POISON, dtype=numbers.dtype)
            real = normal(int(is_real.sum()), generator=generator)
            numbers[is_real] = real.to(numbers.dtype)
        return batch
