"""The ride company's jobs on Spark: from raw events to dashboards, fraud scores and the warehouse."""
