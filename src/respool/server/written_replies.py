"""Replies that the kernel has not accepted yet, to measure how long each was on its way."""

from time import perf_counter

from respool.server.traffic import TrafficCounter
from respool.wire.api_table import ApiSpec
from respool.wire.reply_order import ReplyOrder


class WrittenReplies:
    __slots__ = ("_traffic", "_written")

    def __init__(self, traffic: TrafficCounter) -> None:
        self._traffic = traffic
        # With the times at which they were ready.
        self._written: list[tuple[ApiSpec, float]] = []

    def on_written(self, replies: ReplyOrder) -> None:
        # Do not keep the slots: they would keep the replies in memory.
        taken = replies.taken
        self._written += [(one.api, one.ready_at) for one in taken if one.api and one.buffers]
        taken.clear()

    def on_sent(self) -> None:
        """The kernel has accepted all written replies."""
        now = perf_counter()
        for api, ready_at in self._written:
            self._traffic.on_sent(api, now - ready_at)
        self._written.clear()
