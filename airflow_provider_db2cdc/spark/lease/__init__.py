"""The lease of a target on S3: where it is needed, and the object that it is kept in."""
