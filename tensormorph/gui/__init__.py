"""The window: everything that needs Qt is here and nowhere else."""
