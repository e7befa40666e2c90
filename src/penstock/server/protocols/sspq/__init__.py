"""SSPQ on the server's side: the options of its listeners, and its sessions."""
