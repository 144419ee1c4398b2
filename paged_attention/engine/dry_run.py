"""Runs a scheduler without a model, for pictures.

Every new token is the same made-up one.
"""

from types import SimpleNamespace

from paged_attention.engine.history import History

ANY_TOKEN = 7


def dry_run(scheduler, num_new: int) -> History:
    """Steps until each of the scheduler's requests has num_new new tokens.

    Returns what happened in each step.
    """
    history = History()
    engine = SimpleNamespace(scheduler=scheduler, manager=scheduler.manager)
    while scheduler.has_work():
        computed = scheduler.schedule()
        if not computed:
            raise RuntimeError(
                "schedule() chose no request, though there are some; this would go on for ever"
            )
        history(engine, computed)
        for request, count in computed:
            request.num_computed += count
            if request.num_computed == len(request.tokens):
                request.tokens.append(ANY_TOKEN)
            if len(request.output) == num_new:
                scheduler.remove(request)
    return history
