"""A call of the kernels that turn queries and keys, and write keys and values into a pool."""

from paged_attention.engine.fast.layers import step_kernels
from paged_attention.validate import KERNEL_DTYPES

EPSILON = 1e-5


def rotate(target, qkv, caches, weights, turns, positions, slots, kernel="rotate") -> None:
    """It changes qkv: (num_tokens, num_q_heads + 2 * num_kv_heads, head_size).

    caches: keys and values. weights: of the norms of queries and keys, or (None, None).
    """
    num_kv_heads, head_size = caches.shape[-2:]
    getattr(step_kernels(target), kernel)(
        qkv=qkv,
        k_cache=caches[0],
        v_cache=caches[1],
        q_weight=weights[0],
        k_weight=weights[1],
        turns=turns,
        positions=positions,
        slots=slots,
        num_tokens=len(qkv),
        num_q_heads=qkv.shape[1] - 2 * num_kv_heads,
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        epsilon=EPSILON,
        early=0,
        dtype=KERNEL_DTYPES.index(qkv.dtype),
    )
