"""The tree store with its two implementations: `embedded` for one node, `zookeeper` for clusters."""
