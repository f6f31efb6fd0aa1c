"""Signals and the requests that they carry."""
