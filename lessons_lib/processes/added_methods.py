"""Methods that a learner adds to the notebook's class, and that an answer calls on `self`.

A check, the grader and later lessons call the answer on the course's own objects, which have
no such methods. So the answer brings them along.
"""

import functools
import types


def carried(answer):
    """The answer, with the methods and attributes of the notebook's class that it uses.

    During a call, the object's class gets those of them that it lacks.
    """
    if not isinstance(answer, types.FunctionType):
        return answer
    parts = {
        name: part
        for kind in answer.__globals__.values()
        if isinstance(kind, type) and vars(kind).get(answer.__name__) is answer
        for name, part in vars(kind).items()
        if part is not answer and not name.startswith("__")
    }
    used: dict[str, object] = {}
    waiting = [answer]
    while waiting:
        for name in _names(waiting.pop()) & parts.keys() - used.keys():
            used[name] = parts[name]
            waiting.append(parts[name])
    return _with_parts(answer, used) if used else answer


def _names(part) -> set[str]:
    """The names that a function, a method, a property or a nested code object uses."""
    part = getattr(part, "__func__", None) or getattr(part, "fget", None) or part
    code = part if isinstance(part, types.CodeType) else getattr(part, "__code__", None)
    if code is None:
        return set()
    within = [_names(each) for each in code.co_consts if isinstance(each, types.CodeType)]
    return {*code.co_names}.union(*within)


def _with_parts(answer, parts: dict[str, object]):
    @functools.wraps(answer)
    def method(self, *arguments, **named):
        kind = type(self)
        added = [name for name in parts if not hasattr(kind, name)]
        for name in added:
            setattr(kind, name, parts[name])
        try:
            return answer(self, *arguments, **named)
        finally:
            for name in added:
                delattr(kind, name)

    return method
