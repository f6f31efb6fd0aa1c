"""A pipeline's configuration: properties as people write them, checked and typed."""
