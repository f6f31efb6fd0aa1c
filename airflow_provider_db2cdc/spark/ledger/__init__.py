"""What was planned, applied and asked for, in Delta."""
