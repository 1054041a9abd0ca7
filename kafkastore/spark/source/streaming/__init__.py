"""The stream reader: directories that grow, followed."""
