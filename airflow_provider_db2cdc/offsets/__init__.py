"""The stores of offsets: Airflow Variables and files."""
