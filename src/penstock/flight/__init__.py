"""Arrow Flight endpoint: the journal's history and what is in the queues now, for Spark, pandas, polars and DuckDB.

    calls        what a client may ask for, and the errors it may get: the public contract
    requests     what the endpoint asks the broker for, over a private Unix socket
    settings     what its process is told, and what it says
    process      the life of the process: `python -m penstock.flight`, as `penstock serve` starts it
    endpoint     Flight's ways: calls come in as JSON, errors go out as problems (`problems`)
    service      what each call does, with the help of
      access       who calls, and what they may do
      history      ranges of the journal, checked
      views        the columns of each view
      plans        how far a reader may go, parts of a range, lag; counts of `tallies`
      live         what is in the queues now
      leased       what a reader has leased
      writes       record batches as chunks of messages
      broker       asking the broker, over its private socket

The first three are plain values without pyarrow, so that the broker and the data source can share them.
"""
