"""What is wrong with a row before money is spent on it."""
