"""From the start of a broker to the first message it accepts, asked for again and again until it does."""

import time

from bench.broker_process import BrokerFailed, MeasuredProcess
from bench.requests import Batch, Client, ProduceFrame, RequestFailed
from bench.versus.contender import Contender

POLL_SECONDS = 0.005
ACCEPT_SECONDS_MAX = 600.0
_ACKS_LEADER = 1


def start_to_first_produce(contender: Contender, topic: str, *, is_new: bool) -> float:
    """Start it on its folder as it is, and return the seconds. A new topic is made first, as part of the time."""
    began = time.perf_counter()
    contender.broker.start()
    wait_for_produce(contender, topic, is_new=is_new)
    return time.perf_counter() - began


def wait_for_produce(contender: Contender, topic: str, *, is_new: bool) -> None:
    broker = contender.broker
    deadline = time.perf_counter() + ACCEPT_SECONDS_MAX
    is_made = not is_new
    while time.perf_counter() < deadline:
        try:
            if not is_made:
                contender.create_topic(topic)
                is_made = True
            if _is_accepted(broker, topic):
                return
        except (OSError, RequestFailed) as error:
            if not broker.is_running:
                raise BrokerFailed(f"{contender.name} ended by itself") from error
        time.sleep(POLL_SECONDS)
    raise BrokerFailed(
        f"{contender.name} accepted no message for {ACCEPT_SECONDS_MAX:.0f} s after its start"
    )


def _is_accepted(broker: MeasuredProcess, topic: str) -> bool:
    batch = Batch.of_size(200, message_bytes=100, time_ms=int(time.time() * 1000))
    frame = ProduceFrame(topic, batch, acks=_ACKS_LEADER)
    with Client(broker.host, broker.port) as client:
        client.socket.sendall(frame.data)
        reply = client.read_frame()
    # The frame's place counts the size before it.
    at = frame.reply_error_at - 4
    return reply[at : at + 2] == b"\0\0"
