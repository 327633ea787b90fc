"""`kill -9` of table writers and of the broker, over and over: every record is in the table once."""

import os
import random
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import respool
from respool.client.kafka.admin import create_topic
from respool.client.kafka.cluster import Cluster
from respool.tables.formats.opening import open_rejected, open_table
from respool.tables.service.table_service import TableService
from respool.tables.upkeep.table_operations import create_table
from respool.tables.writing.topic_source import BrokerSource
from support.broker_process import BrokerProcess
from tables.making import rows_of

BATCH = 2_000
# Every so many values cannot be read.
BAD_EVERY = 97


def values(begin: int) -> list[bytes]:
    return [
        b"null" if number % BAD_EVERY == 0 else b'{"id":%d,"fare":%d.5}' % (number, number % 50)
        for number in range(begin, begin + BATCH)
    ]


def start_writer(broker: BrokerProcess) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "respool.cli", "table", "run", "rides", "--broker", broker.address],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.crash
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_every_record_is_in_the_table_once_after_kills(tmp_path: Path, kind: str) -> None:
    _run(tmp_path, kind, kills=4)


@pytest.mark.crash
@pytest.mark.long
@pytest.mark.skipif(os.environ.get("RESPOOL_FUZZ") != "long", reason="make fuzz")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_every_record_is_in_the_table_once_after_a_hundred_kills(tmp_path: Path, kind: str) -> None:
    _run(tmp_path, kind, kills=100)


def _run(folder: Path, kind: str, *, kills: int) -> None:
    chance = random.Random(kills)
    sent = 0
    with BrokerProcess(folder / "data") as broker:
        address = broker.address
        with Cluster(address) as cluster:
            create_topic(cluster, "rides", partitions=3)
            settings = {
                "respool.table": kind,
                "respool.table.location": str(folder / "lake"),
                "respool.table.schema": "declared:id long, fare double",
                "respool.table.interval.ms": "100",
                "respool.table.file.bytes": str(64 * 1024),
            }
            create_table(cluster, "rides", settings)
        writers = [start_writer(broker), start_writer(broker)]
        for kill in range(kills):
            respool.write_table(pa.table({"value": values(sent)}), "rides", bootstrap=address)
            sent += BATCH
            try:
                # A moment of its work, or its end: any moment is one that a kill may hit.
                writers[kill % 2].wait(chance.uniform(0.3, 2.5))
            except subprocess.TimeoutExpired:
                writers[kill % 2].kill()
                writers[kill % 2].wait()
            if kill % 4 == 3:
                broker.kill()
                broker.start()
            writers[kill % 2] = start_writer(broker)
        for one in writers:
            one.kill()
            one.wait()
        with Cluster(address) as cluster:
            TableService(cluster, "rides").run(once=True)
            _check(cluster, sent)


def _check(cluster: Cluster, sent: int) -> None:
    source = BrokerSource(cluster, "rides")
    settings, ends = source.settings(), source.ends()
    rows = rows_of(open_table(settings, "rides", partitions=len(ends)))
    bad = rows_of(open_rejected(settings, "rides", partitions=len(ends)))
    log = respool.read_table(
        "rides", bootstrap=cluster.bootstrap, columns=["partition", "offset", "value"]
    )
    assert log.num_rows == sent
    connection = duckdb.connect()
    for name, table in (("rows", rows), ("bad", bad), ("log", log)):
        connection.register(f"{name}_", table)
    # The log, read by other code and parsed by another parser, is the table and what was rejected: no more, no less.
    found = connection.execute(
        """
        with expected as (
            select partition as p, "offset" as o, decode(value) as text from log_
        ), good as (
            select p, o, (text::json ->> 'id')::bigint as id, (text::json ->> 'fare')::double as fare
            from expected where text <> 'null'
        ), have as (
            select _partition as p, _offset as o, id, fare from rows_
        )
        select
            (select count(*) from (select * from good except all select * from have)),
            (select count(*) from (select * from have except all select * from good)),
            (select count(*) from (select p, o from expected where text = 'null'
                                   except all select _partition, _offset from bad_)),
            (select count(*) from (select _partition, _offset from bad_
                                   except all select p, o from expected where text = 'null'))
        """
    ).fetchall()
    assert found == [(0, 0, 0, 0)]
