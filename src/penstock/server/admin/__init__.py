"""The broker's side of the HTTP process: its settings and requests, tokens and measurements."""
