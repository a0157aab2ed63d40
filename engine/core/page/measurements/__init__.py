"""What a page shows of a job that no other chapter knows."""
