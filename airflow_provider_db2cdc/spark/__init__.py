"""The edge to Spark and Delta: transforms are DataFrame to DataFrame; only target.py and ledger.py write."""
