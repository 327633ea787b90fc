"""Prints the document of `respool status`: tables for people, lines for programs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from respool.cli import output
from respool.cli.status.partition_problems import (
    PROBLEMS,
    draw_problems,
    draw_some,
    in_words,
    print_problems,
)
from respool.model.quantities import counted, human_bytes

BROKER_COLUMNS = ("broker", "address", "rack", "state", "leads", "replicas", "behind", "bytes")
BROKER_NUMBERS = ("broker", "leads", "replicas", "behind", "bytes")
LOG_DIR_COLUMNS = ("broker", "log folder", "bytes", "usable", "of", "state")
GROUP_COLUMNS = ("group", "state", "type", "lag")

Document = Mapping[str, Any]


def print_status(document: Document, bootstrap: str) -> None:
    if output.is_terminal():
        _draw(document, bootstrap)
    else:
        _print_lines(document)


def gap_in_words(gap: Document) -> str:
    """For example `log dirs of broker 2 (unreachable): ...`."""
    of = "" if gap["broker"] is None else f" of broker {gap['broker']}"
    return f"{gap['subject'].replace('_', ' ')}{of} ({gap['reason']}): {gap['message']}"


def _print_lines(document: Document) -> None:
    """Print tab-separated lines: the subject first, then its fields."""
    lines: list[tuple[object, ...]] = [
        (
            "cluster",
            document["cluster_id"],
            document["controller"],
            document["topic_count"],
            document["partition_count"],
            *(len(document[name]) for name in (*PROBLEMS, "moving")),
            document["bytes"],
            None if document["groups"] is None else len(document["groups"]),
            document["open_transaction_count"],
            document["long_open_transaction_count"],
        )
    ]
    lines += [("broker", *_broker_cells(one)) for one in document["brokers"]]
    lines += [
        ("log_dir", broker["broker"], *_log_dir_cells(one))
        for broker in document["brokers"]
        for one in broker["log_dirs"]
    ]
    output.print_rows(output.Headings(), lines)
    print_problems(document, {})
    output.print_rows(
        output.Headings(), [("group", *_group_cells(one)) for one in document["groups"] or ()]
    )


def _draw(document: Document, bootstrap: str) -> None:
    output.print_heading(
        f"cluster {document['cluster_id'] or '(no id)'} at {bootstrap}: {_health(document)}"
    )
    rows = [(*_broker_cells(one)[:-1], _size(one["bytes"])) for one in document["brokers"]]
    draw_some(output.Headings(*BROKER_COLUMNS, numbers=BROKER_NUMBERS), rows)
    controller = document["controller"]
    output.print_line(
        f"{counted(document['topic_count'], 'topic')}, "
        f"{counted(document['partition_count'], 'partition')}, "
        f"{_size(document['bytes']) or 'an unknown number of bytes'} of logs; "
        + ("no controller now" if controller is None else f"controller: {controller}")
    )
    draw_problems(document, {})
    _draw_log_dirs(document)
    _draw_groups(document["groups"])
    _print_transactions(document)


def _draw_groups(known: Sequence[Document] | None) -> None:
    if known is None:
        output.print_line("an unknown number of groups")
        return
    groups = sorted(known, key=lambda one: -(one["lag"] or 0))
    draw_some(
        output.Headings(*GROUP_COLUMNS, numbers=("lag",)), [_group_cells(one) for one in groups]
    )
    states = Counter(one["state"] for one in groups)
    told = ", ".join(f"{count:,} {state}" for state, count in states.most_common())
    output.print_line(counted(len(groups), "group") + (f": {told}" if told else ""))


def _draw_log_dirs(document: Document) -> None:
    draw_some(
        output.Headings(*LOG_DIR_COLUMNS, numbers=("broker", "bytes", "usable", "of")),
        [
            (
                broker["broker"],
                one["path"],
                *(_size(one[name]) for name in ("bytes", "usable_bytes", "total_bytes")),
                "offline" if one["is_offline"] else "online",
            )
            for broker in document["brokers"]
            for one in broker["log_dirs"]
        ],
    )


def _print_transactions(document: Document) -> None:
    count, long_open = document["open_transaction_count"], document["long_open_transaction_count"]
    if count is None:
        return
    text = counted(count, "open transaction")
    if long_open:
        text += f", {long_open:,} for over 15 minutes; see: respool transaction hanging"
    output.print_line(text)


def _health(document: Document) -> str:
    words = in_words(document)
    offline = sum(folder["is_offline"] for one in document["brokers"] for folder in one["log_dirs"])
    if offline:
        words.append(f"{counted(offline, 'log folder')} offline")
    if words:
        return ", ".join(words)
    if not document["is_well"]:
        states = {one["state"] for one in document["brokers"]}
        return (
            "brokers answer with errors"
            if states <= {"up", "missing"}
            else "not all brokers answer"
        )
    late = sorted({one["subject"] for one in document["unknown"] if one["reason"] == "timeout"})
    if late:
        named = ", ".join(one.replace("_", " ") for one in late)
        return f"healthy, but not everything was learned in time ({named})"
    return "healthy"


def _broker_cells(one: Document) -> tuple[Any, ...]:
    cells = {**one, "replicas": one["replica_count"]}
    return tuple(cells[name] for name in BROKER_COLUMNS)


def _log_dir_cells(one: Document) -> tuple[Any, ...]:
    return (
        one["path"],
        one["bytes"],
        one["usable_bytes"],
        one["total_bytes"],
        "yes" if one["is_offline"] else "no",
    )


def _group_cells(one: Document) -> tuple[Any, ...]:
    return one["group"], one["state"], one["type"], one["lag"]


def _size(count: int | None) -> str | None:
    return None if count is None else human_bytes(count)
