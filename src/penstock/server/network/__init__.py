"""Connections: sockets, TLS, sessions, the turns of the loop that serve them, and the rights of their peers."""
