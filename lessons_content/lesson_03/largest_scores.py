"""How large the scores are that an attention makes on the way."""

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves


class LargestScores(TorchFunctionMode):
    """It notes how many numbers the largest tensor of floats has that is made from `given`.

    Masks are not made from them, and may have any size. A fused attention makes its scores
    inside: they are counted. (A TorchDispatchMode would see more, and it needs 2 seconds to be
    imported.)
    """

    def __init__(self, given):
        super().__init__()
        # tensors are kept, so that no other gets their place in memory
        self.size, self.kept = 0, list(given)
        self.places = {place(x) for x in self.kept}

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        given = list(filter(torch.is_tensor, tree_leaves((args, kwargs))))
        if any(place(x) in self.places for x in given):
            made = args[0] if function is torch.Tensor.__setitem__ else result
            for x in filter(torch.is_tensor, tree_leaves(made)):
                if x.is_floating_point() and x.numel() > 0:
                    self.kept.append(x)
                    self.places.add(place(x))
                    self.size = max(self.size, x.untyped_storage().nbytes() // x.itemsize)
            if function is torch.nn.functional.scaled_dot_product_attention:
                q, k = given[:2]
                self.size = max(self.size, q.shape[:-1].numel() * k.shape[-2])
        return result


def place(x):
    return x.untyped_storage().data_ptr()
