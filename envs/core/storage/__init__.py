"""Storage that every machine reaches, named by URIs: where runs and models may lie besides a folder.

Read `places.py` first: names, and where a URI's local copy lies. `files.py` reads and writes whole files, `copies.py` brings
them here.
"""
