"""Kokaq on the server's side: the options of its listeners, its sessions, and the answers that they give."""
