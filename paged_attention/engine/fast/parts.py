"""Which parts of the fast engine are in."""

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class FastParts:
    """What keeps a GPU busy. Each part can be left out, so that it can be measured.

    layers: fused layers instead of those of transformers.
    graphs: decode steps are recorded once and replayed.
    state: what a decode step reads is made on the device from the step before.
    plan: decodes by rung 9, which plans on the device; else by a kernel that has no plan.
    sampling: tokens are chosen on the device for the whole batch.
    ahead: the host schedules a step while the GPU computes the one before. It needs `state`
        and `sampling`, since the host does not know the tokens then.
    few_rows: products of at most 16 rows by our kernel. Of no effect without `layers`.
    early: a kernel begins while the one before it still runs, and asks for what does not
        depend on that one. Likewise.
    pieces: what a step with prompts computes between two attentions is recorded, for some
        numbers of tokens. Of no effect without `layers` and `graphs`.
    Raises ValueError for `ahead` without `state` and `sampling`.
    """

    layers: bool = True
    graphs: bool = True
    state: bool = True
    plan: bool = True
    sampling: bool = True
    ahead: bool = True
    few_rows: bool = True
    early: bool = True
    pieces: bool = True

    def __post_init__(self):
        if self.ahead and not (self.state and self.sampling):
            raise ValueError(
                "ahead needs state and sampling: a host that is a step ahead does not know "
                "the tokens that the next step begins with"
            )

    @classmethod
    def none(cls) -> "FastParts":
        return cls(**{field.name: False for field in fields(cls)})
