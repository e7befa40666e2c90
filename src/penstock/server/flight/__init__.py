"""The broker's side of the Flight endpoint: its process, the private socket, and who reads and writes through it."""
