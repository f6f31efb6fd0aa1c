"""Random histories in memory that mix every kind of run, and the checks that must hold in each."""
