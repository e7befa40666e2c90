"""The broker's side of the HTTP API: its process, its requests, tokens and figures."""
