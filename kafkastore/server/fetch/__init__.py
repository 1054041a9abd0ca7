"""Parts of Fetch: sessions, batches, transactions, and waiting for more."""
