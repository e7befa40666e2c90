"""Brokers, Spark and PostgreSQL on one machine, for ``penstock up``, its demonstration, and the tests.

::

    stack       what ``penstock up`` runs: a broker and pipelines, and with a PostgreSQL pair a second broker
    processes   child processes that end with us, and the lock that all processes of a run share
    broker      ``penstock serve`` as a child process
    pipelines   the child process with Spark, and the messages to and from it; ``driver`` is its main module
    postgresql  PostgreSQL servers in a folder, alone or with a synchronous standby
    failover    such a pair and two brokers: the demonstration kills one broker and the primary
    run         the demonstration: traffic, then a comparison of all counts
    traffic     sample traffic through all three protocols, counted by its clients
    agreement   compares the clients' counts, the journal and the tables
"""
