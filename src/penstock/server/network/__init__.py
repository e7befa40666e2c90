"""Connections: sockets, TLS, sessions, the turns of the loop that serve them, and who may do what on them."""
