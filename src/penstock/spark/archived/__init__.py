"""Reading an archive before the journal: its files, their rows by position, and where the archive and journal meet."""
