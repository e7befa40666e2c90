"""Arrow Flight endpoint: the journal's history and what is in the queues now, for Spark, pandas, polars and DuckDB.

    calls      what a client may ask for, and the errors it may get: the public contract
    requests   what the endpoint asks the broker for, over a private Unix socket

Both are plain values without pyarrow, so that the broker and the data source can share them.
"""
