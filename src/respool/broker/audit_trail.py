"""The audit log: denied operations, and changes with their authors. One JSON object for each event.

```
{"time": "2026-11-19T20:14:03.120Z", "event": "denied", "principal": "User:alice", "host": "10.0.0.7",
 "listener": "client", "client_id": "billing", "api": "PRODUCE", "operation": "WRITE", "resource": "TOPIC",
 "name": "orders", "acl": null, "count": 1}
```
A denial is written at once. Repetitions are counted, and the count is written once a minute. What clients choose
is shortened, and escaped by JSON, so that no client can forge a line.
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from respool.access.authorizer import AccessDecision
from respool.model.security.acl import AclOperation, AclResource
from respool.model.security.principal import ClientSession
from respool.ports.audit_sink import AuditSink
from respool.ports.clock import Clock
from respool.wire.codec import Request

logger = logging.getLogger("respool.audit")

TEXT_LENGTH_MAX = 256
REPEATED_EVERY_S = 60.0
# Maximum number of different denials counted at a time; beyond it, the oldest count is written early.
COUNTED_MAX = 1_000


class LoggedAudit:
    """Writes the audit log to the broker's log."""

    def write(self, event: Mapping[str, object]) -> None:
        logger.info("%s", json.dumps(event))


@dataclass(slots=True)
class _Repeated:
    event: dict[str, object]
    since_s: float
    count: int = 0


class AuditTrail:
    def __init__(self, sink: AuditSink | None, clock: Clock) -> None:
        self._sink = sink or LoggedAudit()
        self._clock = clock
        self._repeated: dict[tuple[object, ...], _Repeated] = {}
        self._flush: asyncio.TimerHandle | None = None

    def denied(
        self,
        request: Request,
        operation: AclOperation,
        resource: AclResource,
        *,
        name: str,
        decision: AccessDecision,
        is_enforced: bool,
    ) -> None:
        """`is_enforced`: the request is refused; otherwise it is served, and would be refused."""
        event = "denied" if is_enforced else "would deny"
        session = request.session
        # Without the client id, which the client may change with each request.
        key = (event, session.principal, session.host, operation, resource, name)
        now_s = asyncio.get_running_loop().time()
        known = self._repeated.get(key)
        if known is not None:
            known.count += 1
            if now_s - known.since_s >= REPEATED_EVERY_S:
                self._write_count(known, now_s)
            return
        fields = self._decided(event, request, operation, resource, name=name, decision=decision)
        self._write(session, {**fields, "count": 1})
        if len(self._repeated) >= COUNTED_MAX:
            self._write_count(self._repeated.pop(next(iter(self._repeated))), now_s)
        self._repeated[key] = _Repeated({"principal": str(session.principal), **fields}, now_s)
        if self._flush is None:
            self._flush = asyncio.get_running_loop().call_later(REPEATED_EVERY_S, self.flush)

    def allowed(
        self,
        request: Request,
        operation: AclOperation,
        resource: AclResource,
        *,
        name: str,
        decision: AccessDecision,
    ) -> None:
        fields = self._decided(
            "allowed", request, operation, resource, name=name, decision=decision
        )
        self._write(request.session, fields)

    def changed(self, request: Request, what: str, **fields: object) -> None:
        """A client has changed something; `what` describes the change."""
        self.record(
            "changed",
            request.session,
            client_id=_shortened(request.client_id),
            api=request.api.name,
            what=what,
            **fields,
        )

    def record(self, event: str, session: ClientSession, **fields: object) -> None:
        """Write an event of this session."""
        self._write(session, {"event": event, **fields})

    def flush(self) -> None:
        """Write the counts of repeated denials, and forget the others."""
        self._flush = None
        repeated, self._repeated = self._repeated, {}
        now_s = asyncio.get_running_loop().time()
        for one in repeated.values():
            self._write_count(one, now_s)

    def _decided(
        self,
        event: str,
        request: Request,
        operation: AclOperation,
        resource: AclResource,
        *,
        name: str,
        decision: AccessDecision,
    ) -> dict[str, object]:
        return {
            "event": event,
            "client_id": _shortened(request.client_id),
            "api": request.api.name,
            "operation": operation.name,
            "resource": resource.name,
            "name": _shortened(name),
            "acl": None if decision.acl is None else str(decision.acl),
        }

    def _write_count(self, one: _Repeated, now_s: float) -> None:
        if one.count:
            self._sink.write({"time": self._time(), **one.event, "count": one.count})
        one.count, one.since_s = 0, now_s

    def _write(self, session: ClientSession, fields: Mapping[str, Any]) -> None:
        self._sink.write(
            {
                "time": self._time(),
                "event": fields["event"],
                "principal": _shortened(str(session.principal)),
                "host": session.host,
                "listener": session.listener,
                **fields,
            }
        )

    def _time(self) -> str:
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _shortened(text: str | None) -> str | None:
    if text is None or len(text) <= TEXT_LENGTH_MAX:
        return text
    return f"{text[:TEXT_LENGTH_MAX]}…"
