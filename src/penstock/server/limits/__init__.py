"""What bounds the broker: memory, queues, room on the disk, and the list of everything that can grow."""
