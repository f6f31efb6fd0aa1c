"""The triggers: waits in the triggerer."""
