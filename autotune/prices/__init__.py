"""What a measurement costs: price books, quotes, other prices, and where the winner changes."""
