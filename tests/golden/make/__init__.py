"""Makes the golden data: what real brokers wrote, and what they answered while they ran."""
