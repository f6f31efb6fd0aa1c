"""The rules of a verification: what it is given, what it finds, and what follows from that."""
