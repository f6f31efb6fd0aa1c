"""Channels of signals and notifications: files, Kafka, and custom classes.

The signal table and Airflow's runs are read elsewhere.
"""
