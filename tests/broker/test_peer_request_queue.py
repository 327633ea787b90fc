"""What one broker asks another: one request at a time, and together what has gathered."""

import asyncio
from collections.abc import Iterable

from respool.broker.peer_request_queue import PeerRequestQueue
from respool.model.ids import BrokerId

ONE, TWO = BrokerId(1), BrokerId(2)


class Peer:
    """Answers when it is told to, and leaves out what it is told to."""

    def __init__(self, *, at_once_max: int = 100) -> None:
        self.asked: list[tuple[BrokerId, list[str]]] = []
        self.refused: set[str] = set()
        self.answers = asyncio.Semaphore(0)
        self._tasks: list[asyncio.Task[None]] = []
        self.queue: PeerRequestQueue[str] = PeerRequestQueue(
            self._ask,
            spawn=lambda work: self._tasks.append(asyncio.ensure_future(work)),
            at_once_max=at_once_max,
        )

    async def _ask(self, broker: BrokerId, all_of_it: list[str]) -> Iterable[str]:
        self.asked.append((broker, all_of_it))
        await self.answers.acquire()
        return [one for one in all_of_it if one in self.refused]

    async def answer(self, times: int = 1) -> None:
        for _ in range(times):
            self.answers.release()
        await turns()


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_what_gathers_while_a_request_is_under_way_goes_with_the_next() -> None:
    async def story() -> None:
        peer = Peer()
        peer.queue.put(ONE, "a")
        peer.queue.put(ONE, "b")
        await turns()
        peer.queue.put(ONE, "c")
        peer.queue.put(ONE, "d")
        await turns()
        assert peer.asked == [(ONE, ["a", "b"])]
        await peer.answer()
        assert peer.asked[1:] == [(ONE, ["c", "d"])]
        await peer.answer()
        # Nothing is left over: it begins anew.
        peer.queue.put(ONE, "e")
        await turns()
        assert peer.asked[2:] == [(ONE, ["e"])]

    asyncio.run(story())


def test_brokers_do_not_wait_for_each_other() -> None:
    async def story() -> None:
        peer = Peer()
        peer.queue.put(ONE, "a")
        peer.queue.put(TWO, "b")
        await turns()
        assert peer.asked == [(ONE, ["a"]), (TWO, ["b"])]

    asyncio.run(story())


def test_a_request_takes_no_more_than_fit() -> None:
    async def story() -> None:
        peer = Peer(at_once_max=2)
        for one in "abcde":
            peer.queue.put(ONE, one)
        await turns()
        await peer.answer(2)
        assert [names for _, names in peer.asked] == [["a", "b"], ["c", "d"], ["e"]]

    asyncio.run(story())


def test_what_did_not_fit_together_comes_first_in_the_next() -> None:
    async def story() -> None:
        peer = Peer()
        peer.refused = {"b"}
        peer.queue.put(ONE, "a")
        peer.queue.put(ONE, "b")
        await turns()
        peer.queue.put(ONE, "c")
        await peer.answer()
        assert peer.asked[1:] == [(ONE, ["b", "c"])]

    asyncio.run(story())


def test_what_is_cleared_is_not_asked() -> None:
    async def story() -> None:
        peer = Peer()
        peer.queue.put(ONE, "a")
        await turns()
        peer.queue.put(ONE, "b")
        peer.queue.clear()
        await peer.answer()
        assert peer.asked == [(ONE, ["a"])]

    asyncio.run(story())
