"""What exercise 10.5 sees of an answer: what is read on the host, and from which argument."""

import pytest
import torch

from lessons_content.lesson_10.watch import Watch
from paged_attention.engine.fast.graph import GraphError

INF = float("inf")


def given():
    return {
        "logits": torch.tensor([[0.5, 2.0, 1.0], [1.0, 3.0, 2.0]]),
        "top_k": torch.tensor([2, 1]),
        "numbers": torch.tensor([0.25, 0.5]).double(),
    }


@pytest.mark.parametrize(
    "read, kind, names",
    [
        (lambda logits, top_k, numbers: int(top_k.max()), "number", "top_k"),
        (lambda logits, top_k, numbers: logits[0, : top_k[0]], "number", "top_k"),
        (lambda logits, top_k, numbers: logits[0, top_k[0]], "number", "top_k"),
        (lambda logits, top_k, numbers: top_k.tolist(), "copy", "top_k"),
        (lambda logits, top_k, numbers: (logits * 2).numpy(), "copy", "logits"),
        (lambda logits, top_k, numbers: logits.cpu(), "copy", "logits"),
        (lambda logits, top_k, numbers: max(numbers), "condition", "numbers"),
        (lambda logits, top_k, numbers: bool((logits > 0).all()), "condition", "logits"),
        (lambda logits, top_k, numbers: logits[logits > 1], "choice", "logits"),
        (lambda logits, top_k, numbers: torch.where(top_k > 1), "choice", "top_k"),
        (lambda logits, top_k, numbers: str(numbers), "text", "numbers"),
        (
            lambda logits, top_k, numbers: int((logits[:, 0] * numbers).softmax(0).argmax()),
            "number",
            "logits numbers",
        ),
        # what is written into a tensor's memory comes from there as well
        (
            lambda logits, top_k, numbers: float(torch.zeros(2).copy_(numbers)[0]),
            "number",
            "numbers",
        ),
        (lambda logits, top_k, numbers: int(torch.arange(3)[1]), "number", ""),
    ],
)
def test_a_read_and_where_it_comes_from(read, kind, names):
    arguments = given()
    watch = Watch(**arguments)
    with pytest.raises(GraphError), watch:
        read(**arguments)
    assert (watch.read.kind, " ".join(watch.read.names)) == (kind, names)


def test_the_first_read_counts_even_if_the_error_is_caught():
    arguments = given()
    with Watch(**arguments) as watch:
        for read in (arguments["top_k"].tolist, arguments["logits"].tolist):
            with pytest.raises(GraphError):
                read()
    assert watch.read == "a copy that comes from top_k is read on the host"


@pytest.mark.parametrize(
    "step",
    [
        lambda x: x.sort(-1, descending=True),
        lambda x: x.sort(dim=0),
        lambda x: torch.sort(x, 1, True),
        lambda x: x.topk(2),
        lambda x: x.topk(2, dim=0, largest=False),
        lambda x: x.T.sort(stable=False),
        lambda x: torch.vmap(lambda row: row.sort().values)(x),
    ],
)
def test_a_sort_without_ties_is_as_ever(step):
    x = torch.tensor([[3.0, 1.0, 4.0, 1.5], [9.0, 2.0, 6.0, 5.0], [INF, -INF, 0.0, 8.0]])
    with Watch(x=x):
        watched = step(x)
    assert all(map(torch.equal, watched, step(x)))


@pytest.mark.parametrize(
    "tokens",
    [
        lambda x: x.sort(descending=True)[1],
        lambda x: x.sort(descending=True, stable=False)[1],
        lambda x: x.argsort(descending=True),
        lambda x: x.topk(4)[1],
    ],
)
def test_without_stable_equal_ones_come_in_another_order(tokens):
    with Watch():
        order = tokens(torch.tensor([1.0, 1.0, 2.0, 1.0]))
    assert sorted(order.tolist()) == [0, 1, 2, 3]
    assert order[0] == 2 and order.tolist() != [2, 0, 1, 3]


def test_with_stable_they_keep_theirs():
    x = torch.tensor([1.0, 1.0, 2.0, 1.0])
    with Watch():
        tokens = x.argsort(descending=True, stable=True)
        order = x.sort(descending=True, stable=True)[1]
    assert tokens.tolist() == order.tolist() == [2, 0, 1, 3]


def test_random_numbers_are_noted():
    with Watch() as watch:
        torch.zeros(2).softmax(0)
        assert not watch.draws
        torch.rand(2, generator=torch.Generator())
    assert watch.draws
