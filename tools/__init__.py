"""Small commands; like scripts, they may import everything."""
