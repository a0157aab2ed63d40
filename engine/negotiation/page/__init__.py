"""What a page shows of negotiations."""
