"""How long it takes to make many topics, and to delete them."""

import time

from bench.versus.arena import Arena
from bench.versus.contender import Contender, Contenders
from bench.versus.rounds import turns
from bench.versus.row import Unit
from bench.versus.topics import create_topics, delete_topics

FAMILY = "Topics"


def run(arena: Arena, contenders: Contenders) -> None:
    arena.results.note(
        FAMILY, "Of one partition each. The time ends when the broker has answered for all of them."
    )
    for _, contender in turns(contenders.like_with_like, rounds=arena.sizes.rounds):
        _create(arena, contender)


def _create(arena: Arena, contender: Contender) -> None:
    address, sizes = contender.broker.address, arena.sizes
    arena.progress(f"{FAMILY}: {contender.name}")
    at_once = [arena.new_topic_name() for _ in range(sizes.topics)]
    began = time.perf_counter()
    create_topics(address, at_once, settings=contender.topic_settings)
    _add(arena, contender, f"create {sizes.topics:,}, one request", began)
    in_turn = [arena.new_topic_name() for _ in range(sizes.topics_in_turn)]
    began = time.perf_counter()
    for name in in_turn:
        contender.create_topic(name)
    _add(arena, contender, f"create {sizes.topics_in_turn:,}, one after the other", began)
    names = at_once + in_turn
    began = time.perf_counter()
    delete_topics(address, names)
    _add(arena, contender, f"delete {len(names):,}, one request", began)


def _add(arena: Arena, contender: Contender, row: str, began: float) -> None:
    took = time.perf_counter() - began
    arena.results.add(FAMILY, row, Unit.SECONDS, contender.name, took)
