"""The sandbox's commands."""
