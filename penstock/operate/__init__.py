"""What command line and console share: questions to a cluster and changes of it, as plain data, without any output."""
