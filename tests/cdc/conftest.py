"""Hypothesis without a deadline: the machine that runs the tests is shared."""

from hypothesis import settings

settings.register_profile("pure", deadline=None, database=None, print_blob=True)
settings.load_profile("pure")
