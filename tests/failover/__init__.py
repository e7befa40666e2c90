"""Real brokers on a real PostgreSQL with a synchronous standby, broken in every way while clients work.

cluster   the database, the brokers, and the ways between them
load      clients of all protocols, and what they were told
faults    what is done to the cluster
story     rounds of faults, and the count at the end
"""
