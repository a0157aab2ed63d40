"""The secret game: who makes a defender say its word, and who stays useful; match, play, page, RLlib environment."""
