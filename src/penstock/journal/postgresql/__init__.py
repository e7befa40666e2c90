"""The journal in a PostgreSQL, which brokers on several machines own in turn.

    database     what the journal asks of a database: one method for each statement
    connection   that database over psycopg; nothing else here knows the driver
    schema       the tables, their version, and who may change them

A block's way in: `DatabaseLog.append` → `encoding.encode` → `Database.append`, one statement that moves the head and
adds the row. docs/journal.md has the tables, the statements and the rules by which one owner follows another.
"""
