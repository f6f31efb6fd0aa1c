"""The plan of a tick: up to which LSN it reads each table."""
