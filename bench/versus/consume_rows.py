"""How fast consumers read a log that is there: from the page cache, and from the disk."""

from collections.abc import Callable

from bench.load_client import measure_command
from bench.versus.arena import Arena, Done
from bench.versus.contender import Contender, Contenders
from bench.versus.filled_topic import FilledTopic, fill
from bench.versus.perf_tool import PerfTool
from bench.versus.rounds import turns
from bench.versus.topics import delete_topics

FAMILY = "Consume"


def run(arena: Arena, contenders: Contenders) -> None:
    arena.results.note(
        FAMILY,
        "100 B messages in batches of 16 KB, one partition. Cold: the log was written out and dropped from the page "
        "cache. How a log was synced when it was written makes no difference to who reads it.",
    )
    tool = PerfTool(jars=arena.jars, on_complaint=lambda text: arena.results.note(FAMILY, text))
    arena.progress(f"{FAMILY}: filling")
    logs = {
        one.name: fill(one, arena.new_topic_name(), messages=arena.sizes.log_messages)
        for one in contenders.like_with_like
    }
    for is_cold in (False, True):
        for client in ("Java client", "librdkafka"):
            if arena.sizes.is_quick and is_cold and client == "Java client":
                continue
            name = f"{client}, 100 B, {'cold' if is_cold else 'warm'} cache"
            for _, contender in turns(contenders.like_with_like, rounds=arena.sizes.rounds):
                if is_cold:
                    contender.broker.forget_cached()
                load = _load(tool, client, contender, logs[contender.name])
                arena.measure(FAMILY, name, contender, load)
    for contender in contenders.like_with_like:
        delete_topics(contender.broker.address, [logs[contender.name].name])
    arena.finish_family(FAMILY)


def _load(
    tool: PerfTool, client: str, contender: Contender, log: FilledTopic
) -> Callable[[], Done]:
    address = contender.broker.address

    def by_java() -> Done:
        return tool.consume(address, log.name, messages=log.messages)

    def by_librdkafka() -> Done:
        taken = measure_command(
            contender.broker,
            "bench.versus.librdkafka_load",
            "consume",
            address,
            log.name,
            str(log.messages),
        )
        return Done(messages=taken.messages, messages_per_s=taken.messages_per_s)

    return by_java if client == "Java client" else by_librdkafka
