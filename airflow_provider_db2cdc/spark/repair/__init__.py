"""The comparison and the correction of a table on Delta: change tables with the log, and the log with the state."""
