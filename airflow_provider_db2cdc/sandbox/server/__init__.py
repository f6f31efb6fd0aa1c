"""The sandbox's server: Derby, its proxy and their supervisor."""
