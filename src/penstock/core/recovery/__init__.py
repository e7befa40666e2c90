"""The state computed from the journal, a million events at a time, and a broker made from it."""
