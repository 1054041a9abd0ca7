"""The commands that alter directories, one module each."""
