"""Arrow Flight endpoint: the journal's history and the queues' content, for Spark, pandas, polars and DuckDB.

    calls           the public contract: the calls of a client and their errors
    flight_requests the endpoint's requests to the broker, over a private Unix socket
    machine         recognises a caller on the same machine
    flight_process  the life of the process: `python -m penstock.flight`, as `penstock serve` starts it
    flight_server   the Flight server: JSON in, errors out as problems (`problems`)
    service         what each call does, with the help of
      access        the caller and its rights
      history       checked ranges of the journal
      views         the columns of each view
      plans         limits for readers, parts of a range, lag; counts come from `tallies`
      live          the current content of the queues
      leased        a reader's leases
      writes        record batches to chunks of messages
      sharing       short-circuit reads of the journal's files

``calls``, ``flight_requests`` and ``machine`` need no pyarrow, so that the broker and the data source can share them.
"""
