"""From journals to tables: reads the journals of a folder and writes the rows of every table."""
