"""A model's layers with fewer and larger kernels.

Between two products of matrices a layer does little work in many small steps. Here they are
three kernels: kernels/engine/add_norm.cu, rotate.cu and gate.cu. Products with the same input
are one product, and those of few rows have a kernel of their own, few_rows.cu.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear

from lessons_lib.cuda.inline import read_kernel
from lessons_lib.cuda.library import CudaLibrary, build_cuda
from paged_attention.attention.fused import Attend
from paged_attention.engine.fast.few_rows import FewRows
from paged_attention.engine.fast.graph import launch
from paged_attention.engine.supported_models import head_size_of
from paged_attention.ladder.rungs import FP8
from paged_attention.validate import KERNEL_DTYPES

KERNEL_FILES = (
    "numbers.cuh",
    "block_reduce.cuh",
    "early.cuh",
    "engine/chunk.cuh",
    "ladder/shape.cuh",
    "engine/narrow.cuh",
    "engine/add_norm.cu",
    "engine/rotate.cu",
    "engine/gate.cu",
    "engine/advance.cu",
)
MOST_HEAD_SIZE = 256


class UnfusedModelError(ValueError):
    """A model with layers that are not made of what is fused here."""


@functools.cache
def step_kernels(target: str) -> CudaLibrary:
    """Builds the kernels between a step's products, once for each target."""
    return build_cuda(
        *map(read_kernel, KERNEL_FILES), names=KERNEL_FILES, target=target, name="step"
    )


