"""The whole way on one machine: a shop in the sandbox, the shipped DAG in an Airflow of its own, and the comparison."""
