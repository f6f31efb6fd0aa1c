"""The steps that apply one batch of one table to Delta."""
