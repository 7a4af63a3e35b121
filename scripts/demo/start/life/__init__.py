"""Conway's Game of Life, in a terminal."""
