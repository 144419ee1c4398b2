"""Several answers to one prompt: one of them computes it, and the others fork from it."""

from collections.abc import Iterable

from paged_attention.engine.request import Request


def lead_answers(requests: list[Request]) -> list[Request]:
    """Lets the first of several answers to a prompt compute it, and the others wait for it.

    Returns the first one, in a list, which is empty if there are no requests.
    """
    for first in requests[:1]:
        first.fork_of, first.forks = None, requests[1:]
        for fork in first.forks:
            fork.fork_of = first
    return requests[:1]


def lead_again(requests: Iterable[Request]) -> list[Request]:
    """Does the same for requests of many prompts, none of which has a block any more.

    requests: in the order in which they came.
    Returns those that wait for no other.
    """
    waiting = []
    for request in requests:
        first, request.forks = request.fork_of, []
        if first and first.reason is None and not first.output and not request.output:
            first.forks.append(request)
        else:
            waiting.append(request)
    return waiting


def logits_of_each(scheduled: list[tuple[Request, int]]) -> list[int]:
    """Says for each request of a step which row of logits is its own.

    There is a row for each request that computes tokens. One that computes none is forked from
    another in this step, and takes that one's.
    """
    computing = [request for request, num_tokens in scheduled if num_tokens]
    rows = {request: row for row, request in enumerate(computing)}
    return [
        rows[request if num_tokens else request.fork_of or request]
        for request, num_tokens in scheduled
    ]
