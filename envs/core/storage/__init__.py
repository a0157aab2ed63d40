"""Remote storage at URIs, for runs and models.

Read `uris.py` first: URIs and the paths of their local copies. `files.py` reads and writes whole files, `copies.py` keeps
local copies up to date.
"""
