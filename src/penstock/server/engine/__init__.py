"""The core on a journal: group commit, and effects that wait for their commit. Knows nothing of sockets."""
