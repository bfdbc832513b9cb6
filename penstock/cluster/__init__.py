"""What the cluster is (image), who decides about it (controller) and how it is changed (topics, configs, elections)."""
