"""Tables that are read while they are written: each batch gets there once."""
