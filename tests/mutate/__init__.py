"""Mutants of core, journal and wire: small changes to the code that some test must notice."""