class FusedModel:
    """A dense Qwen3 or Llama model of transformers, with fused layers.

    The merged weights take the place of the model's own. So the model goes on to work, and
    there is one copy of each number, for any number of engines. After model.to(), the fused
    layers still have the weights that they began with.

    kv_cache: (num_layers, 2, num_blocks, block_size, num_kv_heads, head_size), of the model's
        dtype or fp8.
    num_positions: positions 0 … num_positions - 1 can be computed.
    model.ranks: if a model has it, the weights are cut over these ranks.
    target: "gpu", or "fast" or "checked" on the CPU.
    few_rows: products of few rows; None leaves all to PyTorch.
    early: whether a kernel may begin before the one before it has ended.
    Raises UnfusedModelError, which names what is not fused.
    """

    def __init__(
        self,
        model,
        kv_cache: Tensor,
        num_positions: int,
        target: str,
        few_rows: FewRows | None = None,
        early: bool = False,
    ):
        check_fused(model.config, model.dtype)
        self.few_rows, self.early = few_rows, int(early)
        config = model.config
        self.ranks: Any = getattr(model, "ranks", None)
        self.kernels, self.kv_cache = self.build_kernels(target), kv_cache
        self.prepared: dict[str, Callable] = {}
        self.num_q_heads, self.num_kv_heads = kv_cache_heads(config)
        self.head_size, self.epsilon = head_size_of(config), config.rms_norm_eps
        self.dtype = KERNEL_DTYPES.index(model.dtype)
        self.rotate = "rotate_into_fp8" if kv_cache.dtype == FP8 else "rotate"
        self.embedding = model.model.embed_tokens.weight.detach()
        self.head = local_of(model.lm_head.weight).detach()
        self.vocab_size = config.vocab_size
        self.last_norm = model.model.norm.weight.detach()
        self.layers = [FusedLayer(layer) for layer in model.model.layers]
        self.turns = turns_of(model, num_positions)

    def build_kernels(self, target: str) -> Any:
        return step_kernels(target)

    def __call__(
        self,
        tokens: Tensor,
        positions: Tensor,
        slots: Tensor,
        attend: Attend,
        last: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        """Runs the model.

        tokens, positions: int64 (num_tokens,).
        slots: int64 (num_tokens,), where keys and values go; -1 writes nowhere.
        attend: attend(q, k_cache, v_cache) of the step.
        last: the tokens with logits; None: all.
        out: where the logits go; None makes a new tensor.
        Returns (num_tokens or len(last), vocab_size).
        """
        residual, x = embedding(tokens, self.embedding), None
        for layer, cache in zip(self.layers, self.kv_cache, strict=True):
            x = self.add_norm(residual, x, layer.norm)
            q = self.project(x, layer, positions, slots, *cache)
            x = self.after_attention(attend(q, *cache), residual, layer)
        x = self.add_norm(residual, x, self.last_norm)
        return self.logits(x if last is None else x[last], out)

    def after_attention(self, attended: Tensor, residual: Tensor, layer) -> Tensor:
        """The rest of a layer. Returns what the next norm adds to the residual."""
        x = self.product(attended.flatten(1), layer.w_out)
        x = self.sum_over_ranks(x, layer.b_out)
        x = self.add_norm(residual, x, layer.mlp_norm)
        x = self.gate(self.product(x, layer.w_gate_up, layer.b_gate_up))
        return self.sum_over_ranks(self.product(x, layer.w_down), layer.b_down)

    def logits(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """x: (num_rows, hidden_size), after the last norm. out: as for a call."""
        if len(self.head) == self.vocab_size:  # it is whole
            return self.product(x, self.head, out=out)
        if out is None:
            out = torch.empty(len(x), self.vocab_size, dtype=x.dtype, device=x.device)
        launch(self.ranks.join, self.product(x, self.head), out)
        return out

    def product(
        self, x: Tensor, weight: Tensor, bias: Tensor | None = None, out: Tensor | None = None
    ) -> Tensor:
        """Returns x Wᵀ + bias, (num_tokens, num_features), in `out` if there is one."""
        if self.few_rows is not None and self.few_rows.takes(x, weight):
            out = self.few_rows(x, weight, out)
            return out if bias is None else out.add_(bias)
        if out is None:
            return linear(x, weight, bias)
        if bias is None:
            return torch.mm(x, weight.t(), out=out)
        return torch.addmm(bias, x, weight.t(), out=out)

    def sum_over_ranks(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Completes a product whose weight is cut by columns."""
        if self.ranks is not None and self.ranks.size > 1:
            launch(self.ranks.sum, x)
        return x if bias is None else x + bias

    def add_norm(self, residual: Tensor, x: Tensor | None, weight: Tensor) -> Tensor:
        """Adds x to the residual, in its place, and returns the norm of the sum."""
        out = torch.empty_like(residual)
        num_tokens, hidden_size = residual.shape
        self.launch(
            "add_norm",
            out=out,
            residual=residual,
            x=x,
            weight=weight,
            num_tokens=num_tokens,
            hidden_size=hidden_size,
            epsilon=self.epsilon,
            early=self.early,
            dtype=self.dtype,
        )
        return out

    def project(
        self, x: Tensor, layer, positions: Tensor, slots: Tensor, k_cache, v_cache
    ) -> Tensor:
        """Computes queries, keys and values, and writes the keys and values into the pool.

        Returns the queries, (num_tokens, num_q_heads, head_size), a part of a larger tensor.
        """
        qkv = self.product(x, layer.w_qkv, layer.b_qkv)
        return self.rotate_and_write(qkv, layer, positions, slots, k_cache, v_cache)

    def rotate_and_write(
        self, qkv: Tensor, layer, positions: Tensor, slots: Tensor, k_cache, v_cache
    ) -> Tensor:
        """Does what is left of `project` after its product, which is qkv."""
        self.launch(
            self.rotate,
            qkv=qkv,
            k_cache=k_cache,
            v_cache=v_cache,
            q_weight=layer.q_norm,
            k_weight=layer.k_norm,
            turns=self.turns,
            positions=positions,
            slots=slots,
            num_tokens=len(qkv),
            num_q_heads=self.num_q_heads,
            num_kv_heads=self.num_kv_heads,
            head_size=self.head_size,
            epsilon=self.epsilon,
            early=self.early,
            dtype=self.dtype,
        )
        return qkv.view(len(qkv), -1, self.head_size)[:, : self.num_q_heads]

    def gate(self, gate_up: Tensor) -> Tensor:
        num_tokens, size = gate_up.shape[0], gate_up.shape[1] // 2
        out = torch.empty(num_tokens, size, dtype=gate_up.dtype, device=gate_up.device)
        self.launch(
            "gate",
            out=out,
            gate_up=gate_up,
            num_tokens=num_tokens,
            size=size,
            early=self.early,
            dtype=self.dtype,
        )
        return out

    def launch(self, name: str, **arguments) -> None:
        """Launches a kernel. Its arguments come from here, and are checked the first time."""
        if name not in self.prepared:
            self.prepared[name] = getattr(self.kernels, name).prepare(**arguments)
        launch(self.prepared[name], **arguments)


class FusedLayer:
    """The weights of a layer, those with the same input in one tensor."""

    def __init__(self, layer):
        attention, mlp = layer.self_attn, layer.mlp
        self.norm = layer.input_layernorm.weight.detach()
        self.mlp_norm = layer.post_attention_layernorm.weight.detach()
        self.w_qkv, self.b_qkv = merge(attention.q_proj, attention.k_proj, attention.v_proj)
        self.w_gate_up, self.b_gate_up = merge(mlp.gate_proj, mlp.up_proj)
        self.w_out, self.b_out = merge(attention.o_proj)
        self.w_down, self.b_down = merge(mlp.down_proj)
        self.q_norm, self.k_norm = (
            norm.weight.detach() if (norm := getattr(attention, name, None)) else None
            for name in ("q_norm", "k_norm")
        )


def merge(*modules: nn.Linear) -> tuple[Tensor, Tensor | None]:
    """Puts the weights of linear layers into one tensor, of which theirs become parts.

    Raises UnfusedModelError for a layer that does more than a Linear, such as an adapter.
    """
    for module in modules:
        kind = type(module)
        if kind is not nn.Linear:
            raise UnfusedModelError(
                f"the model has a layer of the type {kind.__module__}.{kind.__name__}; "
                "only torch.nn.Linear is fused"
            )
    weights, biases = (
        [local_of(getattr(m, name)) for m in modules] for name in ("weight", "bias")
    )
    return _merge(weights), None if biases[0] is None else _merge(biases)


def local_of(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor that PyTorch has cut; anything else as it is."""
    to_local = getattr(tensor, "to_local", None)  # a DTensor has it, whose import takes long
    if to_local is None:
        return tensor
    with torch.no_grad():  # then it is the part itself, and no view of it
        return to_local()


def _merge(parts: list[Tensor]) -> Tensor:
    first, sizes = parts[0].detach(), [len(part) for part in parts]
    if _are_adjacent(parts):  # an earlier engine has merged them
        return first.as_strided((sum(sizes), *first.shape[1:]), first.stride())
    whole = torch.cat([part.detach() for part in parts])
    for part, place in zip(parts, whole.split(sizes)):
        part.data = place
    return whole


def _are_adjacent(parts: list[Tensor]) -> bool:
    """Whether tensors are one after another in one piece of memory."""
    ends = [part.data_ptr() + part.nbytes for part in parts]
    return (
        len({part.untyped_storage().data_ptr() for part in parts}) == 1
        and all(part.is_contiguous() for part in parts)
        and [part.data_ptr() for part in parts[1:]] == ends[:-1]
    )


def turns_of(model, num_positions: int) -> Tensor:
    """Returns the cosine and sine of each position and pair of numbers.

    They are float32 (num_positions, head_size / 2, 2).
    """
    positions = torch.arange(num_positions, device=model.device)[None]
    wide = torch.empty(0, dtype=torch.float32, device=model.device)  # only its dtype counts
    # Each angle is there twice: (num_positions, head_size, 2).
    turns = torch.stack(model.model.rotary_emb(wide, positions), -1)[0]
    return turns[:, : turns.shape[1] // 2].contiguous()


def kv_cache_heads(config) -> tuple[int, int]:
    return config.num_attention_heads, config.num_key_value_heads


def check_fused(config, dtype: torch.dtype) -> None:
    """Raises UnfusedModelError if a model has something that is not fused here."""
    head_size = head_size_of(config)
    in_chunk = 16 // dtype.itemsize
    problem = ""
    if config.model_type not in ("qwen3", "llama"):
        problem = f"is of the type {config.model_type}; only qwen3 and llama are fused"
    elif dtype not in KERNEL_DTYPES:
        problem = f"has numbers of {dtype}"
    elif config.hidden_act != "silu":
        problem = f"has the activation {config.hidden_act}; only silu is fused"
    elif head_size > MOST_HEAD_SIZE or head_size % 2:
        problem = f"has heads of {head_size}; only even sizes up to {MOST_HEAD_SIZE} are fused"
    else:
        for name in ("hidden_size", "intermediate_size"):
            if (size := getattr(config, name)) % in_chunk:
                problem = f"has {name} = {size}, which is not a multiple of {in_chunk}"
    if problem:
        raise UnfusedModelError(f"the model {problem}")
