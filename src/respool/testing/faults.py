"""The faults that a test can inject: `broker.faults.lose_replies(topic="rides")`.

Each call returns a `Fault`, which counts how often it occurred and ends with `clear()` or with its `with` block.
"""

from collections.abc import Callable
from typing import Any, Self


class Fault:
    """One injected fault. As a context manager it lasts until the end of the block."""

    def __init__(self, clear: Callable[[], object], struck: Callable[[], Any]) -> None:
        self._clear = clear
        self._struck = struck

    @property
    def struck(self) -> int:
        """How often the fault has occurred so far."""
        return int(self._struck())

    def clear(self) -> None:
        """End the fault. Held replies are sent now."""
        self._clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()


class Faults:
    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    # Connections.

    def drop_connections(self, client_id: str | None = None) -> int:
        """Close open connections, all or those of one client id; return how many. Clients may connect again."""
        return int(self._call("drop_connections", client_id=client_id))

    def refuse_connections(self) -> Fault:
        """Refuse new connections. Open connections stay; close them with `drop_connections`."""
        self._call("refuse_connections", refuse=True)
        return Fault(clear=lambda: self._call("refuse_connections", refuse=False), struck=lambda: 0)

    # Replies.

    def delay_replies(
        self,
        api: str = "Produce",
        *,
        seconds: float | None = None,
        topic: str | None = None,
        client_id: str | None = None,
        times: int | None = None,
    ) -> Fault:
        """Execute requests, but delay the replies: by `seconds` of the broker's time, or until the fault is cleared.

        Later requests of the same connection wait too.
        """
        return self._inject(
            "delay", api, topic=topic, client_id=client_id, times=times, seconds=seconds
        )

    def lose_replies(
        self,
        api: str = "Produce",
        *,
        topic: str | None = None,
        client_id: str | None = None,
        times: int | None = 1,
    ) -> Fault:
        """Execute requests, but close the connection instead of replying: the client cannot know the outcome."""
        return self._inject("lose", api, topic=topic, client_id=client_id, times=times)

    def answer_with_error(
        self,
        error: str | int,
        api: str = "Produce",
        *,
        topic: str | None = None,
        client_id: str | None = None,
        times: int | None = 1,
    ) -> Fault:
        """Do not execute requests, and reply with a Kafka error, such as NOT_LEADER_OR_FOLLOWER."""
        return self._inject(
            "error", api, topic=topic, client_id=client_id, times=times, error=error
        )

    # The disk.

    def fill_disk(self) -> Fault:
        """Simulate a full disk: nothing can be appended until the fault is cleared."""
        self._call("fill_disk", is_full=True)
        return Fault(clear=lambda: self._call("fill_disk", is_full=False), struck=lambda: 0)

    def clear(self) -> None:
        """Clear all faults."""
        self._call("clear_faults")

    def _inject(self, kind: str, api: str, **rule: Any) -> Fault:
        number = self._call("inject_fault", kind=kind, api=api, **rule)
        return Fault(
            clear=lambda: self._call("clear_fault", number=number),
            struck=lambda: self._call("fault_struck", number=number),
        )
