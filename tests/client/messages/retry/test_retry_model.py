"""A group whose handlers fail and whose members crash, against the promise: every message is handled or buried.

The world is a topic, a delay topic and dead letters, each a list. Only the decisions are real. A member may crash
between sending a retry and committing, and then reads the message again.
"""

from datetime import UTC, datetime, timedelta
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from respool.client.messages.message import Message
from respool.client.messages.retry.failed_message import Bury, Raise, SendAgain
from respool.client.messages.retry.failure_decisions import Retries, attempt_of
from respool.client.messages.retry.retry_options import Retry
from respool.model.retry.failure_headers import read_failure

Step = Literal["handle", "fail", "hopeless", "crash", "crash after sending", "commit", "wait"]
STEPS: list[Step] = ["handle", "fail", "fail", "fail", "hopeless"]
STEPS += ["crash", "crash after sending", "commit", "wait"]
MESSAGES = 4
DELAYS_S = (10, 30, 60)
START = datetime(2026, 1, 1, tzinfo=UTC)


class World:
    def __init__(self) -> None:
        self.now = START
        self.logs: dict[str, list[Message]] = {
            "rides": [self._message("rides", n, ()) for n in range(MESSAGES)],
            "retry.billing": [],
        }
        self.committed = dict.fromkeys(self.logs, 0)
        self.read_to = dict(self.committed)
        # By schedule id, as the broker keeps them: a second one replaces the first.
        self.waiting: dict[bytes, tuple[datetime, datetime, Message]] = {}
        # When each message of the retry topic had failed, by its offset there.
        self.failed_at: list[datetime] = []
        self.handled: list[tuple[int, int]] = []
        self.buried: list[int] = []
        self.crashes = 0

    def step(self, step: Step) -> None:
        match step:
            case "commit":
                self.committed = dict(self.read_to)
            case "wait":
                self.advance(15)
            case "crash":
                self.crash()
            case _:
                self.next_message(step)

    def next_message(self, step: Step) -> None:
        for topic in ("retry.billing", "rides"):
            log, offset = self.logs[topic], self.read_to[topic]
            if offset < len(log):
                self.read_to[topic] += 1
                return self.attempt(log[offset], step)
        return None

    def attempt(self, message: Message, step: Step) -> None:
        # Each attempt is with rules that know nothing of the last: everything is in the headers.
        rules = Retries(
            Retry(delays=[f"{one}s" for one in DELAYS_S], give_up=ValueError),
            group="billing",
            topics=["rides"],
        )
        failure = rules.failure_of(message)
        origin = message.offset if failure is None else failure.offset
        attempt = attempt_of(failure)
        assert attempt <= len(DELAYS_S) + 1
        if attempt > 1:
            waited = self.now - self.failed_at[message.offset]
            assert waited >= timedelta(seconds=DELAYS_S[attempt - 2]), "early"
        if step == "handle":
            self.handled.append((origin, attempt))
            return
        error = ValueError() if step == "hopeless" else OSError()
        decision = rules.decide(message, error, self.now)
        assert not isinstance(decision, Raise)
        if isinstance(decision, Bury):
            assert step == "hopeless" or attempt == len(DELAYS_S) + 1
            self.buried.append(read_failure(decision.headers_to_send()).offset)
        else:
            self.send_again(decision)
        if step == "crash after sending":
            self.crash()

    def send_again(self, decision: SendAgain) -> None:
        headers = dict(decision.headers_to_send())
        delay, name = headers["respool-delay"], headers["respool-schedule-id"]
        assert delay is not None
        assert name is not None
        seconds = {b"10s": 10, b"30s": 30, b"1m": 60}[delay]
        kept = [one for one in decision.headers_to_send() if not one[0].startswith("respool-delay")]
        due = self.now + timedelta(seconds=seconds)
        self.waiting[name] = due, self.now, self._message("retry.billing", 0, tuple(kept))

    def advance(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)
        for name, (due, failed_at, message) in sorted(
            self.waiting.items(), key=lambda item: item[1][0]
        ):
            if due <= self.now:
                del self.waiting[name]
                self.failed_at.append(failed_at)
                log = self.logs["retry.billing"]
                log.append(self._message("retry.billing", len(log), message.headers))

    def crash(self) -> None:
        self.crashes += 1
        self.read_to = dict(self.committed)

    @property
    def is_over(self) -> bool:
        return not self.waiting and all(
            self.read_to[topic] == len(log) for topic, log in self.logs.items()
        )

    def _message(
        self, topic: str, offset: int, headers: tuple[tuple[str, bytes | None], ...]
    ) -> Message:
        return Message(
            topic=topic,
            partition=0,
            offset=offset,
            timestamp=START,
            key=None,
            value=b"",
            headers=headers,
        )


@given(st.lists(st.sampled_from(STEPS), max_size=60), st.sampled_from(["handle", "fail"]))
def test_every_message_is_handled_or_buried_within_its_attempts_and_never_early(
    steps: list[Step], at_last: Step
) -> None:
    world = World()
    for step in steps:
        world.step(step)
    rounds = 0
    while not world.is_over:
        world.next_message(at_last)
        world.advance(15)
        rounds += 1
        assert rounds < 1_000
    ends = [offset for offset, _ in world.handled] + world.buried
    assert set(ends) == set(range(MESSAGES))
    if not world.crashes:
        assert sorted(ends) == list(range(MESSAGES))


@given(st.lists(st.sampled_from(["fail", "wait", "commit", "crash after sending"]), max_size=60))
def test_a_crash_between_send_and_commit_leaves_one_retry_waiting(steps: list[Step]) -> None:
    world = World()
    for step in steps:
        world.step(step)
        origins = [read_failure(one.headers) for _, _, one in world.waiting.values()]
        attempts = [(one.offset, one.deliveries) for one in origins]
        assert len(attempts) == len(set(attempts))
