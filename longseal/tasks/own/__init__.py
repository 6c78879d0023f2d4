"""The user's own format: samples like a few examples, all content drawn anew."""
