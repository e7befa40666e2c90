"""How messages and deadlines are kept: sorted, in arrays and chunks, so that no step grows with what is kept."""
