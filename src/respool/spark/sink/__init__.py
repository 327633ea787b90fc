"""Writing from Spark, exactly once.

```
 task 0 ──► transaction, written, not ended ─┐                    ┌─► commit    each of them, as often as needed
 task 1 ──► transaction, written, not ended ─┼─► driver: DECIDE ──┼─► commit
 task 2 ──► no rows, no transaction ─────────┘   one record       └─► commit
```
Each task writes in a transaction of its own and hands it to the driver unended (`task.py`). When all tasks are done,
the driver writes one record to the broker: *batch 7 of this query is these transactions*. That is the moment at which
the batch counts. Then it commits them; who commits one again does no harm. A driver that dies before the record
leaves nothing that counts, and the batch is written anew. One that dies after it leaves a list, and whoever comes
next commits what is on it, before anything else.

Who comes next is another *run* of the query (every start is one). Its first task takes over: it commits what was
decided, puts its own run's name into the record, and aborts whatever else was left open. From then on a driver or
task of the run before, should it live, finds another name there, and can change nothing.

The record is changed as follows, by whoever changes it: take the sink's deciding transactional id, which fences
everyone who took it before; read the record; check; write it and commit (`state_store.py`). So no two changes can
pass each other.

What time can do: a transaction that was decided, and not committed before its timeout is over, is aborted by the
broker. The next run finds it so, and the task that wrote it writes it again, alone, provided that the rows are the
same, which a sum over them tells. Else it is an error; never a silent loss, nor rows that are there twice.

`protocol.py` has the steps, without a broker in it; `executing.py` runs them; `stream_writer.py` and
`batch_writer.py` are what Spark calls.
"""
