"""Instruments that several tests share."""
