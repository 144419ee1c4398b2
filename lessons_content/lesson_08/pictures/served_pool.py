"""The pool of an engine that serves, for its chat page, without the requests' texts."""

from lessons_content.lesson_08.pictures.engine_pool import EnginePool
from lessons_lib.drawing.player import Recording, View
from lessons_lib.drawing.player.recording import script, style

__all__ = ["NAMES", "recording_of", "script", "style"]

NAMES = [str(number) for number in range(100)]


def recording_of(engine) -> dict:
    """A recording with one step: the pool as it is now. `createPlayer` shows it."""
    panels = EnginePool(engine, NAMES, lambda tokens: "", _name, columns=64, ids=False)
    running, waiting = len(engine.scheduler.running), len(engine.scheduler.waiting)
    pool, *_, numbers = panels.states([])
    recording = Recording("The pool", [View("", [panels.pool, panels.numbers])], NAMES)
    recording.step(f"{running} running, {waiting} waiting.", pool, numbers)
    return recording.as_json()


def _name(id) -> str:
    """A request's number, from 0 to 99.

    That is enough to tell requests apart that run at once.
    """
    return NAMES[id % len(NAMES)] if isinstance(id, int) else NAMES[-1]
