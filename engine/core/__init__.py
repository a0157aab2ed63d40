"""What all systems of the engine share: command line, runs, Ray, RLlib, statistics, pages and verbs. It imports no system."""
