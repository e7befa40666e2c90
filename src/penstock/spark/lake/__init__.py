"""Tables that can be read while they are written. Each batch is in them once. See README.md."""
