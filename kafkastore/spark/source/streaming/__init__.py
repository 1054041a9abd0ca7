"""The stream reader, which follows growing log directories."""
