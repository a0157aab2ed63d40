"""What a page shows of bots that look for the friend both have."""
