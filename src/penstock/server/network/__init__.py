"""Connections: listening sockets, TLS, sessions, and who may do what on them."""
