"""Tables that others read while we write: how each batch gets there once."""
