"""Checks of the source before a tick, as `db2cdc doctor` shows them."""
