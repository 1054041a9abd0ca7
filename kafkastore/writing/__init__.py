"""Writing of log directories, as a broker writes them."""

#: After the name of the log directory: marks the directory that saves bytes cut by a recovery.
CUT_MARK = ".kafkastore-cut-"
