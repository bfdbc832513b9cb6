"""REST under `/api/v1`: everything that the pages can do, JSON in and out, described by OpenAPI."""
