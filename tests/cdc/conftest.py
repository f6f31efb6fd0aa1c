"""Hypothesis without a deadline: other programs may slow the tests down."""

from hypothesis import settings

settings.register_profile("pure", deadline=None, database=None, print_blob=True)
settings.load_profile("pure")
