"""The words of change data capture, and every decision about them: pure, standard library only."""
