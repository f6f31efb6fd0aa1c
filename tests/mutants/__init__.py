"""One-line mistakes in the package, and the tests that must notice them: `make mutants`."""
