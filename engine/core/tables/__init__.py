"""Tables of estimates: what a cell holds, how a table is laid out from metrics, and how it is written."""
