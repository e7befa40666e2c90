"""SQL over what is in the queues and in the journal: DuckDB, in processes of its own that the HTTP process starts.

    requests    what the HTTP process asks such a process for
    pool        those processes, as the HTTP process keeps them: a query that takes too long is ended with its process
    worker      the life of one
    database    one query: read-only, without access to anything but the tables
    tables      the tables and their columns
    views       the tables that are read from the journal while the query runs
    pushdown    what of a filter can be decided before anything is read
    results     rows as JSON, CSV and Parquet

All but ``requests`` and ``pool`` need duckdb and pyarrow: ``pip install 'penstock[sql]'``.
"""
