"""Tables of the older format, and their upgrade."""
