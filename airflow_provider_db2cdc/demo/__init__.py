"""The whole way on one machine: a shop in the sandbox, the shipped DAG in a separate Airflow, and the comparison."""
