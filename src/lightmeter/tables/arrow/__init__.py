"""Arrow schemas of the tables, and conversion of Python values to Arrow tables."""
