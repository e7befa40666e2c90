"""The broker's side of the Flight endpoint: its settings, and its requests about leases and writes."""
