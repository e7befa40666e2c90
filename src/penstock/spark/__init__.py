"""The PySpark data source ``format("penstock")``: queues, and what became of every message, as tables and streams.

    source      the data source that Spark finds by itself (through the module ``pyspark_penstock``)
    options     its options; ``values`` how their text is read
    schemas     its tables
    batch       reads of a range;  ``filters`` what a WHERE can narrow down
    stream      endless reads; ``offsets`` what a checkpoint remembers, ``progress`` how far behind they are
    consume     Spark as a consumer of queues
    sink        writes; ``chunks`` how rows are cut so that a repetition is noticed
    endpoint    the Flight client, with patience and clear errors; ``executor`` what executors do with it
    session     a Spark session with sane defaults; ``java`` finds the Java for it

docs/spark.md is the page for users. Nothing is imported here, so that ``penstock.spark.session`` works before Spark
does.
"""
