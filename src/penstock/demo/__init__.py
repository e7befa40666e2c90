"""Everything on one machine, for ``penstock up`` and its demonstration; PostgreSQL and brokers of it serve tests, too.

::

    stack       what ``penstock up`` runs: a broker and pipelines, and with a PostgreSQL pair a second broker
    processes   child processes that end with us, and the lock that all of a run hold
    broker      ``penstock serve`` as a child process
    pipelines   the child process with Spark, and the messages to and from it; ``driver`` is its main module
    postgresql  PostgreSQL servers in a folder, alone or with a synchronous standby
    failover    such a pair with two brokers, of which the demonstration kills one each
    run         the demonstration: traffic, then a comparison of all counts
    traffic     sample traffic through all three protocols, counted by its clients
    agreement   compares the clients' counts, the journal and the tables
"""
