"""What the DAG `inside` calls: a Variable can only be written from within a task."""

CALLS = []
