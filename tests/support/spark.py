"""One Spark for all tests that need it: it takes ten seconds to start."""

import signal
import warnings
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@cache
def the_session() -> "SparkSession":
    from respool.spark import session

    on_ctrl_c = signal.getsignal(signal.SIGINT)
    with warnings.catch_warnings():
        # It says of pandas 3 that some of its own pandas functions may not work; none is used here.
        warnings.simplefilter("ignore")
        made = session(
            "tests",
            master="local[2]",
            settings={
                "spark.sql.shuffle.partitions": "2",
                "spark.sql.streaming.stopTimeout": "60s",
                "spark.sql.streaming.pollingDelay": "10ms",
            },
        )
    made.sparkContext.setLogLevel("ERROR")
    # Spark sets one of its own, which tests that run next in this process would meet.
    signal.signal(signal.SIGINT, on_ctrl_c)
    return made
