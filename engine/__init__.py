"""The work on agents: attacks, searches, trainings, metrics, verbs and pages, with one folder for each system.

All systems share `core`. In each system `verbs` holds its verbs of the command line, `metrics` its figures, `page` its
chapter of a report and `rl` its RLlib code. The rest are algorithms without Ray. Read a system's `verbs` first.
"""
