"""Export: writes the output tables from the journals of the runs in an output folder, without sending requests."""
