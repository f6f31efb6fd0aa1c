"""Every statement sent to Db2, as functions that return its text and parameters; nothing here executes."""
