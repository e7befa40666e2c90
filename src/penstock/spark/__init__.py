"""The PySpark data source ``format("penstock")``: queues, and the life of every message, as tables and streams.

    source      the data source, which Spark finds by itself (through the module ``pyspark_penstock``)
    options     its options; ``values`` parses their text
    schemas     its tables
    batch       batch reads;  ``filters`` narrows them down by a WHERE; ``archived`` reads an archive before the journal
    stream      streaming reads; ``offsets`` is the content of a checkpoint, ``progress`` reports the lag
    consume     Spark as a consumer of queues
    writers     writes; ``chunks`` cuts rows so that repetitions are recognised
    endpoint    the Flight client, with retries and clear errors; ``executor`` uses it on executors
    lake        tables in a folder or an object store, in several formats
    pipelines   ready-made pipelines, which write and read those tables
    session     a Spark session with sensible defaults; ``java`` finds a Java for it

User's page: docs/spark.md. Nothing is imported here, so that ``penstock.spark.session`` can be used before Spark is set
up.
"""
