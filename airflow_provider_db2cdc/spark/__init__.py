"""The edge to Spark, Delta and JDBC: the ports of a tick, and frames in, frames out."""
