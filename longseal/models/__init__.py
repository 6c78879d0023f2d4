"""The model: loading it, and where its heads meet the output projections."""
