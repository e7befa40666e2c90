"""The journal in a PostgreSQL, which brokers on several machines own in turn.

    database            the contract with a database: one method for each statement
    postgres_database   its implementation, over connection (SQL) and server_session (psycopg)
    journal_tables      making the tables of ``schema``, and checking their version and owner
    log, writer         the owner's log, and its head: fencing, and the outcome of a commit
    standby, follower   brokers that wait to be the owner; readers

A block's way in: `DatabaseLog.append` → `encoding.encode` → `Database.append`, one statement that moves the head and
adds the row. docs/journal.md has the tables, the statements and the rules by which one owner follows another.
"""
