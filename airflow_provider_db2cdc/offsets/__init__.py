"""Where Airflow keeps offsets."""
