"""The CPU in the place of the GPU on which a benchmark runs."""

LIMIT = 4000.0


class Machine:
    """What a benchmark takes for a GPU: the CPU, with a clock of the test's own that says how
    long each run took, in milliseconds.

    seen: the runs that were timed, in order, as numbers in the order in which they were
        prepared.
    """

    device = "cpu"

    def __init__(self, clock=lambda run: 2.0):
        self.clock = clock
        self.prepared = []
        self.seen = []

    def facts(self):
        return {
            "card": "A Card 3000",
            "driver": "1.2",
            "cuda": "13.0",
            "torch": "2.11",
            "flashinfer": "",
            "cudnn": "",
        }

    def l2_bytes(self):
        return 4000

    def prepare(self, call):
        self.prepared.append(call)
        return call

    def milliseconds(self, run):
        self.seen.append(self.prepared.index(run))
        return self.clock(self.seen[-1])

    def read_limit(self):
        return LIMIT

    def clean(self):
        pass
