"""What is counted of generation against a discriminator."""
