"""Where signals come from beside the signal table and Airflow: files, Kafka, and what users bring."""
