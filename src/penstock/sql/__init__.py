"""SQL over the queues and the journal: DuckDB, in processes of its own that the HTTP process starts.

    requests    the requests of the HTTP process, and their answers
    pool        the processes; a query that takes too long is killed with its process
    worker      the life of one process
    database    one query: read-only, with access to nothing but the tables
    tables      the tables and their columns
    views       the tables that are read from the journal while the query runs
    pushdown    the parts of a filter that limit the read itself
    results     rows as JSON, CSV and Parquet

All but ``requests`` and ``pool`` need duckdb and pyarrow: ``pip install 'penstock[sql]'``.
"""
