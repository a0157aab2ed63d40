"""What we do to the agents: attacks, search, training loops, metrics, run folders, Ray, jobs, reports, command line.

Rings, inner first: pure algorithms (`metrics` and the like, no Ray), `store`, `runtime` (plain Ray), `rllib`, `jobs`,
`report` and `cli`. A ring imports only from rings before it. Read `jobs` first: each job is one walk through the others.
"""
