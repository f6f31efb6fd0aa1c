"""Access to Db2 through ibm_db: connection, catalog, preflight checks and the plan of a tick."""
