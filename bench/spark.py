"""Spark's two ends: the source, and the sink."""

from bench import spark_sink, spark_source
from bench.report import Report
from bench.scale import Scale


def run(scale: Scale, report: Report) -> None:
    spark_source.run(scale, report)
    spark_sink.run(scale, report)
