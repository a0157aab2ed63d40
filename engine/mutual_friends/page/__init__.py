"""The page of bots that look for their common friend."""
