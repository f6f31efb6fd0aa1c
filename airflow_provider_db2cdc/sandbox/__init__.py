"""A stand-in for Db2 that IBM's own drivers talk to: for development, demonstration and tests only.

It is Apache Derby with a protocol shim, plus an emulated capture agent. It is not Db2, and what it does is never
evidence about what Db2 does.
"""
