"""The state worked out from the journal, a million events at a time, and a broker made from it."""
