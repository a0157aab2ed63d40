"""What we do to the agents: attacks, search, training loops, metrics, verbs and pages, one folder a system.

`core` is what all systems share. In each system `verbs` holds its verbs of the command line, `metrics` its figures, `page` its
chapter of a report and `rl` its RLlib code. Everything else is pure algorithms, without Ray. Read a system's `verbs` first.
"""
