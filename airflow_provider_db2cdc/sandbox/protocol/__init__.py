"""DRDA, as IBM's drivers and Derby speak it."""
