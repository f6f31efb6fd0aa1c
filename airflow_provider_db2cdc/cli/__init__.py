"""The command line: ticks without Airflow, and a look at what a pipeline holds."""
