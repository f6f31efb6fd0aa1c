"""The sensors: tasks that wait."""
