"""What may happen to an engine, and an engine to which it happens."""

from hypothesis import strategies as st

from paged_attention.engine.request import RequestError


def actions(prompts, params):
    """One request comes, or several answers; some steps; somebody cancels, or preempts.

    prompts, params: strategies for a prompt, and for a request's SamplingParams.
    """
    return st.one_of(
        st.tuples(st.just("add"), prompts, st.lists(params, min_size=1, max_size=1)),
        st.tuples(st.just("add"), prompts, st.lists(params, min_size=1, max_size=4)),
        st.tuples(st.just("step"), st.integers(1, 5)),
        st.tuples(st.just("cancel"), st.integers(0, 9)),
        st.tuples(st.just("preempt"), st.integers(0, 3)),
    )


def play(engine, trace, after_step=lambda accepted: None, fail=None) -> list:
    """Does what a trace says, to its end, and returns the requests that were accepted.

    fail: takes a step that fails, as the trace says, if there are such steps in it.
    """
    accepted = []
    for number, (action, *details) in enumerate(trace):
        if action == "add":
            accepted += add(engine, number, *details)
        elif action == "step":
            for _ in range(details[0]):
                engine.step()
                after_step(accepted)
        elif action == "cancel":
            if details[0] < len(accepted) and accepted[details[0]].reason is None:
                engine.cancel(accepted[details[0]].id)
        elif action == "fail":
            fail(*details)
        elif details[0] < len(engine.scheduler.running):
            engine.scheduler.preempt(engine.scheduler.running[details[0]])
    engine.run()
    return accepted


def add(engine, number: int, prompt: list[int], params: list) -> list:
    """No request if they are refused: then there is no room."""
    ids = [(number, index) for index in range(len(params))]
    try:
        if len(params) == 1:
            return [engine.add(ids[0], prompt, params[0])]
        return engine.add_answers(ids, prompt, params)
    except RequestError:
        most, room = (
            max(own.max_new_tokens for own in params),
            min(engine.most_tokens.values()),
        )
        assert not prompt or len(prompt) + most > room
        return []
