"""The terms and the decisions of change data capture: pure code, standard library only."""
