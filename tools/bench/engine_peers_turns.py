"""Two servers of the benchmark of peers serve the same requests in turns."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TypeVar

from lessons_content.lesson_10.bench.engine_peers_runs import ArrivalRow, PeerRow
from lessons_content.lesson_10.bench.fast_engine import Trace
from tools.bench.arrivals import latency
from tools.bench.engine_peers_servers import OurServer
from tools.bench.engine_peers_traces import Arrivals, Task, poisson_times
from tools.bench.peer_process import ServerFailed
from tools.bench.remote_server import Left, RemoteServer, seconds_left

T = TypeVar("T")
Row = PeerRow | ArrivalRow
Say = Callable[[str], None]
Start = Callable[[str], RemoteServer]
NO_TIME = "no time was left for a counted turn"


class PeerFailed(Exception):
    """The peer has failed, not our engine."""


def compare(
    peer: str,
    tasks: Sequence[Task],
    turns: int,
    start: Start,
    say: Say,
    left: Left = seconds_left(),
) -> Iterator[Row]:
    """Lets our engine and a peer serve each task in turns. If a peer fails, its row says why.

    turns: counted ones, after a warm-up.
    start: makes a server, given its name.
    left: says how many seconds are left. A turn that would not fit is left out.
    Raises ServerFailed if our engine fails.
    """
    try:
        theirs = start(peer)
    except ServerFailed as error:
        yield from (_failed(task, peer, f"{error}") for task in tasks)
        return
    with closing(theirs):
        say(f"{peer} is ready after {theirs.ready:.0f} s")
        with closing(start(OurServer.name)) as ours:
            pair = Pair(ours, theirs, turns, say, left)
            for task in tasks:
                if isinstance(task, Arrivals):
                    yield from pair.arrivals(task)
                else:
                    yield pair.all_at_once(task)


def _failed(task: Task, peer: str, reason: str) -> Row:
    if isinstance(task, Arrivals):
        return ArrivalRow(task.trace.name, peer, task.shares[0], reason=reason)
    return PeerRow(task.name, peer, sum(task.new_tokens), reason=reason)


class Pair:
    """Our server and a peer's, both ready."""

    def __init__(
        self, ours: RemoteServer, theirs: RemoteServer, turns: int, say: Say, left: Left
    ):
        self.ours, self.theirs, self.turns = ours, theirs, turns
        self.say, self.left = say, left

    def all_at_once(self, trace: Trace) -> PeerRow:
        peer, tokens = self.theirs.name, sum(trace.new_tokens)
        turns, reason = [], NO_TIME
        try:
            both = self._in_turns(lambda server, turn: server.serve(trace, turn))
            for mine, other in itertools.islice(both, 1, None):
                turns.append((mine, other))
                rates = (
                    f"{tokens / seconds:,.0f}" for seconds in (mine.seconds, other.seconds)
                )
                self.say(f"{trace.name}: ours {{}}, {peer} {{}} tokens/s".format(*rates))
        except PeerFailed as error:
            turns, reason = [], f"{error}"
        if not turns:
            return PeerRow(trace.name, peer, tokens, reason=reason)
        cached = [turn.cached for turn in turns[-1]]
        same = sum(a == b for pair in turns for a, b in zip(*(turn.first for turn in pair)))
        return PeerRow(
            trace=trace.name,
            peer=peer,
            tokens=tokens,
            ours=tuple(mine.seconds for mine, _ in turns),
            theirs=tuple(other.seconds for _, other in turns),
            our_ready=self.ours.ready,
            their_ready=self.theirs.ready,
            same_first=same / (len(turns) * len(trace.prompts)),
            cached=(sum(map(len, trace.prompts)), *cached) if any(cached) else None,
        )

    def arrivals(self, task: Arrivals) -> Iterator[Row]:
        """A row for each share, after the one that says what a share is of."""
        trace, slower = task.trace, 0.0
        if any(task.shares):
            row = self.all_at_once(trace)
            yield row
            if row.reason:
                return
            slower = len(trace.prompts) * min(row.our_rate, row.their_rate) / row.tokens
        first = self.turns + 1  # no turn's prompts begin as those of another one
        for share in task.shares:
            yield self._arriving(trace, share, slower, first)
            first += self.turns + 1

    def _arriving(
        self, trace: Trace, share: float | None, slower: float, first: int
    ) -> ArrivalRow:
        peer, count, rate = self.theirs.name, len(trace.prompts), (share or 0) * slower
        times = poisson_times(rate, count) if share else [0.0] * count
        both = self._in_turns(
            lambda server, turn: server.arrive(trace, turn, times), first, 2 * times[-1]
        )
        try:
            passes = list(both)[1:]
        except PeerFailed as error:
            return ArrivalRow(trace.name, peer, share, rate, reason=f"{error}")
        if not passes:
            return ArrivalRow(trace.name, peer, share, rate, reason=NO_TIME)
        ours, theirs = (latency(those, times) for those in zip(*passes, strict=True))
        row = ArrivalRow(trace.name, peer, share, rate, len(passes), ours, theirs)
        waits = " and ".join(f"{1000 * each.first[0]:.1f}" for each in (ours, theirs))
        self.say(f"{row.trace}, {row.load}: the first token after {waits} ms")
        return row

    def _in_turns(
        self, serve: Callable[[RemoteServer, int], T], first: int = 0, expected: float = 0.0
    ) -> Iterator[tuple[T, T]]:
        """The results of both servers in each turn that fits. The first one is a warm-up.

        first: the first turn's number. expected: seconds that it will take, at least.
        """
        longest = expected
        for turn in range(first, first + self.turns + 1):
            before = self.left()
            if before <= longest:
                return
            mine = serve(self.ours, turn)
            try:
                other = serve(self.theirs, turn)
            except ServerFailed as error:
                raise PeerFailed(f"{error}") from None
            longest = max(longest, before - self.left())
            yield mine, other
