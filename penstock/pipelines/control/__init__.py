"""Applied pipelines: where they are stored, who runs them, and how they do."""
