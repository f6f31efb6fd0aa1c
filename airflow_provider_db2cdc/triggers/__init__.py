"""Waiting, in the triggerer."""
