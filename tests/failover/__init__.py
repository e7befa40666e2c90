"""Real brokers on a real PostgreSQL with a synchronous standby, with injected faults while clients work.

cluster   the database, the brokers, and the links between them
load      clients of all protocols, and what was confirmed to them
faults    the injected faults
story     rounds of faults, and the count at the end
"""
