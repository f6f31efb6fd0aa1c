"""The lease of a target in a store where two drivers could overwrite each other's commits."""
