"""The log in a folder of segment files, with its checkpoints, and its readers in other processes."""
