"""The services of the demo: an Airflow home, its database, and the runs of its DAG."""
