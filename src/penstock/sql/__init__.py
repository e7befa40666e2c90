"""SQL over the queues and the journal: DuckDB, in processes of its own that the HTTP process starts.

    requests    what the HTTP process sends to such a process, and its answers
    pool        the processes; a query that takes too long is killed with its process
    worker      the life of one process
    database    one query: read-only, with access to nothing but the tables
    tables      the tables and their columns
    views       the tables that are read from the journal while the query runs
    pushdown    what a filter excludes before anything is read
    results     rows as JSON, CSV and Parquet

All but ``requests`` and ``pool`` need duckdb and pyarrow: ``pip install 'penstock[sql]'``.
"""
