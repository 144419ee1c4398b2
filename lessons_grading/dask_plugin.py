"""On each worker of Dask: looks whether it may grade, and keeps the processes that do."""

import asyncio

from distributed import WorkerPlugin

from lessons_grading.digests import course_digest, mistakes_digest
from lessons_grading.grading_process import GradingProcesses


class Grading(WorkerPlugin):
    """Gives a worker that may grade the resource `name`, once for each of its threads.

    What it says of the worker is an event of the topic `name`.
    """

    def __init__(self, name: str, sandboxed: bool):
        self.name, self.sandboxed = name, sandboxed
        self.wanted = {"course": course_digest(), "mistakes": mistakes_digest()}

    async def setup(self, worker):
        self.processes = GradingProcesses()
        refused, words = await asyncio.to_thread(self._look)
        if not refused:
            await worker.set_resources(**{self.name: worker.state.nthreads})
        about = {"worker": worker.address, "refused": refused, "limited_by": words}
        worker.log_event(self.name, about)

    def _look(self) -> tuple[str, str]:
        """Why this worker may not grade, or "", and what keeps the limits there."""
        about = self.processes.about()
        if failed := about.get("failed"):
            return failed, ""
        reason = about["problem"] or (about["sandbox"] if self.sandboxed else "")
        if about["mistakes"] != self.wanted["mistakes"]:
            reason = reason or "LESSONS_MISTAKES names other mistakes there"
        if about["course"] != self.wanted["course"]:
            reason = "it has another version of the course"
        return reason, about["limited_by"]

    def teardown(self, worker):
        self.processes.close()
