"""What is done with every partition of a store, each a pure function of one partition directory."""
