"""Chat models that learn the seats of games: the games' lessons, and adapters that are fitted to them."""
