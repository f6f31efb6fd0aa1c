"""The sandbox's capture agent."""
