"""Penstock on Spark: the session, the source and the sink behind `format("penstock")`.

`session` starts Spark; `source*` reads topics; `sink*` writes them exactly once. The data source itself is registered
by the top-level module `pyspark_penstock`, which Spark finds by its name.
"""
