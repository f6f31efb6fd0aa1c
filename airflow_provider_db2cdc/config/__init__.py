"""The configuration of a pipeline: properties as users write them, checked and typed."""
