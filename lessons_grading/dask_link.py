"""What we ask of Dask: a connection, an order for one worker, and its reply."""

import json
import secrets
from typing import Any

from lessons_grading.remote import LARGEST_REPLY

CONNECT_LIMIT = 15.0  # seconds until a scheduler counts as not there
INSTALL = (
    "--scheduler needs Dask: install the course with its extra `cluster`, such as "
    "pip install -e '.[cluster]' -c constraints.txt"
)
# Dask sends a function by its name, and its scheduler would look for it too. Python's own
# `eval` is everywhere; the course is needed on the workers only.
_REMOTE = "__import__('importlib').import_module('lessons_grading.remote')"


def missing() -> str | None:
    """Why Dask cannot be used here, or None."""
    try:
        import distributed  # noqa: F401
    except ImportError:
        return INSTALL
    return None


def connect(address: str, seconds: float) -> Any:
    """A client of the scheduler. Raises ConnectionError, with a sentence, if there is none."""
    import distributed

    try:
        return distributed.Client(address, timeout=seconds, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise ConnectionError(f"no Dask scheduler answers at {address} ({error})") from None


def submit(client: Any, worker: str, call: str, order: str, ended) -> Any:
    """Sends an order, for this worker alone. Returns a future.

    call: of remote.py.
    ended: is called with (future, how) from another thread.
    """
    future = client.submit(
        eval,
        f"{_REMOTE}.{call}",
        {"order": order},
        key=f"lessons-grading-{secrets.token_hex(8)}",
        workers=[worker],
        allow_other_workers=False,
        pure=False,
    )
    future.add_done_callback(lambda future: ended((future, future.status)))
    return future


def run(client: Any, workers: list[str], call: str):
    """Calls something on these workers, while their other orders go on."""
    client.run(eval, f"{_REMOTE}.{call}", workers=workers, on_error="ignore")


def reply_of(future, how: str) -> dict:
    """What a worker says. {} if there is no reply because Dask forgot the order."""
    try:
        if how == "error":
            error = future.exception(timeout=CONNECT_LIMIT)
            name = type(error).__name__
            if name == "KilledWorker":
                return {"lost": "its worker ended"}
            if isinstance(error, ImportError | AttributeError):
                return {"failed": f"the course is not installed there, or is older ({error})"}
            return {"failed": f"{name}: {error}"}
        if how == "finished":
            text = future.result(timeout=CONNECT_LIMIT)
            if isinstance(text, str) and len(text) <= LARGEST_REPLY:
                reply = json.loads(text)
                return reply if isinstance(reply, dict) else {"lost": "its reply is no object"}
            return {"lost": "its reply is too large"}
    except ValueError:
        return {"lost": "its reply is no JSON"}
    except Exception:  # Dask's own: it was cancelled, its worker is gone with the reply
        return {}
    return {}
