"""Which heads and channels help retrieval, which harm it, and why."""
