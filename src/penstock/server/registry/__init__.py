"""Readers and writers by name: who owns each name, how far readers are, and how many names one identity may have."""
