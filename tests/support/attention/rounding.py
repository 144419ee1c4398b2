"""How far attention in 16 bits may be from attention in float64."""

import torch

# From rung 4 on the weights are rounded to the format of q too.
ROUNDING = {torch.float32: 1e-5, torch.float16: 2**-11, torch.bfloat16: 2**-8}


def assert_within_rounding(out, q, expected):
    """expected: float64. Errors add up as the values do: they are compared with the size of
    the row that they are in.
    """
    assert (out.dtype, out.shape, out.device) == (q.dtype, q.shape, q.device)
    size = expected.square().mean(-1, keepdim=True).sqrt()
    worst = ((out.cpu().double() - expected).abs() / (size + 1e-30)).max()
    # NaN is not, either
    assert worst <= 8 * ROUNDING[q.dtype], f"off by {worst:.3g} of the row's size"
