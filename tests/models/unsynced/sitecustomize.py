"""Python imports this where the folder is on its path: processes of tests do not wait for the disk.

Power is lost only in our own model of it (`changes.power_loss`).
"""
import os

os.fsync = lambda descriptor: None
