"""What the classes of the jar ask of Python, in a worker on the driver."""
