"""Finding damage in a data folder, and repairing it."""
