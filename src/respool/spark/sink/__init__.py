"""Exactly-once writes from Spark.

```
 task 0 ──► transaction, written, prepared ───┐                    ┌─► commit    each of them, as often as needed
 task 1 ──► transaction, written, prepared ───┼─► driver: DECIDE ──┼─► commit
 task 2 ──► no rows, no transaction ──────────┘   one record       └─► commit
```
Each task writes in its own transaction and passes it, prepared but not ended, to the driver (`task.py`). When all tasks
are done, the driver writes one record to the broker: *batch 7 of this query consists of these transactions*. This
record is the commit point of the batch. Then the driver commits the transactions; committing one again is harmless. If
the driver dies before the record is written, nothing of the batch becomes visible, and it is written again. If it dies
afterwards, the record lists the transactions, and the next run commits them before anything else.

Every start of a query is a *run*. The first task of a new run takes over: it commits the decided transactions, writes
the id of its own run into the record, and aborts all other open transactions. From then on, a driver or task of the
previous run that is still alive finds another run in the record, and cannot change anything.

Every change of the record follows the same steps: take over the sink's deciding transactional id, which fences all
previous deciders; read the record; check it; write it and commit (`state_store.py`). So changes are serialized.

The limit is time: the broker aborts a decided transaction that is not committed before its timeout. The next run
detects this, and the same task writes its rows again, provided that they are the same, which is verified by a checksum.
Otherwise an error is raised; rows are never silently lost or duplicated.

`protocol.py` has the steps, without any I/O; `executing.py` runs them; `stream_writer.py` and `batch_writer.py` are the
classes that Spark calls.
"""
