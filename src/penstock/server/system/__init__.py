"""What the broker asks of Python and the operating system: freed memory, garbage collection, CPUs, file descriptors."""
