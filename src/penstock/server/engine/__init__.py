"""The core on a log: start, group commit, and effects that wait for their commit. Knows nothing of sockets."""
