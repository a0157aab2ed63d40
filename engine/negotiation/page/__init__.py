"""The page of negotiations."""
