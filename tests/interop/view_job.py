"""Spark's own Kafka connector on a view whose end is quiet: batches, splits and a stream.

Run by its own Python and Spark, it knows nothing of Respool: arguments are the broker's address, the view, and a
folder; what it saw is printed as JSON.
"""

import json
import sys

from pyspark.sql import DataFrame, SparkSession


def main(bootstrap: str, view: str, folder: str, jars: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": view}

    def values(rows: DataFrame) -> list[int]:
        found = rows.selectExpr("CAST(CAST(value AS STRING) AS INT) AS n").collect()
        return sorted(row.n for row in found)

    seen = {"batch": values(spark.read.format("kafka").options(**options).load())}
    splits = spark.read.format("kafka").options(**options, minPartitions="9").load()
    seen["splits"] = values(splits)
    committed = {**options, "kafka.isolation.level": "read_committed"}
    seen["committed"] = values(spark.read.format("kafka").options(**committed).load())
    for attempt in range(2):
        # The second run goes on from the checkpoint, where nothing has come since.
        query = (
            spark.readStream.format("kafka")
            .options(**options, startingOffsets="earliest", maxOffsetsPerTrigger="30")
            .load()
            .writeStream.format("parquet")
            .option("path", f"{folder}/streamed")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        seen[f"streamed {attempt}"] = values(spark.read.parquet(f"{folder}/streamed"))
    print(json.dumps(seen))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
