"""The shared parts of all systems: command line, runs, Ray, RLlib, statistics, pages and verbs. It imports no system."""
