"""Reading an archive in place of the journal: which files it has, their rows by position, and where the two meet."""
