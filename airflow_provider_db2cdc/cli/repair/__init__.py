"""`db2cdc backfill` and `db2cdc replay`."""
