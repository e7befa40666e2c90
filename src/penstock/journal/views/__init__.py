"""The journal as tables: messages and events as Arrow record batches."""
